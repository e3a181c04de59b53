package ptx

// findReconvergence sets rpc of every branch to the first instruction of its immediate
// post-dominator: the nearest place that all lanes pass again. A lane that ends does not need to
// be waited for, so first the ways to an early end are left out ("if (i >= n) return;"); where
// that leaves no way to the end at all, as in an endless loop with a return, they count.
func findReconvergence(ops []op) {
	postDominators(ops, false)
	postDominators(ops, true)
}

// basicBlocks gives the first instruction of each basic block, and the block of each instruction.
func basicBlocks(ops []op) (starts, block []int) {
	n := len(ops)
	leader := make([]bool, n+1)
	leader[0] = true
	for i := range ops {
		switch o := &ops[i]; o.kind {
		case kBranch:
			leader[o.target], leader[i+1] = true, true
		case kSwitch:
			for _, t := range o.list {
				leader[t] = true
			}
			leader[i+1] = true
		case kExit, kTrap:
			leader[i+1] = true
		}
	}
	block = make([]int, n+1)
	for i := range n {
		if leader[i] {
			starts = append(starts, i)
		}
		block[i] = len(starts) - 1
	}
	return starts, block
}

func postDominators(ops []op, early bool) {
	n := len(ops)
	starts, block := basicBlocks(ops)
	exit := len(starts)
	succ := make([][]int, exit)
	pred := make([][]int, exit+1)
	for b := range starts {
		end := n
		if b+1 < exit {
			end = starts[b+1]
		}
		o := &ops[end-1]
		add := func(to int) {
			if early && ends(ops, starts, to) && o.pred >= 0 {
				return
			}
			succ[b] = append(succ[b], to)
			pred[to] = append(pred[to], b)
		}
		next := func() {
			if end < n {
				to := block[end]
				succ[b], pred[to] = append(succ[b], to), append(pred[to], b)
			} else {
				add(exit)
			}
		}
		switch o.kind {
		case kBranch:
			add(block[o.target])
			if o.pred >= 0 {
				next()
			}
		case kSwitch:
			for _, t := range o.list {
				add(block[t])
			}
			if o.pred >= 0 {
				next()
			}
		case kExit, kTrap:
			add(exit)
			if o.pred >= 0 {
				next()
			}
		default:
			next()
		}
	}
	// Cooper, Harvey and Kennedy's dominators on the reversed graph, from the exit.
	order := make([]int, 0, exit+1) // postorder
	number := make([]int, exit+1)
	for i := range number {
		number[i] = -1
	}
	type visit struct{ node, child int }
	seen := make([]bool, exit+1)
	stack := []visit{{exit, 0}}
	seen[exit] = true
	for len(stack) > 0 {
		v := &stack[len(stack)-1]
		if v.child < len(pred[v.node]) {
			p := pred[v.node][v.child]
			v.child++
			if !seen[p] {
				seen[p] = true
				stack = append(stack, visit{p, 0})
			}
			continue
		}
		number[v.node] = len(order)
		order = append(order, v.node)
		stack = stack[:len(stack)-1]
	}
	idom := make([]int, exit+1)
	for i := range idom {
		idom[i] = -1
	}
	idom[exit] = exit
	for changed := true; changed; {
		changed = false
		for i := len(order) - 2; i >= 0; i-- {
			b := order[i]
			d := -1
			for _, s := range succ[b] {
				if number[s] < 0 || idom[s] < 0 {
					continue
				}
				if d < 0 {
					d = s
					continue
				}
				x, y := d, s
				for x != y {
					for number[x] < number[y] {
						x = idom[x]
					}
					for number[y] < number[x] {
						y = idom[y]
					}
				}
				d = x
			}
			if d >= 0 && idom[b] != d {
				idom[b], changed = d, true
			}
		}
	}
	for i := range ops {
		o := &ops[i]
		if o.kind != kBranch && o.kind != kSwitch {
			continue
		}
		if d := idom[block[i]]; d >= 0 && d < exit {
			o.rpc = int32(starts[d])
		}
	}
}

// ends reports whether block b does nothing but end the thread.
func ends(ops []op, starts []int, b int) bool {
	if b == len(starts) {
		return true
	}
	o := &ops[starts[b]]
	return (o.kind == kExit || o.kind == kTrap) && o.pred < 0
}
