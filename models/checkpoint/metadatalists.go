package checkpoint

// Bools returns an array of truth values.
func (m *Metadata) Bools(key string) ([]bool, error) {
	v, err := m.find(key)
	if err != nil {
		return nil, err
	}
	if v.kind != kindArray || v.elem != kindBool {
		return nil, m.errorf(key, "is %v, not an array of truth values", v)
	}
	list := make([]bool, v.count)
	err = m.reading(func() error {
		for i := range list {
			list[i] = v.raw[i] != 0
		}
		return nil
	}, m.file)
	return list, err
}

// EachInt returns n integers: an array of that many, or one integer that stands for all.
func (m *Metadata) EachInt(key string, n int) ([]int, error) {
	v, err := m.find(key)
	if err != nil {
		return nil, err
	}
	if v.kind != kindArray {
		one, err := m.Int(key)
		if err != nil {
			return nil, err
		}
		list := make([]int, n)
		for i := range list {
			list[i] = one
		}
		return list, nil
	}
	list, err := m.Ints(key)
	if err == nil && len(list) != n {
		err = m.errorf(key, "has %d entries, not %d", len(list), n)
	}
	return list, err
}
