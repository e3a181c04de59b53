// Package text turns the bytes of tokens into text as they come: whole characters only
// (Assembler), nothing that may still become a stop string (Stops), and for each piece of text
// the tokens it completes and the marks in it (Stream).
//
// It owns no tokenizer and no sampling: what a token's bytes are, and what is done about a stop,
// is engine's.
//
// Invariant: how the bytes are cut into tokens never shows. The joined output of any cut equals
// the output of the uncut text, and text once given out is final.
package text
