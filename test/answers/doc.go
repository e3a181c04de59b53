// Package answers asks the HTTP layer for answers whose tokens are given: those of real tokenizers, cut into pieces in every way in
// which a vocabulary can spell a text, one or several an event. What comes is compared with what the answers were made of, streamed with not
// streamed.
//
// It owns a stand-in for the engine that plays tokens (replay), and the writers of the formats of calls. It computes nothing and tests no
// model; parsers by themselves are tested beside them, over bytes.
package answers
