package cuda

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// Pieces never overlap, and when all are back the arena is one piece again.
func TestArenaAtRandom(t *testing.T) {
	const base, size = 1 << 40, 1 << 20
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		a := newArena(base, size)
		var owner [size / pieceAlign]int
		type piece struct {
			at uint64
			n  int64
			id int
		}
		var held []piece
		for id := 1; id < 2000; id++ {
			if len(held) > 0 && r.IntN(5) < 2 {
				i := r.IntN(len(held))
				p := held[i]
				for u := range (p.n + pieceAlign - 1) / pieceAlign {
					if o := owner[(p.at-base)/pieceAlign+uint64(u)]; o != p.id {
						t.Fatalf("seed %d: piece %d was cut into by %d", seed, p.id, o)
					}
				}
				a.give(p.at)
				held[i] = held[len(held)-1]
				held = held[:len(held)-1]
				continue
			}
			n := 1 + r.Int64N(1<<r.IntN(17))
			at, err := a.take(n)
			if err != nil {
				continue
			}
			if at%pieceAlign != 0 || at < base || at+uint64(n) > base+size {
				t.Fatalf("seed %d: %d bytes at %#x", seed, n, at)
			}
			for u := range (n + pieceAlign - 1) / pieceAlign {
				owner[(at-base)/pieceAlign+uint64(u)] = id
			}
			held = append(held, piece{at, n, id})
		}
		for _, p := range held {
			a.give(p.at)
		}
		if len(a.free) != 1 || a.free[0] != (extent{base, size}) || len(a.taken) != 0 {
			t.Fatalf("seed %d: left with %v", seed, a.free)
		}
	}
}

func TestArenaRefusesWithNumbers(t *testing.T) {
	a := newArena(0, 3*pieceAlign)
	var at [3]uint64
	for i := range at {
		var err error
		if at[i], err = a.take(pieceAlign); err != nil {
			t.Fatal(err)
		}
	}
	a.give(at[0])
	a.give(at[2])
	_, err := a.take(257)
	if err == nil || !strings.Contains(err.Error(), "257 bytes asked for, 512 of 768 free, 256 of them in one piece") {
		t.Errorf("%v", err)
	}
	if _, err := a.take(-1); err == nil {
		t.Error("a negative size was taken")
	}
	defer func() {
		if recover() == nil {
			t.Error("a piece was given back twice")
		}
	}()
	a.give(at[0])
}
