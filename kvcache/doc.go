// Package kvcache decides which blocks belong to which sequence.
//
// Cache memory is one arena of equal pages shared by every loaded model. A model's Cache cuts the
// pages it holds into blocks of one size for all its cache groups, and returns a page when its
// last block is free. This package deals in numbers; engine owns the bytes. It has no clock, no
// lock and no goroutine: the caller serialises.
//
// A block is free, live (in at least one BlockTable) or cached (in none, but kept because its
// content can be found again by the hash of the tokens up to its end). Cached blocks are as good
// as free: any model that needs memory takes them, least recently used first.
//
// Invariant: every page is free or held by exactly one Cache, and every block of a held page is
// free, cached, or live with as many references as tables name it. Pool.Verify recounts both.
//
// Page 0 belongs to nobody, so block 0 of every model is harmless: padding entries of a block
// table, table entries that a window has left behind, and rows of a captured step that nobody
// asked for all point there. What it holds is undefined and must not reach an answer.
//
// Steps run in the order in which they were planned. That is why a block may be given away while
// a step that writes to it is still running: the next owner's step writes its slots first.
//
// Recurrent state is to come as a third GroupKind: a block made of whole pages and a few snapshots
// of it. What the others see of that is here already: Match counts a hit only up to a length that
// every group can continue from, and Truncate answers how many tokens it could keep.
package kvcache
