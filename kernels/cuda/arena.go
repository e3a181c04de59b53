package cuda

import (
	"fmt"
	"slices"
	"sync"
)

// arena is a run of a card's memory that is cut into pieces, so that nothing is asked of the driver while steps run: an
// allocation there takes up to 2 MiB more than asked for, and giving one back waits for everything that runs.
//
// Pieces start at multiples of pieceAlign. A piece goes where the least is left over; neighbours that are free are one.
type arena struct {
	base  uint64
	bytes int64

	mu    sync.Mutex
	free  []extent         // by start, never touching
	taken map[uint64]int64 // bytes by start
}

// extent is bytes [at, at+n).
type extent struct {
	at uint64
	n  int64
}

const pieceAlign = 256

func newArena(base uint64, bytes int64) *arena {
	bytes -= bytes % pieceAlign
	return &arena{base: base, bytes: bytes, free: []extent{{base, bytes}}, taken: map[uint64]int64{}}
}

// take cuts a piece, or says what there is instead.
func (a *arena) take(bytes int64) (uint64, error) {
	if bytes <= 0 || bytes > 1<<50 {
		return 0, fmt.Errorf("%d is not a size", bytes)
	}
	n := (bytes + pieceAlign - 1) / pieceAlign * pieceAlign
	a.mu.Lock()
	defer a.mu.Unlock()
	best := -1
	sum, largest := int64(0), int64(0)
	for i, s := range a.free {
		sum, largest = sum+s.n, max(largest, s.n)
		if s.n >= n && (best < 0 || s.n < a.free[best].n) {
			best = i
		}
	}
	if best < 0 {
		return 0, fmt.Errorf("out of memory: %d bytes asked for, %d of %d free, %d of them in one piece", bytes, sum, a.bytes, largest)
	}
	s := &a.free[best]
	at := s.at
	if s.at, s.n = s.at+uint64(n), s.n-n; s.n == 0 {
		a.free = slices.Delete(a.free, best, best+1)
	}
	a.taken[at] = n
	return at, nil
}

// give takes a piece back. What is no piece panics: somebody may still use what it lies in.
func (a *arena) give(at uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, ok := a.taken[at]
	if !ok {
		panic(fmt.Sprintf("cuda: %#x was freed and is no piece of the arena", at))
	}
	delete(a.taken, at)
	i, _ := slices.BinarySearchFunc(a.free, at, func(s extent, at uint64) int {
		if s.at < at {
			return -1
		}
		return 1
	})
	if i > 0 && a.free[i-1].at+uint64(a.free[i-1].n) == at {
		i--
		a.free[i].n += n
	} else {
		a.free = slices.Insert(a.free, i, extent{at, n})
	}
	if i+1 < len(a.free) && a.free[i].at+uint64(a.free[i].n) == a.free[i+1].at {
		a.free[i].n += a.free[i+1].n
		a.free = slices.Delete(a.free, i+1, i+2)
	}
}
