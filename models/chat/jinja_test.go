package chat

import (
	"encoding/json"
	"testing"
)

// TestJinja compares small templates with what Python's jinja2 makes of them in the reference
// library's settings (testdata/make_jinja.py): equal text, or an error where it raises.
func TestJinja(t *testing.T) {
	var golden struct {
		Data  json.RawMessage
		Cases []struct {
			Template string
			Text     *string
			Raises   string
		}
	}
	readJSON(t, "testdata/jinja.json", &golden)
	data, err := ParseObject(golden.Data)
	if err != nil {
		t.Fatal(err)
	}
	var messages []Message
	var kwargs Object
	for _, m := range data {
		switch m.Key {
		case "messages":
			for _, o := range m.Value.([]any) {
				messages = append(messages, Message{o.(Object)})
			}
		case "tools", "documents", "add_generation_prompt":
		default:
			kwargs = append(kwargs, m)
		}
	}
	if len(golden.Cases) < 500 {
		t.Fatalf("%d cases", len(golden.Cases))
	}
	var all []string // every character may begin a control token
	for c := '!'; c <= '~'; c++ {
		all = append(all, string(c)+"\u2603")
	}
	for _, special := range [][]string{{"<b>", "'x"}, all} {
		for _, c := range golden.Cases {
			got := ""
			tmpl, err := Compile(c.Template, Tokens{Special: special})
			if err == nil {
				var p Prompt
				p, err = tmpl.Render(messages, Options{AddGenerationPrompt: true, Kwargs: kwargs, AsGiven: true, Now: goldenClock})
				got = p.Text
				if err == nil && joinedSegments(p) != got {
					t.Errorf("%s: segments join to %q, not %q", c.Template, joinedSegments(p), got)
				}
			}
			switch {
			case c.Text == nil && err == nil:
				t.Errorf("%s: got %q, reference raises %s", c.Template, got, c.Raises)
			case c.Text != nil && err != nil && refusedOnPurpose[c.Template]:
			case c.Text != nil && err != nil:
				t.Errorf("%s: %v, want %q", c.Template, err, *c.Text)
			case c.Text != nil && got != *c.Text:
				t.Errorf("%s:\ngot  %q\nwant %q", c.Template, got, *c.Text)
			}
		}
	}
}

// refusedOnPurpose are templates that the reference renders and this package refuses, rather than
// render otherwise: see the package's limits.
var refusedOnPurpose = map[string]bool{
	"{{ d.items }}":           true, // prints an address
	"{{ n.real is defined }}": true,
	"{{ self }}":              true,
	"{{ lipsum is defined }}": true,
	"{{ {1: 2} }}":            true, // keys are strings here
}
