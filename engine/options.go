package engine

import "time"

// Options say what an Engine serves and with how much. The zero value of a field is its default.
type Options struct {
	Models []ModelSpec

	Device  string // "auto" (default), "cpu" or "ref"
	Threads int    // of the cpu device; 0: one a core
	Exact   bool   // float32 activations and KV cache instead of int8 and fp16

	KVMemory     int64  // bytes of the page pool shared by all models; 0: a share of what is free
	KVCacheDType string // "auto" (fp16; float32 with Exact), "float32" or "fp16"; a ModelSpec may set its own
	PrefixCache  *bool  // nil: on

	MaxNumSeqs       int // running sequences for each model; 0: 64
	MaxBatchedTokens int // tokens in one step; 0: 512 on cpu
	MaxWaiting       int // waiting requests for each model; 0: 256
	MaxWaitingTotal  int // and in all; 0: 1024

	// HeartbeatLimit is the age of the step loop's last sign of life at which Health says no.
	HeartbeatLimit time.Duration // 0: 30 s
	// Progress, when not nil, is told what start-up is doing.
	Progress func(string)
}

// ModelSpec names a model and where its checkpoint is.
type ModelSpec struct {
	Name string
	Path string // a folder, a .gguf file, or "" for an embedded model of that Name
	// What a model may set for itself; zero: as in Options or the checkpoint.
	MaxModelLen  int
	MaxNumSeqs   int
	KVCacheDType string
}
