package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// errNoEnd: a stream stopped with neither a finish_reason nor [DONE].
var errNoEnd = errors.New("the stream ended without a final event")

// maxEvent bounds one event of a stream.
const maxEvent = 16 << 20

var buffers = sync.Pool{New: func() any { b := make([]byte, 8<<10); return &b }}

// answer gathers a stream into a record.
type answer struct {
	r        *Record
	event    event
	counter  *atomic.Int64 // of all tokens, for who watches
	done     bool          // [DONE]
	bare     []Chunk       // chunks without text, should there be no others
	lastSeen int           // tokens that continuous usage has told so far
}

// read takes in server-sent events until the stream ends. The time of a chunk is when its last byte was read, before
// anything is parsed.
func (a *answer) read(body io.Reader) error {
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	n := 0          // bytes of the buffer that are filled
	var data []byte // of the event so far, its lines joined; nil: none yet
	for {
		buf := *pooled
		if n == len(buf) {
			if n >= maxEvent {
				return fmt.Errorf("an event of more than %d bytes", maxEvent)
			}
			buf = append(buf, make([]byte, len(buf))...)
			*pooled = buf
		}
		m, err := body.Read(buf[n:])
		at := Chunk{At: a.r.now()}
		if n += m; err == io.EOF {
			buf = append(buf[:n], "\n\n"...) // some servers leave out the last empty line
			*pooled, n = buf[:cap(buf)], n+2
		}
		from := 0
		for {
			length := bytes.IndexByte(buf[from:n], '\n')
			if length < 0 {
				break
			}
			line := bytes.TrimSuffix(buf[from:from+length], []byte{'\r'})
			from += length + 1
			value, isData := bytes.CutPrefix(line, []byte("data:"))
			switch {
			case len(line) == 0 && data != nil:
				if err := a.take(data, at); err != nil {
					return err
				}
				data = nil
			case isData && data == nil:
				data = bytes.TrimPrefix(value, []byte{' '})
			case isData:
				data = slices.Concat(data, []byte{'\n'}, bytes.TrimPrefix(value, []byte{' '}))
			case bytes.HasPrefix(line, []byte("error:")): // llama-server
				return fmt.Errorf("error event: %s", shorten(line[len("error:"):]))
			}
		}
		if err == io.EOF {
			if !a.done && a.r.Finish == "" {
				return errNoEnd
			}
			return nil
		}
		if err != nil {
			return err
		}
		if from > 0 {
			data = bytes.Clone(data) // the buffer moves under it; mostly there is none
			n = copy(buf, buf[from:n])
		}
	}
}

// take counts one event.
func (a *answer) take(data []byte, at Chunk) error {
	if string(data) == "[DONE]" {
		a.done = true
		return nil
	}
	e := &a.event
	if err := e.parse(data); err != nil {
		return fmt.Errorf("%w: %s", err, shorten(data))
	}
	if e.err != nil {
		return fmt.Errorf("error event: %s", shorten(e.err))
	}
	r := a.r
	if e.finish != "" {
		r.Finish = e.finish
	}
	if e.usage {
		r.PromptTokens, r.CachedTokens, r.Counted = e.prompt, e.cached, true
		r.Tokens = e.completion
	}
	if !e.choices {
		return nil
	}
	// A count beside the finish is of the whole answer where the chunks before had none.
	final := e.usage && e.finish != "" && a.lastSeen == 0 && len(r.Chunks) > 0
	switch more := e.completion - a.lastSeen; {
	case e.usage && more > 0 && !final:
		at.Tokens, a.lastSeen = int32(more), e.completion
	case e.output && (!e.usage || final):
		at.Tokens = 1
	case e.output || e.finish == "" && !e.usage:
		a.bare = append(a.bare, at)
		return nil
	default:
		return nil
	}
	r.Chunks = append(r.Chunks, at)
	a.counter.Add(int64(at.Tokens))
	return nil
}

// settle makes the counts of chunks and of the whole agree once the stream has ended.
func (a *answer) settle() {
	r := a.r
	r.Text = string(a.event.text)
	if len(r.Chunks) == 0 && (r.Tokens > 0 || len(a.event.text) > 0) {
		r.Chunks = a.bare // tokens that have no text, such as marks, or text without a count
	}
	sum := 0
	for i := range r.Chunks {
		c := &r.Chunks[i]
		c.Tokens = max(c.Tokens, 1)
		sum += int(c.Tokens)
	}
	n := len(r.Chunks)
	switch {
	case n == 0:
	case r.Tokens > 0 && a.lastSeen == 0: // a count of the whole alone: as evenly as may be
		for i := range r.Chunks {
			r.Chunks[i].Tokens = int32(r.Tokens*(i+1)/n - r.Tokens*i/n)
		}
	default:
		r.Chunks[n-1].Tokens += int32(max(0, r.Tokens-sum))
		r.Tokens = max(r.Tokens, sum)
	}
}

// shorten is a text for a reason.
func shorten(b []byte) string {
	const most = 300
	s := strings.ToValidUTF8(string(bytes.TrimSpace(b)), "?")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
