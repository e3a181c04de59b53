package checkpoint

// Summary counts what a checkpoint holds, without reading a weight.
type Summary struct {
	Tensors int
	Bytes   int64          // of tensor data
	Types   map[string]int // storage type to number of tensors
}

// Summary counts the checkpoint's tensors.
func (c *Checkpoint) Summary() Summary {
	s := Summary{Tensors: len(c.tensors), Types: map[string]int{}}
	for _, t := range c.tensors {
		s.Bytes += int64(len(t.data))
		s.Types[t.kind.name]++
	}
	return s
}
