package checkpoint

// Metadata are the key-value pairs of a GGUF file. Getters convert between widths of integers and
// of floats when the value fits; an absent key, another kind or a value that does not fit is an
// error that names the key.
type Metadata struct{}

// Has says whether the key is there.
func (m *Metadata) Has(key string) bool { return false }

// Keys are all keys, in the file's order.
func (m *Metadata) Keys() []string { return nil }

// Int returns an integer of any width.
func (m *Metadata) Int(key string) (int, error) { return 0, errTODO }

// Float returns a float or an integer.
func (m *Metadata) Float(key string) (float64, error) { return 0, errTODO }

// Bool returns a truth value.
func (m *Metadata) Bool(key string) (bool, error) { return false, errTODO }

// String returns a text.
func (m *Metadata) String(key string) (string, error) { return "", errTODO }

// IntOr is Int, and def when the key is absent.
func (m *Metadata) IntOr(key string, def int) (int, error) { return 0, errTODO }

// FloatOr is Float, and def when the key is absent.
func (m *Metadata) FloatOr(key string, def float64) (float64, error) { return 0, errTODO }

// StringOr is String, and def when the key is absent.
func (m *Metadata) StringOr(key, def string) (string, error) { return "", errTODO }

// BoolOr is Bool, and def when the key is absent.
func (m *Metadata) BoolOr(key string, def bool) (bool, error) { return false, errTODO }

// Ints returns an array of integers of any width.
func (m *Metadata) Ints(key string) ([]int, error) { return nil, errTODO }

// Floats returns an array of floats.
func (m *Metadata) Floats(key string) ([]float32, error) { return nil, errTODO }

// Strings returns an array of texts.
func (m *Metadata) Strings(key string) ([]string, error) { return nil, errTODO }
