package kvcache

// Pool is the pages shared by all models.
type Pool struct{}

// NewPool returns a pool of pages, of which page 0 is padding. pages >= 2.
func NewPool(pages int) *Pool { panic("todo") }

// NewCache adds a model to the pool.
func (p *Pool) NewCache(c Config) (*Cache, error) { panic("todo") }

// Stats counts, in the order the caches were made.
func (p *Pool) Stats() Stats { panic("todo") }

// Verify recounts every page, block, reference and list and names the first that is wrong.
func (p *Pool) Verify() error { panic("todo") }

// Reset frees every page and empties every cache; all tables are void afterwards.
func (p *Pool) Reset() { panic("todo") }

// Cache is one model's blocks.
type Cache struct{}

// Config returns what the cache was made from.
func (c *Cache) Config() *Config { panic("todo") }

// Close gives every page back. Panics when a block is live.
func (c *Cache) Close() { panic("todo") }

// Flush forgets what the prefix cache holds.
func (c *Cache) Flush() { panic("todo") }

// NewTable returns an empty table.
func (c *Cache) NewTable(id Identity) *BlockTable { panic("todo") }

// Extend gives the table blocks for positions up to n in every group (and up to ahead, if that is
// more, in groups that keep everything), or false and changes nothing.
func (c *Cache) Extend(t *BlockTable, n, ahead int) bool { panic("todo") }

// Match fills an empty table with cached blocks and returns how many leading tokens they cover:
// never the last one.
func (c *Cache) Match(t *BlockTable, tokens []int32) int { panic("todo") }

// Seal makes the full blocks of the computed tokens findable and lets windows move on.
func (c *Cache) Seal(t *BlockTable, tokens []int32) { panic("todo") }

// Truncate forgets all positions from n on and returns how many are kept.
func (c *Cache) Truncate(t *BlockTable, n int) int { panic("todo") }

// Release empties the table.
func (c *Cache) Release(t *BlockTable) { panic("todo") }

// Fits says whether a sequence of n tokens fits an empty pool when at most span positions are
// computed but not yet sealed.
func (c *Cache) Fits(n, span int) bool { panic("todo") }

// MaxTokens is the longest sequence that Fits, at most limit.
func (c *Cache) MaxTokens(span, limit int) int { panic("todo") }

// BlockTable is the blocks of one sequence, per cache group.
type BlockTable struct{}

// Blocks returns group g's blocks in order of position; entries that a window has left are Padding.
// The slice is the table's own.
func (t *BlockTable) Blocks(g int) []BlockID { panic("todo") }
