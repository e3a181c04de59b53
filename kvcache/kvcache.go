package kvcache

// PageID names a page of the pool. Page 0 is padding and is never given out.
type PageID int32

// BlockID names a block among those of one model: page * BlocksPerPage + part. The same number
// means different memory for a model that cuts its pages otherwise.
type BlockID int32

// Padding is the block that nobody owns, for every model.
const Padding BlockID = 0

// GroupKind is the lifetime of a cache group's blocks.
type GroupKind uint8

// Kinds of cache groups.
const (
	Full          GroupKind = iota // kept as long as the sequence
	SlidingWindow                  // given back as the window moves on
	Recurrent                      // one state block of whole pages, and snapshots of it
)

// Group is one cache group of a model. BlockTokens may differ between the groups of a model.
type Group struct {
	Kind GroupKind
	// BlockTokens is how many tokens a block holds for all layers of the group, a multiple of 16.
	// Recurrent: there are no blocks; NewCache sets it to what snapshots are at multiples of.
	BlockTokens int
	Window      int // SlidingWindow: positions a token sees, counting itself
	StatePages  int // Recurrent: pages of a state block
}

// Config is what a model's Cache is made from.
type Config struct {
	Model         string // enters the hash of every block
	BlocksPerPage int
	Groups        []Group // at most one is Recurrent
	// Snapshots is the most state blocks kept beside those that sequences have for their own. With
	// recurrent state and no snapshots there is no prefix cache.
	Snapshots int
	// SnapshotTokens: of a long prompt a snapshot is kept every so many tokens, rounded up to whole
	// blocks; 0: none of this kind.
	SnapshotTokens int
	// Weight is what recomputing a cached byte costs, relative to other models: a model of
	// weight 2 keeps its cached blocks twice as long. 0 means 1.
	Weight float64
	// NoPrefixCache: no block is kept or found; every block is free when its last table lets go.
	NoPrefixCache bool
}

// Identity is what two sequences of a model must share, beside tokens, to share blocks.
type Identity struct {
	Adapter string
	Regime  string // for example which factors of longrope the prompt is computed with
	Salt    string // from the API key or the request: tenants cannot probe each other's prompts
}

// Stats counts pages and blocks of the pool. Usage is Live alone: cached blocks are reclaimable.
type Stats struct {
	Pages     int // without the padding page
	FreePages int
	Models    []ModelStats // in the order the caches were made
}

// ModelStats counts one model's pages and blocks.
type ModelStats struct {
	Model     string
	Pages     int    // held now
	Live      int    // blocks in at least one table
	Cached    int    // blocks kept for the prefix cache only
	Free      int    // blocks of held pages with nothing in them
	Capacity  int    // blocks if the model had the whole pool
	States    int    // state blocks that sequences have for their own
	Snapshots int    // other state blocks, kept for the prefix cache
	Evictions uint64 // cached blocks and snapshots ever taken for something else
	Sealed    uint64 // blocks and snapshots ever made findable
}
