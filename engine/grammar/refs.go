package grammar

import (
	"net/url"
	"strconv"
	"strings"
)

// index finds the schemas that have a name, and what references are relative to.
func (c *compiler) index() {
	if c.uris != nil {
		return
	}
	c.uris, c.bases, c.dynamic = map[string]*value{}, map[*value]*url.URL{}, map[string]int{}
	var walk func(v *value, base *url.URL)
	walk = func(v *value, base *url.URL) {
		if id := v.member("$id"); id != nil && id.kind == '"' && !(c.alone && v.member("$ref") != nil) {
			u, err := url.Parse(id.text)
			if err != nil {
				fail(id.pointer, "%q is no URI", shortened(id.text))
			}
			if u = base.ResolveReference(u); u.Fragment != "" { // of draft 7: an anchor
				c.uris[u.String()] = v
			} else {
				base = u
				c.uris[strings.TrimSuffix(u.String(), "#")] = v
			}
		}
		for _, name := range []string{"$anchor", "$dynamicAnchor"} {
			if a := v.member(name); a != nil && a.kind == '"' {
				u := *base
				u.Fragment = a.text
				c.uris[u.String()] = v
				if name == "$dynamicAnchor" {
					c.dynamic[a.text]++
				}
			}
		}
		c.bases[v] = base
		for i, item := range v.items {
			if v.kind == '{' && (v.names[i] == "enum" || v.names[i] == "const" || v.names[i] == "default" || v.names[i] == "examples") {
				continue
			}
			walk(item, base)
		}
	}
	walk(c.root, &url.URL{})
	c.uris[""] = c.root
}

// resolve finds what a $ref points to: a JSON pointer into this schema, or an $anchor or $id of it. A $dynamicRef is one where only one
// $dynamicAnchor has its name, so that it makes no difference where it is come from.
func (c *compiler) resolve(ref *value) *value {
	if ref.kind != '"' {
		fail(ref.pointer, "want a string")
	}
	c.index()
	u, err := url.Parse(ref.text)
	base := c.bases[ref]
	if err != nil || base == nil {
		fail(ref.pointer, "%q is no reference", shortened(ref.text))
	}
	fragment := u.EscapedFragment()
	u = base.ResolveReference(u)
	u.Fragment, u.RawFragment = "", ""
	v := c.uris[u.String()]
	if v == nil {
		fail(ref.pointer, "%q is not in this schema, and no other is read", shortened(ref.text))
	}
	switch {
	case strings.HasSuffix(ref.pointer, "/$recursiveRef") && c.anchored("$recursiveAnchor"):
		fail(ref.pointer, "keyword \"$recursiveRef\" is not supported together with $recursiveAnchor")
	case fragment != "" && fragment[0] != '/':
		u.Fragment = fragment
		if v = c.uris[u.String()]; v == nil {
			fail(ref.pointer, "%q is not in this schema", shortened(ref.text))
		}
		if strings.HasSuffix(ref.pointer, "/$dynamicRef") && c.dynamic[fragment] > 1 && v.member("$dynamicAnchor") != nil {
			fail(ref.pointer, "keyword \"$dynamicRef\" is supported where one $dynamicAnchor alone has its name")
		}
		return v
	case fragment == "":
		return v
	}
	for _, step := range strings.Split(fragment[1:], "/") {
		if u, err := url.PathUnescape(step); err == nil {
			step = u
		}
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		var next *value
		switch v.kind {
		case '{':
			next = v.member(step)
		case '[':
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(v.items) {
				next = v.items[i]
			}
		}
		if next == nil {
			fail(ref.pointer, "%q is not in this schema", shortened(ref.text))
		}
		v = next
	}
	return v
}

// anchored reports whether some schema has the keyword, as true.
func (c *compiler) anchored(name string) bool {
	for v := range c.bases {
		if a := v.member(name); a != nil && a.kind == 't' {
			return true
		}
	}
	return false
}
