package engine

// ForecastFormat is the value of Forecast.Format: fields may be added under it, none change their meaning.
const ForecastFormat = "openinfer-plan/1"

// Forecast is what Plan tells: a stable form in JSON. Sizes are in bytes, times in seconds, rates in tokens a second.
type Forecast struct {
	Format    string `json:"format"`
	Simulated bool   `json:"simulated"` // always: no card was measured
	// A request counts with its context and an answer of AnswerTokens, or what the model's longest context leaves.
	AnswerTokens   int             `json:"answer_tokens"`
	Contexts       []int           `json:"contexts"`
	Concurrency    []int           `json:"concurrency"`
	BatchedTokens  int             `json:"max_num_batched_tokens"` // of a step: prompts are computed in so long pieces
	DefaultTPOT    float64         `json:"default_tpot_seconds"`   // targets of models that name none
	DefaultTTFT    float64         `json:"default_ttft_seconds"`
	SustainSeconds float64         `json:"sustain_seconds"` // decode rates are those of the middle of so long a time, or of the answer
	Models         []ModelFacts    `json:"models"`
	Cards          []*CardForecast `json:"cards"`
}

// ModelFacts are what is the same on every card.
type ModelFacts struct {
	Name         string `json:"name"`
	Source       string `json:"source"`  // safetensors, gguf, or config: no weights are there
	Weights      string `json:"weights"` // how they are stored on the card
	Architecture string `json:"architecture"`
	Parameters   int64  `json:"parameters"`
	Layers       int    `json:"layers"`
	MaxPosition  int    `json:"max_position"` // the context that the checkpoint states

	WeightBytes int64 `json:"weight_bytes"` // on the card: body and head, and the embedding where it is there
	BodyBytes   int64 `json:"body_bytes"`
	HeadBytes   int64 `json:"head_bytes"` // the output layer
	// EmbeddingBytes is 0 when the output layer is the embedding, too.
	EmbeddingBytes int64 `json:"embedding_bytes"`
	EmbeddingHost  bool  `json:"embedding_in_host_memory"`

	KVCacheDType string `json:"kv_cache_dtype"`
	TokenBytes   int64  `json:"token_bytes"` // of KV cache, until a window leaves the token behind
	StateBytes   int64  `json:"state_bytes"` // of recurrent state for one sequence
	ScratchBytes int64  `json:"scratch_bytes"`
	MaxNumSeqs   int    `json:"max_num_seqs"`
	// TPOT and TTFT are the targets that LargestBatch and LongestPrompt keep.
	TPOT float64 `json:"tpot_seconds"`
	TTFT float64 `json:"ttft_seconds"`
}

// CardForecast is what a server on one card would do.
type CardForecast struct {
	Card          string  `json:"card"` // as --card and sim: take it
	Description   string  `json:"description"`
	Source        string  `json:"source"` // of memory, bandwidth and rate
	MemoryBytes   int64   `json:"memory_bytes"`
	UsableBytes   int64   `json:"usable_bytes"`   // without what driver and context take
	Bandwidth     float64 `json:"bandwidth"`      // of its memory, bytes a second
	HostBandwidth float64 `json:"host_bandwidth"` // between host and card
	Rate          float64 `json:"rate"`           // operations a second of products with coded weights

	// Refused is the server's refusal to start with all models, "" when it starts; MissingBytes more memory would do, if that
	// is what is wrong.
	Refused      string `json:"refused,omitempty"`
	MissingBytes int64  `json:"missing_bytes,omitempty"`

	// Memory is the plan that the server prints when it starts with all models; nil when it does not.
	Memory *MemoryPlan `json:"memory,omitempty"`
	// Together says that all models' weights are on the card at once.
	Together bool `json:"together"`
	// Resident is what those models have room for that are on the card at first, when all of them are asked at once.
	Resident *SetForecast `json:"resident,omitempty"`
	// Sets are the sets of models that fit together and to which no other could be added. It is left out when all fit, and
	// of more than MaxSetModels models.
	Sets []SetForecast `json:"sets,omitempty"`
	// Best is the set of the most models that fit together with a request of the shortest context above 0 for each
	// at once; of several the one with the most tokens for each. Where no set has that much room it is the one with the most tokens.
	Best *SetForecast `json:"best,omitempty"`

	Models []ModelForecast `json:"models"`
}

// SetForecast is a set of models on the card together.
type SetForecast struct {
	Models      []string `json:"models"`
	WeightBytes int64    `json:"weight_bytes"`
	KVBytes     int64    `json:"kv_bytes"`
	// TokensEach is the longest context, with its answer, that each of the models can hold at once.
	TokensEach int `json:"tokens_each"`
	// RequestsEach are, by Forecast.Contexts, how many requests of each of the models fit at once. One whose context is
	// too short for it takes no part.
	RequestsEach []int `json:"requests_each"`
}

// ModelForecast is a model on a card.
type ModelForecast struct {
	Name string `json:"name"`
	// Alone is the server's plan for this model and no other; nil when that is refused, for want of MissingBytes.
	Alone        *MemoryPlan `json:"alone,omitempty"`
	Refused      string      `json:"refused,omitempty"`
	MissingBytes int64       `json:"missing_bytes,omitempty"`
	// LoadSeconds is how long its weights take from the host's memory to the card.
	LoadSeconds float64 `json:"load_seconds"`
	// Parks are the models that the scheduler parks for this one, in that order, when all are idle as at start-up. Of a
	// model that is there at first it is empty.
	Parks []string `json:"parks,omitempty"`
	// LongestPrompt is the longest whose first token comes within the model's TTFT, nothing else being there; 0: none.
	LongestPrompt int               `json:"longest_prompt"`
	Contexts      []ContextForecast `json:"contexts"`
}

// ContextForecast is a model on a card at one context.
type ContextForecast struct {
	Context int `json:"context"`
	// TooLong says that the model's longest context has no room for it and an answer. Nothing else is set then.
	TooLong bool `json:"too_long,omitempty"`
	// RequestsAlone and Requests are how many requests run at once: with the card to the model alone, and with the weights
	// of the others beside it and nobody asking them.
	RequestsAlone int `json:"requests_alone"`
	Requests      int `json:"requests"`
	// PrefillRate and TTFT are of a prompt of that length with nothing in the cache; 0 for context 0.
	PrefillRate float64 `json:"prefill_rate"`
	TTFT        float64 `json:"ttft_seconds"`
	// LargestBatch is how many requests at once get their tokens within the model's TPOT; 0: not one.
	LargestBatch int          `json:"largest_batch"`
	Decode       []DecodeCell `json:"decode"` // by Forecast.Concurrency
}

// DecodeCell is so many requests that decode at once.
type DecodeCell struct {
	Requests int `json:"requests"`
	// OverCapacity says that they do not fit, as ContextForecast.Requests counts. Nothing else is set then.
	OverCapacity bool    `json:"over_capacity,omitempty"`
	Rate         float64 `json:"rate"` // of all together
	TPOT         float64 `json:"tpot_seconds"`
}

// Model returns the facts of a model by name; nil: there is none.
func (f *Forecast) Model(name string) *ModelFacts {
	for i := range f.Models {
		if f.Models[i].Name == name {
			return &f.Models[i]
		}
	}
	return nil
}
