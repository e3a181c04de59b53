// Package grammar turns what an answer has to look like into masks of the tokens that may come next.
//
// An Expr says what is allowed: it is built from literals, choices and repeats, or read from a JSON Schema (Schema), a
// regular expression (Regex) or a grammar in GBNF notation (EBNF). Compile makes of it, with a model's Vocabulary, a
// Grammar: rules that are deterministic automata over bytes and call each other. A State is where an answer
// stands: a set of automaton states, each with the stack of rules to return to. States are immutable, so that an
// answer can be asked about ahead of time and taken up again.
//
// What tokens a state allows is found by walking a trie of the vocabulary. An automaton's part of it does
// not depend on the stack and is kept; what a token does after its rule has returned is walked for the stack at hand,
// and the whole is kept by state and stack. Memory is bounded: when a Grammar has kept too much it forgets it all.
//
// It knows nothing of models, requests and devices. What is not supported is an *Error that says what and
// where; nothing is left unconstrained in silence.
//
// Invariant: every State that Start and Advance return can be led to an end, token by token, so a mask is never empty
// unless the vocabulary has no end token and nothing but the end is left.
package grammar
