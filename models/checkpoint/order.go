package checkpoint

import "encoding/binary"

// Activation order: quantisers take the inputs of a matrix in order of their importance, and those
// that follow each other share a scale. The checkpoint keeps the inputs in their own order and a
// list of the group of each. Sorted by group, groups are neighbours again.

// groupOrder reads a list of groups, I32 [k], and returns the inputs by group, those of one group
// in their own order; nil when that is their order anyway. A list of -1 stands for no order.
func (c *Checkpoint) groupOrder(t *tensor, k, group int) ([]int32, error) {
	if t.kind.name != "I32" || !t.is(k) {
		return nil, t.errorf("should be I32 [%d], the group of each input", k)
	}
	groups := k / group
	order := make([]int32, k)
	trivial, absent := true, 0
	err := c.reading(func() error {
		of := func(i int) int { return int(int32(binary.LittleEndian.Uint32(t.data[4*i:]))) }
		next := make([]int, groups) // where the next input of a group goes
		for g := range next {
			next[g] = g * group
		}
		for i := range k {
			g := of(i)
			if g == -1 {
				absent++
				continue
			}
			if g < 0 || g >= groups {
				return t.errorf("input %d is in group %d of %d", i, g, groups)
			}
			if next[g] == (g+1)*group {
				return t.errorf("group %d has more than %d inputs", g, group)
			}
			order[next[g]] = int32(i)
			trivial = trivial && next[g] == i
			next[g]++
		}
		if absent > 0 && absent < k {
			return t.errorf("%d of %d inputs are in no group", absent, k)
		}
		return nil
	}, t.file)
	if err != nil || trivial {
		return nil, err
	}
	return order, nil
}

// reorder brings the codes of rows from the inputs' own order to that of perm.
func reorder(codes []uint8, perm []int32) {
	k := len(perm)
	if k == 0 {
		return
	}
	own := make([]uint8, k)
	for ; len(codes) >= k; codes = codes[k:] {
		copy(own, codes)
		for i, p := range perm {
			codes[i] = own[p]
		}
	}
}
