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
// Invariant: every page is free or held by exactly one Cache, where it is a part of one state block or
// cut into blocks; every block and every state block is free, cached, or live with as many references
// as tables name it. Pool.Verify recounts all of it.
//
// Page 0 belongs to nobody, so block 0 of every model is harmless: padding entries of a block
// table, table entries that a window has left behind, and rows of a captured step that nobody
// asked for all point there. What it holds is undefined and must not reach an answer.
//
// Steps run in the order in which they were planned. That is why a block may be given away while
// a step that writes to it is still running: the next owner's step writes its slots first.
//
// Recurrent state is a third kind of group: a sequence has one state block of whole pages, which every
// run of its tokens reads and writes (Advance). Nothing is ever copied: where a snapshot is to stay, the
// sequence's next run reads the block it has had and writes another one. A snapshot of whole blocks of
// tokens is found by their hash like a block, and Match goes only as far as there is one. Snapshots are
// cached like blocks: as good as free pages, for any model, longest unused first, a bounded number of
// them, and never a reason to refuse or preempt anybody.
//
// Steps run one after the other, but the rows of a step side by side. That is why what Advance leaves
// or lets go of in a step is not given away before the next Match or Extend.
package kvcache
