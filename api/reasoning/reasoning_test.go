package reasoning

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var (
	think   = Format{Open: "<think>", Close: "</think>"}
	spelled = Format{Open: "<think>", Close: "</think>", Spelled: true}
	gemma   = Format{Open: "<|channel>", Close: "<channel|>", Label: "thought\n"}
)

// pieces makes a mark of each text in marks, and of the rest pieces of at most n bytes at random.
func pieces(answer string, f Format, n func() int) []Piece {
	var out []Piece
	text := func(t string) {
		for t != "" {
			size := min(n(), len(t))
			out = append(out, Piece{Text: t[:size]})
			t = t[size:]
		}
	}
	for !f.Spelled {
		at, mark := -1, ""
		for _, m := range []string{f.Open, f.Close, "<tool_call>"} {
			if i := strings.Index(answer, m); i >= 0 && (at < 0 || i < at) {
				at, mark = i, m
			}
		}
		if at < 0 {
			break
		}
		text(answer[:at])
		out = append(out, Piece{Text: mark, Mark: true})
		answer = answer[at+len(mark):]
	}
	text(answer)
	return out
}

// split joins the parts of an answer.
func split(t interface{ Fatalf(string, ...any) }, s *Splitter, all []Piece, cut bool) (reasoning, content string) {
	add := func(parts []Part) {
		for _, p := range parts {
			switch {
			case p.Text == "":
				t.Fatalf("an empty part in %+v", parts)
			case p.Reasoning:
				reasoning += p.Text
			default:
				content += p.Text
			}
		}
	}
	for _, p := range all {
		add(s.Push(p))
	}
	add(s.Finish(cut))
	return reasoning, content
}

func whole() int { return 1 << 20 }

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		name               string
		format             Format
		inside             bool
		answer             string
		reasoning, content string
	}{
		{"no reasoning", think, false, " \n Hello <b> \n", "", " \n Hello <b> \n"},
		{"nothing", think, false, "", "", ""},
		{"white space alone", think, false, " \n", "", " \n"},
		{"the model opens", think, false, "\n<think>\nhm\n\nhm \n</think>\n\nHello\n", "hm\n\nhm", "Hello\n"},
		{"the prompt opens", think, true, "hm\n</think>\n\nHello", "hm", "Hello"},
		{"both open", think, true, "<think>\nhm</think>Hello", "hm", "Hello"},
		{"never closed", think, true, "hm, hm\n", "hm, hm", ""},
		{"opened, never closed", think, false, "<think>hm", "hm", ""},
		{"closed twice", think, true, "hm</think>\n</think>\n\nHello", "hm", "Hello"},
		{"closed again later", think, true, "hm</think>Hello</think> you", "hm", "Hello you"},
		{"closed without opening", think, false, "</think>\n\nHello", "", "Hello"},
		{"empty block", think, false, "<think>\n\n</think>\n\nHello", "", "Hello"},
		{"empty block, no content", think, false, "<think>\n\n</think>\n\n", "", ""},
		{"two blocks", think, false, "<think>one</think>\nA\n<think>two</think>\nB", "one\ntwo", "A\n\nB"},
		{"two blocks without content", think, false, "<think>one</think>\n<think>two</think>\nB", "one\ntwo", "B"},
		{"an open in reasoning", think, true, "a<think>b</think>c", "ab", "c"},
		{"a tool call in reasoning", think, true, "hm \n<tool_call>{}", "hm \n<tool_call>{}", ""},
		{"a tool call after it", think, true, "hm</think>\n\n<tool_call>{}", "hm", "<tool_call>{}"},
		{"a tool call alone", think, false, "\n<tool_call>{}", "", "\n<tool_call>{}"},

		{"spelled", spelled, false, "<think>\nhm\n</think>\n\nHello", "hm", "Hello"},
		{"spelled, look-alikes", spelled, true, "a </thin <think</think>b < c </ d<", "a </thin <think", "b < c </ d<"},
		{"spelled, closed twice", spelled, true, "a</think></think>b", "a", "b"},

		{"channel", gemma, false, "<|channel>thought\nhm\n<channel|>Hello", "hm", "Hello"},
		{"channel in the prompt", gemma, true, "hm<channel|>Hello", "hm", "Hello"},
		{"channel without a label", gemma, false, "<|channel>hm<channel|>Hello", "hm", "Hello"},
		{"channel with a word like the label", gemma, false, "<|channel>thoughtful<channel|>Hello", "thoughtful", "Hello"},
		{"channel with only a label", gemma, false, "<|channel>thought\n<channel|>Hello", "", "Hello"},
		{"channel cut in its label", gemma, false, "<|channel>thou", "", ""},
		{"channel twice", gemma, false, "<|channel>thought\na<channel|>b<|channel>thought\nc<channel|>d", "a\nc", "bd"},
	} {
		for _, n := range []func() int{whole, func() int { return 1 }, func() int { return 3 }} {
			r, content := split(t, New(c.format, c.inside, false), pieces(c.answer, c.format, n), false)
			if r != c.reasoning || content != c.content {
				t.Errorf("%s: got %q and %q, want %q and %q", c.name, r, content, c.reasoning, c.content)
			}
		}
	}
}

// The same characters are no mark where the vocabulary has a token for it.
func TestSpelledOutMarksAreText(t *testing.T) {
	s := New(think, true, false)
	r, content := split(t, s, []Piece{{Text: "He asks what </think> means."}, {Text: "</think>", Mark: true}, {Text: "It closes <think>."}}, false)
	if r != "He asks what </think> means." || content != "It closes <think>." {
		t.Errorf("got %q and %q", r, content)
	}
}

func TestCutInsideAMark(t *testing.T) {
	for answer, want := range map[string]string{"hm</thi": "hm", "hm</": "hm", "a <": "a", "hm": "hm", "hm\n</think": "hm"} {
		for _, n := range []func() int{whole, func() int { return 1 }} {
			if r, c := split(t, New(spelled, true, false), pieces(answer, spelled, n), true); r != want || c != "" {
				t.Errorf("%q: got %q and %q, want %q", answer, r, c, want)
			}
		}
	}
	for answer, want := range map[string]string{"a </thi": "a ", "a <": "a <"} {
		if r, c := split(t, New(spelled, false, false), pieces(answer, spelled, whole), true); r != "" || c != want {
			t.Errorf("%q: got %q and %q, want %q", answer, r, c, want)
		}
	}
}

// An answer that goes on with a text keeps the white space it begins with.
func TestContinued(t *testing.T) {
	if r, c := split(t, New(think, true, true), pieces(" so</think>\n Hello", think, whole), false); r != " so" || c != "Hello" {
		t.Errorf("reasoning: got %q and %q", r, c)
	}
	if r, c := split(t, New(think, false, true), pieces("\n Hello", think, whole), false); r != "" || c != "\n Hello" {
		t.Errorf("content: got %q and %q", r, c)
	}
}

var words = []string{"<think>", "</think>", "<|channel>", "<channel|>", "thought\n", "thought", "<tool_call>", " ", "\n", "<", "</", "<th", "ink>", "a", "bé", "thou", "|>", "\u2003"}

// However an answer is cut, the split is that of the whole, and no mark is in it.
func TestAnyCutGivesTheSameSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom([]Format{think, spelled, gemma, {Open: "<|channel>", Close: "<channel|>", Label: "thought\n", Spelled: true}}).Draw(t, "format")
		answer := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 12).Draw(t, "answer"), "")
		checkCuts(t, f, answer, rapid.Bool().Draw(t, "inside"), rapid.Bool().Draw(t, "continued"), rapid.Bool().Draw(t, "cut"),
			func() int { return rapid.IntRange(1, 9).Draw(t, "piece") })
	})
}

func checkCuts(t interface{ Fatalf(string, ...any) }, f Format, answer string, inside, continued, cut bool, n func() int) {
	r, c := split(t, New(f, inside, continued), pieces(answer, f, whole), cut)
	// Pieces hold whole characters in an answer; so do parts, whatever the pieces.
	r2, c2 := split(t, New(f, inside, continued), wholeCharacters(pieces(answer, f, n)), cut)
	if r != r2 || c != c2 {
		t.Fatalf("%q inside %v: whole %q and %q, cut %q and %q", answer, inside, r, c, r2, c2)
	}
	// A mark may come together from what stood around one that was taken out, but only there.
	if !strings.Contains(strings.NewReplacer(f.Open, "", f.Close, "").Replace(answer), f.Open[1:]) {
		if strings.Contains(c, f.Open) || strings.Contains(r, f.Open) {
			t.Fatalf("%q: a mark is in %q or %q", answer, r, c)
		}
	}
	// Nothing but marks, labels and white space is lost.
	if !cut {
		if got, want := letters(r+c), letters(strings.NewReplacer(f.Open, "", f.Close, "").Replace(answer)); f.Label == "" && len(got) != len(want) {
			t.Fatalf("%q: %q and %q lack something", answer, r, c)
		}
	}
}

// letters leaves out white space.
func letters(s string) string { return strings.Join(strings.Fields(s), "") }

// wholeCharacters moves the cuts to the borders of characters.
func wholeCharacters(in []Piece) []Piece {
	var out []Piece
	held := ""
	for _, p := range in {
		if p.Mark {
			out = append(out, Piece{Text: held}, p)
			held = ""
			continue
		}
		held += p.Text
		n := len(held)
		for n > 0 && strings.ToValidUTF8(held[:n], "\ufffd") != held[:n] {
			n--
		}
		out = append(out, Piece{Text: held[:n]})
		held = held[n:]
	}
	return append(out, Piece{Text: held})
}

func FuzzSplitter(f *testing.F) {
	f.Add("<think>hm</think>\n\nHello", true, false, false, uint8(3))
	f.Add("a</think></think><|channel>thought\nb<channel|>", false, true, true, uint8(1))
	f.Fuzz(func(t *testing.T, answer string, inside, continued, cut bool, size uint8) {
		answer = strings.ToValidUTF8(answer, "\ufffd")
		for _, format := range []Format{think, spelled, gemma} {
			n := int(size % 9)
			checkCuts(t, format, answer, inside, continued, cut, func() int { n = (n*5 + 3) % 9; return n + 1 })
		}
	})
}
