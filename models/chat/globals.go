package chat

import (
	"github.com/ardanlabs/jinja"
)

// The functions that templates call by name, and how arguments reach them.

func rangeList(s *state, a args, k kwargs) (jinja.Value, error) {
	if len(a) < 1 || len(a) > 3 || len(k) > 0 {
		return undefined, failf("range takes one to three integers")
	}
	bounds := [3]int64{0, 0, 1}
	for i, v := range a {
		n, ok := asInt(v)
		if !ok {
			return undefined, failf("'%s' object cannot be interpreted as an integer", s.typeName(v))
		}
		if len(a) == 1 {
			i = 1
		}
		bounds[i] = n
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		return undefined, failf("range() arg 3 must not be zero")
	}
	count := uint64(0)
	if step > 0 && start < stop {
		count = (uint64(stop) - uint64(start) - 1) / uint64(step)
	} else if step < 0 && start > stop {
		count = (uint64(start) - uint64(stop) - 1) / -uint64(step)
	} else {
		return s.listOf(isRange, nil), nil
	}
	if count >= maxRange {
		return undefined, failf("range is longer than %d", maxRange)
	}
	if err := s.tick(int(count)); err != nil {
		return undefined, err
	}
	items := make([]jinja.Value, count+1)
	for i := range items {
		items[i] = jinja.NewInt(start + int64(i)*step)
	}
	return s.listOf(isRange, items), nil
}

func dictFunction(s *state, a args, k kwargs) (jinja.Value, error) {
	d := jinja.NewDict()
	if len(a) > 1 {
		return undefined, failf("dict expected at most 1 argument, got %d", len(a))
	}
	if len(a) == 1 && s.isMapping(a[0]) {
		for _, key := range a[0].AsDict().Keys {
			d.AsDict().Set(key, a[0].AsDict().Data[key])
		}
		if from, ok := s.keys[a[0].AsDict()]; ok {
			s.keys[d.AsDict()] = from
		}
	} else if len(a) == 1 {
		items, err := s.iterate(a[0])
		if err != nil {
			return undefined, err
		}
		for _, it := range items {
			pair, err := s.unpack(it, 2)
			if err != nil {
				return undefined, err
			}
			key, ok := s.asText(pair.AsList().Get(0))
			if !ok {
				return undefined, failf("a dict with a key of type %s is not supported", s.typeName(pair.AsList().Get(0)))
			}
			d.AsDict().Set(s.marks.plain(key), pair.AsList().Get(1))
		}
	}
	named(d, k)
	return d, s.tick(d.AsDict().Len())
}

// named adds named arguments to a dict, in the order they were written.
func named(d jinja.Value, k kwargs) {
	if order, ok := k[reserved+"order"]; ok {
		for _, key := range order.AsList().Items {
			d.AsDict().Set(key.AsString(), k[key.AsString()])
		}
		return
	}
	for key, v := range k {
		d.AsDict().Set(key, v)
	}
}

func namespace(s *state, a args, k kwargs) (jinja.Value, error) {
	v, err := dictFunction(s, a, k)
	if err != nil {
		return undefined, err
	}
	ns := s.object(isNamespace)
	*ns.AsDict() = *v.AsDict()
	return ns, nil
}

func joiner(s *state, a args, k kwargs) (jinja.Value, error) {
	p := parameters{s: s, name: "joiner", a: a, k: k}
	sep := p.optional("sep", jinja.NewString(", "))
	if err := p.done(); err != nil {
		return undefined, err
	}
	used := false
	return s.bind("joiner", func(*state, args, kwargs) (jinja.Value, error) {
		if used {
			return sep, nil
		}
		used = true
		return jinja.NewString(""), nil
	}), nil
}

func cycler(s *state, a args, k kwargs) (jinja.Value, error) {
	if len(a) == 0 || len(k) > 0 {
		return undefined, failf("at least one item has to be provided")
	}
	v, at := s.object(isCycler), 0
	d := v.AsDict()
	d.Set("current", a[0])
	d.Set("next", s.bind("next", func(*state, args, kwargs) (jinja.Value, error) {
		item := a[at]
		at = (at + 1) % len(a)
		d.Set("current", a[at])
		return item, nil
	}))
	d.Set("reset", s.bind("reset", func(*state, args, kwargs) (jinja.Value, error) {
		at = 0
		d.Set("current", a[0])
		return none, nil
	}))
	return v, nil
}

// parameters binds a function's arguments by Python's rules.
type parameters struct {
	s    *state
	name string
	a    args
	k    kwargs
	next int
	used int // of k
	err  error
}

func (p *parameters) optional(name string, fallback jinja.Value) jinja.Value {
	i := p.next
	p.next++
	v, named := p.k[name]
	if named {
		p.used++
	}
	if i < len(p.a) {
		if named {
			p.err = failf("%s got multiple values for argument '%s'", p.name, name)
		}
		return p.a[i]
	}
	if named {
		return v
	}
	return fallback
}

func (p *parameters) required(name string) jinja.Value {
	_, named := p.k[name]
	if p.next >= len(p.a) && !named {
		p.err = failf("%s is missing its argument '%s'", p.name, name)
	}
	return p.optional(name, undefined)
}

func (p *parameters) done() error {
	if p.err != nil {
		return p.err
	}
	if len(p.a) > p.next {
		return failf("%s takes %d arguments but %d were given", p.name, p.next, len(p.a))
	}
	if len(p.k) > p.used {
		return failf("%s got an unexpected keyword argument", p.name)
	}
	return nil
}
