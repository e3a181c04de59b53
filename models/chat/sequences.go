package chat

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ardanlabs/jinja"
)

// Filters of lists and dicts: order, groups, selection.

// sortKey is what sort, unique, min, max and groupby compare by.
func (s *state) sortKey(v, attribute jinja.Value, caseSensitive bool) (jinja.Value, error) {
	v, err := s.path(v, attribute, undefined)
	if text, ok := s.asText(v); ok && !caseSensitive {
		return jinja.NewString(lower(s.marks.plain(text))), err
	}
	return v, err
}

// sorted orders items by their keys, stably, and reports the first comparison that fails.
func (s *state) sorted(items, keys []jinja.Value, reverse bool) ([]jinja.Value, error) {
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	var failed error
	slices.SortStableFunc(order, func(i, j int) int {
		if failed != nil {
			return 0
		}
		c, _, err := s.compare(keys[i], keys[j], "<", 0)
		failed = firstError(err, s.tick(1))
		if reverse {
			return -c
		}
		return c
	})
	if failed != nil {
		return nil, failed
	}
	out := make([]jinja.Value, len(items))
	for i, at := range order {
		out[i] = items[at]
	}
	return out, nil
}

func (s *state) keysOf(items []jinja.Value, attribute jinja.Value, caseSensitive bool) ([]jinja.Value, error) {
	keys := make([]jinja.Value, len(items))
	// A comma in attribute sorts by several of them in turn.
	attributes := args{attribute}
	if text, ok := s.asText(attribute); ok && strings.Contains(text, ",") {
		attributes = nil
		for part := range strings.SplitSeq(text, ",") {
			attributes = append(attributes, jinja.NewString(part))
		}
	}
	for i, v := range items {
		var parts []jinja.Value
		for _, a := range attributes {
			key, err := s.sortKey(v, a, caseSensitive)
			if err != nil {
				return nil, err
			}
			parts = append(parts, key)
		}
		if keys[i] = parts[0]; len(parts) > 1 {
			keys[i] = jinja.NewList(parts)
		}
	}
	return keys, nil
}

func sortFilter(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
	reverse, caseSensitive, attribute := p.optional("reverse", jinja.NewBool(false)), p.optional("case_sensitive", jinja.NewBool(false)), p.optional("attribute", none)
	items, err := s.iterate(v)
	if err = firstError(err, p.done()); err != nil {
		return undefined, err
	}
	keys, err := s.keysOf(items, attribute, caseSensitive.IsTruthy())
	if err != nil {
		return undefined, err
	}
	if items, err = s.sorted(items, keys, reverse.IsTruthy()); err != nil {
		return undefined, err
	}
	return s.list(items)
}

func dictSort(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
	caseSensitive, by, reverse := p.optional("case_sensitive", jinja.NewBool(false)), p.optional("by", jinja.NewString("key")), p.optional("reverse", jinja.NewBool(false))
	if err := p.done(); err != nil {
		return undefined, err
	}
	if !s.isMapping(v) {
		return undefined, failf("dictsort needs a mapping, not %s", s.typeName(v))
	}
	at := map[string]int64{"key": 0, "value": 1}
	name, _ := s.asText(by)
	i, ok := at[name]
	if !ok {
		return undefined, failf("You can only sort by either \"key\" or \"value\"")
	}
	all, err := s.dictItems(v)
	if err != nil {
		return undefined, err
	}
	keys, err := s.keysOf(all, jinja.NewInt(i), caseSensitive.IsTruthy())
	if err != nil {
		return undefined, err
	}
	items, err := s.sorted(all, keys, reverse.IsTruthy())
	if err != nil {
		return undefined, err
	}
	return s.list(items)
}

func unique(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
	caseSensitive, attribute := p.optional("case_sensitive", jinja.NewBool(false)), p.optional("attribute", none)
	items, err := s.iterate(v)
	if err = firstError(err, p.done()); err != nil {
		return undefined, err
	}
	keys, err := s.keysOf(items, attribute, caseSensitive.IsTruthy())
	if err != nil {
		return undefined, err
	}
	var out, seen []jinja.Value
	for i, key := range keys {
		in, err := s.contains(jinja.NewList(seen), key)
		if err != nil {
			return undefined, err
		}
		if !in {
			seen, out = append(seen, key), append(out, items[i])
		}
	}
	return s.generator(out)
}

func groupBy(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
	attribute, fallback, caseSensitive := p.required("attribute"), p.optional("default", none), p.optional("case_sensitive", jinja.NewBool(false))
	items, err := s.iterate(v)
	if err = firstError(err, p.done()); err != nil {
		return undefined, err
	}
	if fallback.IsNone() {
		fallback = undefined
	}
	raw := make([]jinja.Value, len(items)) // as they are in the items, which is what a group shows
	keys := make([]jinja.Value, len(items))
	both := make([]jinja.Value, len(items))
	for i, it := range items {
		if raw[i], err = s.path(it, attribute, fallback); err != nil {
			return undefined, err
		}
		if keys[i], err = s.sortKey(raw[i], none, caseSensitive.IsTruthy()); err != nil {
			return undefined, err
		}
		both[i] = jinja.NewList([]jinja.Value{keys[i], raw[i], it})
	}
	if both, err = s.sorted(both, keys, false); err != nil {
		return undefined, err
	}
	var groups []jinja.Value
	var members []jinja.Value
	for i, b := range both {
		members = append(members, b.AsList().Get(2))
		if i+1 < len(both) {
			same, err := s.equal(b.AsList().Get(0), both[i+1].AsList().Get(0), 0)
			if err != nil {
				return undefined, err
			}
			if same {
				continue
			}
		}
		first := both[i+1-len(members)].AsList().Get(1)
		groups = append(groups, s.group(first, members))
		members = nil
	}
	return s.list(groups)
}

// group is a pair that can also be asked for .grouper and .list.
func (s *state) group(key jinja.Value, members []jinja.Value) jinja.Value {
	return s.listOf(isGroup, []jinja.Value{key, jinja.NewList(members)})
}

func batch(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
	count, fill := p.required("linecount"), p.optional("fill_with", none)
	items, err := s.iterate(v)
	n, ok := asInt(count)
	if err = firstError(err, p.done()); err != nil {
		return undefined, err
	}
	if !ok || n < 1 || n > maxRange {
		return undefined, failf("batch needs a positive count")
	}
	var out []jinja.Value
	for group := range slices.Chunk(items, int(n)) {
		group = slices.Clone(group)
		for !fill.IsNone() && len(group) < int(n) {
			group = append(group, fill)
		}
		out = append(out, jinja.NewList(group))
	}
	return s.generator(out)
}

func sliceFilter(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
	count, fill := p.required("slices"), p.optional("fill_with", none)
	items, err := s.iterate(v)
	n, ok := asInt(count)
	if err = firstError(err, p.done()); err != nil {
		return undefined, err
	}
	if !ok || n < 1 || n > maxRange {
		return undefined, failf("slice needs a positive count")
	}
	per, extra := len(items)/int(n), len(items)%int(n)
	var out []jinja.Value
	at := 0
	for i := range int(n) {
		size := per
		if i < extra {
			size++
		}
		group := slices.Clone(items[at : at+size])
		at += size
		if !fill.IsNone() && extra > 0 && i >= extra {
			group = append(group, fill)
		}
		out = append(out, jinja.NewList(group))
	}
	return s.generator(out)
}

func sum(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
	attribute, total := p.optional("attribute", none), p.optional("start", jinja.NewInt(0))
	items, err := s.iterate(v)
	if err = firstError(err, p.done()); err != nil {
		return undefined, err
	}
	if _, ok := s.asText(total); ok {
		return undefined, failf("sum() can't sum strings [use ''.join(seq) instead]")
	}
	for _, item := range items {
		if item, err = s.path(item, attribute, undefined); err == nil {
			total, err = s.add(total, item)
		}
		if err != nil {
			return undefined, err
		}
	}
	return total, nil
}

func extremum(direction int) filter {
	return func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
		caseSensitive, attribute := p.optional("case_sensitive", jinja.NewBool(false)), p.optional("attribute", none)
		items, err := s.iterate(v)
		if err = firstError(err, p.done()); err != nil || len(items) == 0 {
			return undefined, err
		}
		keys, err := s.keysOf(items, attribute, caseSensitive.IsTruthy())
		if err != nil {
			return undefined, err
		}
		best := 0
		for i := range items {
			c, ordered, err := s.compare(keys[i], keys[best], "<", 0)
			if err != nil {
				return undefined, err
			}
			if ordered && cmp.Compare(c, 0) == direction {
				best = i
			}
		}
		return items[best], nil
	}
}

func mapFilter(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
	items, err := s.iterate(v)
	if err != nil {
		return undefined, err
	}
	apply := func(item jinja.Value) (jinja.Value, error) {
		name, _ := s.asText(p.a[0])
		return s.filter(s.marks.plain(name), append(args{item}, p.a[1:]...), p.k)
	}
	if attribute, ok := p.k["attribute"]; ok && len(p.a) == 0 {
		fallback, ok := p.k["default"]
		if !ok {
			fallback = undefined
		}
		apply = func(item jinja.Value) (jinja.Value, error) { return s.path(item, attribute, fallback) }
	} else if len(p.a) == 0 {
		return undefined, failf("map requires a filter argument")
	}
	out := make([]jinja.Value, len(items))
	for i, item := range items {
		if out[i], err = apply(item); err != nil {
			return undefined, err
		}
	}
	return s.generator(out)
}

// selection is select, reject, selectattr and rejectattr.
func selection(byAttribute, keep bool) filter {
	return func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
		items, err := s.iterate(v)
		if err != nil {
			return undefined, err
		}
		rest, attribute := p.a, none
		if byAttribute {
			if len(rest) == 0 {
				return undefined, failf("missing parameter for attribute name")
			}
			attribute, rest = rest[0], rest[1:]
		}
		var out []jinja.Value
		for _, item := range items {
			value, err := s.path(item, attribute, undefined)
			if err != nil {
				return undefined, err
			}
			ok := value.IsTruthy()
			if len(rest) > 0 {
				name, _ := s.asText(rest[0])
				if ok, err = s.test(s.marks.plain(name), append(args{value}, rest[1:]...)); err != nil {
					return undefined, err
				}
			}
			if ok == keep {
				out = append(out, item)
			}
		}
		return s.generator(out)
	}
}
