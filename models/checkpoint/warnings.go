package checkpoint

import (
	"fmt"
	"slices"
)

// warnings are what a checkpoint says of itself that its tensors contradict, by what is said.
type warnings []warning

type warning struct {
	text    string
	tensors []string
}

// warn notes a contradiction that does not leave in doubt what the weights are.
func (c *Checkpoint) warn(t *tensor, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.warned, func(w warning) bool { return w.text == text })
	if i < 0 {
		i = len(c.warned)
		c.warned = append(c.warned, warning{text: text})
	}
	c.warned[i].tensors = append(c.warned[i].tensors, t.name)
}

// Warnings says where config.json and the tensors that were asked for contradict each other without
// leaving in doubt what the weights are. Whoever loads a model reports them; each names a
// tensor.
func (c *Checkpoint) Warnings() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for _, w := range c.warned {
		more := ""
		if n := len(w.tensors); n > 1 {
			more = fmt.Sprintf(" and %d more", n-1)
		}
		list = append(list, fmt.Sprintf("%s: tensor %s%s: %s", c.path, w.tensors[0], more, w.text))
	}
	return list
}
