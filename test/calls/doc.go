// Package calls tests calls of tools over real vocabularies: answers that are drawn at random within the grammar of a format are read as
// calls, and an independent validator finds that their arguments are what the tool's schema allows.
//
// It computes no logits: a random stand-in for a model chooses the tokens, which keeps nothing that a grammar does not hold.
package calls
