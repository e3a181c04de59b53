package engine

// MemoryPlan is what start-up decided about memory; serve prints it.
type MemoryPlan struct {
	Device       string // Info.Description
	FreeBytes    int64  // free for us when the device was opened, before any weight was loaded
	WeightBytes  int64  // of all models
	ScratchBytes int64  // one buffer, for the largest step of any model
	KVBytes      int64  // Pages * PageBytes
	PageBytes    int64
	Pages        int
	ReserveBytes int64 // left to everything else
	Models       []ModelPlan
}

// ModelPlan is one model's part of a MemoryPlan.
type ModelPlan struct {
	Name          string
	WeightBytes   int64
	KVCacheDType  string
	TokenBytes    int64 // of KV cache for one token of context
	BlockTokens   int
	BlockBytes    int64
	BlocksPerPage int
	// CacheTokens of context fit if this model has the whole pool.
	CacheTokens int
	MaxModelLen int
}
