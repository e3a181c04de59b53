package load

import (
	"encoding/json"
	"encoding/json/jsontext"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Request is one request of a load. It is not changed once it is sent.
type Request struct {
	Due   time.Duration // since the beginning of the run; open loop only
	Model string        // "": the Client's
	Tag   string        // anything; Record has it

	// Messages are the conversation so far, the last of them to be answered. A completion's prompt is their contents
	// one after the other.
	Messages []Message
	// IDs, if not nil, are the prompt of a completion instead.
	IDs []int32

	PromptTokens int            // how long the prompt is meant to be; 0: unknown
	MaxTokens    int            // of the answer; 0: the server's default
	Extra        map[string]any // fields of the body, over the Client's

	// Then is the next turn: its Messages come behind these and the answer, Think after the answer's end. A turn that
	// was not answered has no next.
	Then  *Request
	Think time.Duration // before this turn, if it is not the first
}

// Message is one message of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// User is a conversation of one message.
func User(text string) []Message { return []Message{{Role: "user", Content: text}} }

// next is the turn after q, which was answered with text.
func (q *Request) next(text string) *Request {
	n := *q.Then
	n.Messages = append(append(slices.Clip(q.Messages), Message{Role: "assistant", Content: text}), n.Messages...)
	return &n
}

// At gives requests the times at which they are due. It ends with the shorter of the two.
func At(requests iter.Seq[*Request], times iter.Seq[time.Duration]) iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		next, stop := iter.Pull(times)
		defer stop()
		for q := range requests {
			due, ok := next()
			if !ok {
				return
			}
			timed := *q
			timed.Due = due
			if !yield(&timed) {
				return
			}
		}
	}
}

// First are the first n of a sequence.
func First[T any](n int, all iter.Seq[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		i := 0
		for v := range all {
			if i == n || !yield(v) {
				return
			}
			if i++; i == n {
				return
			}
		}
	}
}

// usageWanted is what a stream is asked to say of its tokens.
type usageWanted int

const (
	usageContinuous usageWanted = iota // in every chunk, and at the end
	usageFinal                         // at the end
	usageNone                          // the server refuses stream_options
)

// body is q as JSON. A field of extra replaces one of the same name.
func (q *Request) body(model string, chat bool, usage usageWanted, extra map[string]any) ([]byte, error) {
	if len(q.Extra) > 0 {
		extra = maps.Clone(extra)
		if extra == nil {
			extra = map[string]any{}
		}
		maps.Copy(extra, q.Extra)
	}
	if q.Model != "" {
		model = q.Model
	}
	size := 256 + 7*len(q.IDs)
	for _, m := range q.Messages {
		size += len(m.Content) + 40
	}
	b := append(make([]byte, 0, size), '{')
	var err error
	field := func(name string, value func([]byte) ([]byte, error)) {
		if _, replaced := extra[name]; replaced || err != nil {
			return
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, name), ':')
		if b, err = value(b); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	raw := func(s string) func([]byte) ([]byte, error) {
		return func(b []byte) ([]byte, error) { return append(b, s...), nil }
	}
	field("model", func(b []byte) ([]byte, error) { return jsontext.AppendQuote(b, model) })
	if chat {
		field("messages", q.appendMessages)
	} else {
		field("prompt", q.appendPrompt)
	}
	if q.MaxTokens > 0 {
		field("max_tokens", raw(strconv.Itoa(q.MaxTokens)))
	}
	field("stream", raw("true"))
	switch usage {
	case usageContinuous:
		field("stream_options", raw(`{"include_usage":true,"continuous_usage_stats":true}`))
	case usageFinal:
		field("stream_options", raw(`{"include_usage":true}`))
	}
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		value, err := json.Marshal(extra[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		if b, err = jsontext.AppendQuote(b, name); err != nil {
			return nil, fmt.Errorf("field %q: %w", name, err)
		}
		b = append(append(b, ':'), value...)
	}
	return append(b, '}'), nil
}

func (q *Request) appendMessages(b []byte) ([]byte, error) {
	b = append(b, '[')
	var err error
	for i, m := range q.Messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"role":`...)
		if b, err = jsontext.AppendQuote(b, m.Role); err != nil {
			return b, err
		}
		b = append(b, `,"content":`...)
		if b, err = jsontext.AppendQuote(b, m.Content); err != nil {
			return b, err
		}
		b = append(b, '}')
	}
	return append(b, ']'), nil
}

func (q *Request) appendPrompt(b []byte) ([]byte, error) {
	if q.IDs != nil {
		b = append(b, '[')
		for i, id := range q.IDs {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(id), 10)
		}
		return append(b, ']'), nil
	}
	if len(q.Messages) == 1 {
		return jsontext.AppendQuote(b, q.Messages[0].Content)
	}
	var text []byte
	for _, m := range q.Messages {
		text = append(text, m.Content...)
	}
	return jsontext.AppendQuote(b, text)
}
