package chat

import (
	"fmt"
	"slices"
	"strings"
)

// Clients send conversations in orders that templates were not written for: some templates raise
// an error, others leave a message out without a word. The rule, in a server's mode:
//
// A conversation goes to the template as it was sent. Only when the template refuses that order or
// leaves out the text of a message does the conversation get another order, in which every text
// keeps its place:
//
//  1. A developer is a system, a function a tool.
//  2. What cannot stand where it is speaks as the user: a system message that is not at the start,
//     a tool's result without a call before it; and, only if the template still refuses, every
//     tool's result or every system message.
//  3. Messages of one role in a row become one, an empty line between their texts. Tool results
//     stay apart, and so does what follows a call.
//  4. An empty user message goes before an assistant who would speak first, or alone after a system.
//
// When no order will do, the error is the template's own, or says whose text it leaves out.

// order says what speaks as the user beside what must.
type order struct{ systems, tools bool }

var orders = []order{{}, {tools: true}, {systems: true}, {systems: true, tools: true}}

// reorder puts a conversation into the order of the rule.
func reorder(messages []Message, o order) []Message {
	var out []Message
	start, called := true, false // only system messages so far; a call has no user's turn after it
	for _, m := range messages {
		role := m.Role()
		switch role {
		case "developer":
			role = "system"
		case "function":
			role = "tool"
		}
		switch role {
		case "system":
			if !start || o.systems {
				role = "user"
			}
		case "tool":
			if !called || o.tools {
				role = "user"
			}
		case "assistant":
			called = calls(m)
		case "user":
			called = false
		}
		start = start && role == "system"
		if role != m.Role() {
			m = Message{m.Fields.with("role", role)}
		}
		if n := len(out); n > 0 && out[n-1].Role() == role && role != "tool" && !calls(out[n-1]) {
			out[n-1] = merge(out[n-1], m)
			continue
		}
		if role == "assistant" && (len(out) == 0 || out[len(out)-1].Role() == "system") {
			out = append(out, Message{Object{{"role", "user"}, {"content", ""}}})
		}
		out = append(out, m)
	}
	if out[len(out)-1].Role() == "system" {
		out = append(out, Message{Object{{"role", "user"}, {"content", ""}}})
	}
	return out
}

// calls reports whether a message calls tools.
func calls(m Message) bool {
	v, _ := m.Fields.Get("tool_calls")
	list, _ := v.([]any)
	return len(list) > 0
}

// merge makes one message of two: their texts and reasoning, and the calls of the second.
func merge(a, b Message) Message {
	a, b = joinParts(a), joinParts(b)
	out := a.Fields
	for _, key := range append([]string{"content"}, reasoningNames...) {
		first, _ := a.Fields.Get(key)
		second, _ := b.Fields.Get(key)
		x, _ := first.(string)
		y, _ := second.(string)
		if x != "" && y != "" {
			x += "\n\n"
		}
		if first != nil || second != nil {
			out = out.with(key, x+y)
		}
	}
	for _, m := range b.Fields {
		if _, ok := out.Get(m.Key); !ok {
			out = out.with(m.Key, m.Value)
		}
	}
	return Message{out}
}

// usual reports whether a conversation has an order that the template is known to take.
func (t *Template) usual(messages []Message) bool {
	if len(messages) > 1 && messages[0].Role() == "system" && t.systems {
		messages = messages[1:]
	}
	for i, m := range messages {
		if want := [2]string{"user", "assistant"}[i%2]; m.Role() != want || calls(m) {
			return false
		}
	}
	return true
}

// samples are the messages that show what a template does with an order: of turns that are alike the
// first and, were it the conversation's last, that one; of answers in a row that are alike the first
// and the last. A turn is what follows a user's message; answers are alike if they have as many calls
// and results. Long conversations of agents come down to a few messages.
func samples(messages []Message) []int {
	var kept []int
	seen := map[string]bool{}
	for begin := 0; begin < len(messages); {
		var turn []int
		shape, last, run := "", "", 0 // of the turn; of its last answer; how many like it
		i := begin
		for i == begin || i < len(messages) && messages[i].Role() != "user" {
			from, answer := i, kind(messages[i])
			for i++; i < len(messages) && messages[i].Role() == "tool"; i++ {
				answer += kind(messages[i])
			}
			if run++; answer != last {
				last, run = answer, 1
			}
			if run > 2 {
				turn = turn[:len(turn)-(i-from)]
			} else {
				shape += answer + " "
			}
			for ; from < i; from++ {
				turn = append(turn, from)
			}
		}
		if begin = i; !seen[shape] || i == len(messages) {
			kept = append(kept, turn...)
		}
		seen[shape] = true
	}
	return kept
}

// kind is what of a message a template may decide by, but for its texts.
func kind(m Message) string {
	v, _ := m.Fields.Get("tool_calls")
	list, _ := v.([]any)
	return fmt.Sprintf("%s/%T/%d", m.Role(), m.Content(), len(list))
}

// leftOut finds out, with other texts in their places, whose text the template leaves out of a
// conversation in this order: the index of the first such message, or -1. What an assistant says
// beside a call may go: some templates hold it to be reasoning.
func (t *Template) leftOut(messages []Message, o Options, ops *int) (int, error) {
	o.ContinueFinalMessage = false
	kept := samples(messages)
	probe := make([]Message, len(kept))
	words := make([]string, len(kept)) // "" where nothing need appear
	for i, at := range kept {
		m := messages[at]
		word := fmt.Sprintf("oiprobe%dq", i)
		fields := m.Fields
		switch c := m.Content().(type) {
		case string:
			if strings.TrimSpace(c) == "" {
				word = ""
			}
			fields = fields.with("content", word)
		case []any:
			fields = fields.with("content", []any{Object{{"type", "text"}, {"text", word}}})
		default:
			word = ""
		}
		if !calls(m) {
			words[i] = word
		}
		probe[i] = Message{fields}
	}
	p, err := t.readable(probe, o, ops)
	if err != nil {
		return -1, err
	}
	text := strings.ToLower(p.Text)
	if i := slices.IndexFunc(words, func(w string) bool { return !strings.Contains(text, w) }); i >= 0 {
		return kept[i], nil
	}
	return -1, nil
}

// ordered renders a conversation as it was sent or, where that will not do, by the rule.
func (t *Template) ordered(messages []Message, o Options, ops *int) (Prompt, error) {
	lost := -1
	if !t.usual(messages) {
		lost, _ = t.leftOut(messages, o, ops) // where this fails rendering shows why
	}
	var refused error
	if lost >= 0 {
		m := messages[lost]
		refused = errorAt(fmt.Sprintf("messages[%d]", lost), "the chat template leaves out the text of a message of role %s in this place", m.Role())
	} else {
		p, err := t.readable(messages, o, ops)
		if err == nil {
			return p, nil
		}
		refused = err
	}
	for _, order := range orders {
		other := reorder(messages, order)
		if lost, err := t.leftOut(other, o, ops); err != nil || lost >= 0 {
			continue
		}
		if p, err := t.readable(other, o, ops); err == nil {
			return p, nil
		}
	}
	return Prompt{}, refused
}
