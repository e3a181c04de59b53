package main

import (
	"sync"
	"time"
)

// readBandwidth returns the GB/s at which threads together read memory that no cache holds: the best
// of several passes over 256 MiB each.
func readBandwidth(threads int) float64 {
	const words = 256 << 20 / 8
	blocks := make([][]uint64, threads)
	for i := range blocks {
		blocks[i] = make([]uint64, words)
		for j := 0; j < words; j += 512 { // a write to each OS page, so that each has memory of its own
			blocks[i][j] = uint64(j)
		}
	}
	best := 0.0
	var sink sync.Map // keeps the sums, so that the loops are not optimised away
	for range 5 {
		var wg sync.WaitGroup
		start := time.Now()
		for i, b := range blocks {
			wg.Add(1)
			go func() {
				defer wg.Done()
				var s0, s1, s2, s3, s4, s5, s6, s7 uint64
				for ; len(b) >= 8; b = b[8:] {
					s0 += b[0]
					s1 += b[1]
					s2 += b[2]
					s3 += b[3]
					s4 += b[4]
					s5 += b[5]
					s6 += b[6]
					s7 += b[7]
				}
				sink.Store(i, s0+s1+s2+s3+s4+s5+s6+s7)
			}()
		}
		wg.Wait()
		best = max(best, float64(threads)*words*8/time.Since(start).Seconds()/1e9)
	}
	return best
}
