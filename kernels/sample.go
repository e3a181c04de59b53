package kernels

// SampleParams says how to draw one token. In this order: history penalties, Bias, Banned and
// Allowed change the logits; Temperature divides them; MinP, TopK and TopP cut, each over what the
// one before left; one draw. The log probabilities reported are those of the raw logits, before
// all of it. Ids beyond the vocabulary are ignored in Prompt, Output, Bias and Banned.
type SampleParams struct {
	Temperature float32 // 0: the largest logit; the lowest id among equals
	TopK        int     // 0: no cut
	TopP        float32 // 1 or 0: no cut; keeps the smallest set whose probabilities sum to at least TopP
	MinP        float32 // 0: no cut; keeps ids with at least MinP times the largest probability

	Repetition float32 // 1 or 0: none; divides positive and multiplies negative logits of Prompt and Output ids
	Presence   float32 // subtracted once for ids in Output
	Frequency  float32 // subtracted for each time an id occurs in Output
	// Prompt and Output are needed only with a penalty.
	Prompt, Output []int32

	Bias    []TokenBias
	Banned  []int32  // never drawn (end tokens before min_tokens)
	Allowed []uint32 // bit i of word i/32: id may be drawn; nil: all

	// The draw is a function of Seed and Index (the number of the token in its sequence) only.
	Seed  uint64
	Index uint64

	// Given, when not negative, is not drawn but given: a token of the prompt whose log
	// probability is asked for.
	Given int32
	// Logprobs asks for the token's own log probability and this many most likely ids; -1: none.
	Logprobs int
}

// TokenBias is added to one id's logit.
type TokenBias struct {
	ID   int32
	Bias float32
}

// Sampled is one drawn token.
type Sampled struct {
	ID      int32
	Logprob float32        // of ID; 0 when not asked for
	Rank    int32          // of ID: 1 and the number of greater logits; 0 when not asked for
	Top     []TokenLogprob // descending, ties by id
	// NaN reports that the row held a NaN or +Inf or that nothing could be drawn: ID is invalid
	// and the sequence has failed.
	NaN bool
}

// TokenLogprob is an id with the natural logarithm of its probability.
type TokenLogprob struct {
	ID      int32
	Logprob float32
}
