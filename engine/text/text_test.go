package text

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// cut calls f with the pieces of b, cut at random places; pieces may be empty.
func cut(r *rand.Rand, b []byte, f func([]byte)) {
	for len(b) > 0 {
		n := r.IntN(min(len(b), 6) + 1)
		f(b[:n])
		b = b[n:]
	}
}

// oneShot decodes whole bytes by the definition of maximal subparts: U+FFFD for each longest
// prefix of a well-formed character that cannot go on, or for one byte. An incomplete end is
// dropped.
func oneShot(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n == 3 {
			out.Write(b[:n])
			b = b[n:]
			continue
		}
		n := 1
		for n < len(b) && prefixOfCharacter(b[:n+1]) {
			n++
		}
		if n == len(b) && prefixOfCharacter(b) {
			break
		}
		out.WriteRune(utf8.RuneError)
		b = b[n:]
	}
	return out.String()
}

// prefixOfCharacter tries completions: is b a proper prefix of some character's bytes?
func prefixOfCharacter(b []byte) bool {
	for first := range 64 {
		full := append(append([]byte(nil), b...), byte(0x80+first), 0x80, 0x80)
		if r, n := utf8.DecodeRune(full); n > len(b) && (r != utf8.RuneError || n == 3) {
			return true
		}
	}
	return false
}

func TestAssemblerEqualsOneShotHoweverCut(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	pool := []string{"a", "é", "€", "😀", "한", "\u00a0", "�", "\xff", "\xc0", "\xe2\x82", "\xf0\x9f\x98", "\xed\xa0\x80", "\xf4\x90", "\x80", "\xe0\x80", "\xf0\x80\x80"}
	for range 2000 {
		var b []byte
		for range r.IntN(30) {
			b = append(b, pool[r.IntN(len(pool))]...)
		}
		var a Assembler
		var got strings.Builder
		cut(r, b, func(p []byte) {
			s := a.Push(p)
			if !utf8.ValidString(s) {
				t.Fatalf("seed %d: delta %q of %q is not UTF-8", seed, s, b)
			}
			got.WriteString(s)
		})
		got.WriteString(a.Flush())
		if want := oneShot(b); got.String() != want {
			t.Fatalf("seed %d: %q: got %q, want %q", seed, b, got.String(), want)
		}
	}
}

func TestAssemblerMaximalSubparts(t *testing.T) {
	// Unicode 17, tables 3-8 to 3-11.
	for in, want := range map[string]string{
		"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41":      "��������A",
		"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41":      "��������A",
		"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42":      "�����A��B",
		"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41":      "����A",
		"\xe2\x82":                                  "",
		"smile \xf0\x9f\x98":                        "smile ",
		"Zürich 😀":                                  "Zürich 😀",
		"a replacement character stays: � \xe2\x82": "a replacement character stays: � ",
	} {
		var a Assembler
		if got := a.Push([]byte(in)) + a.Flush(); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// firstStop is the definition of a match: leftmost, then shortest, then first in the list.
func firstStop(text string, stops []string) (start, end, which int) {
	start = -1
	for i, s := range stops {
		if at := strings.Index(text, s); s != "" && at >= 0 {
			if start < 0 || at < start || at == start && at+len(s) < end {
				start, end, which = at, at+len(s), i
			}
		}
	}
	return start, end, which
}

func run(s *Stops, pieces func(func([]byte))) (out string, matched bool, which int) {
	pieces(func(p []byte) {
		emit, m, w := s.Push(string(p))
		out += emit
		matched, which = m, w
	})
	if !matched {
		emit, m, w := s.Flush()
		out += emit
		matched, which = m, w
	}
	return out, matched, which
}

func TestStopsEqualUncutTextHoweverCut(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abc?\n"[r.IntN(5)]
		}
		return string(b)
	}
	found := 0
	for range 5000 {
		text := word(r.IntN(60))
		stops := make([]string, r.IntN(5))
		for i := range stops {
			stops[i] = word(r.IntN(7))
		}
		include := r.IntN(2) == 0
		start, end, which := firstStop(text, stops)
		want := text
		if start >= 0 {
			found++
			want = text[:start]
			if include {
				want = text[:end]
			}
		}
		got, matched, w := run(NewStops(stops, include), func(f func([]byte)) { cut(r, []byte(text), f) })
		if got != want || matched != (start >= 0) || matched && w != which {
			t.Fatalf("seed %d: text %q stops %q include %v: got %q %v %d, want %q %v %d", seed, text, stops, include, got, matched, w, want, start >= 0, which)
		}
	}
	if found < 500 {
		t.Fatalf("only %d of the texts held a stop", found)
	}
}

func TestStopsOverSeveralTokens(t *testing.T) {
	for _, c := range []struct {
		name   string
		stops  []string
		pieces []string
		want   []string // after each piece, then at the end
		match  bool
	}{
		{"stop over two words", []string{"green blue"}, []string{"red", " gre", "en", " blue", " yellow"}, []string{"red", " ", "", "", "", ""}, true},
		{"a held end is given out", []string{"?\nUser:"}, []string{"raining", "?"}, []string{"raining", "", "?"}, false},
		{"a held start that fails is given out at once", []string{"?\nUser:"}, []string{"raining", "?\n", "U", "x"}, []string{"raining", "", "", "?\nUx", ""}, false},
		{"shortest of one start", []string{"abc", "ab"}, []string{"x", "a", "b", "cx"}, []string{"x", "", "", "", ""}, true},
		{"leftmost waits for the longer", []string{"abcd", "bc"}, []string{"abc", "d"}, []string{"", "", ""}, true},
		{"leftmost fails", []string{"abcd", "bc"}, []string{"abc", "x"}, []string{"", "a", ""}, true},
		{"complete at the end", []string{"abcd", "bc"}, []string{"abc"}, []string{"", "a"}, true},
		{"a character is never cut", []string{"é!"}, []string{"caf", "é", "s"}, []string{"caf", "", "és", ""}, false},
	} {
		s := NewStops(c.stops, false)
		var got []string
		matched := false
		for _, p := range c.pieces {
			emit, m, _ := s.Push(p)
			got, matched = append(got, emit), m
		}
		emit, m, _ := s.Flush()
		got, matched = append(got, emit), matched || m
		if strings.Join(got, "|") != strings.Join(c.want, "|") || matched != c.match {
			t.Errorf("%s: got %q %v, want %q %v", c.name, got, matched, c.want, c.match)
		}
	}
}

func TestStopsWorkIsLinear(t *testing.T) {
	// A text of a million near-matches: rescanning on each piece would take minutes.
	s := NewStops([]string{strings.Repeat("a", 4000) + "b", strings.Repeat("a", 100) + "c"}, false)
	n := 0
	for range 1 << 20 {
		emit, matched, _ := s.Push("a")
		n += len(emit)
		if matched || len(s.held)-s.head > 4000 {
			t.Fatalf("matched %v, %d bytes held", matched, len(s.held))
		}
	}
	emit, _, _ := s.Flush()
	if n+len(emit) != 1<<20 {
		t.Fatalf("%d of %d bytes came out", n+len(emit), 1<<20)
	}
}

func TestStreamEqualsUncutAndReleasesEveryToken(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	pool := []string{"a", "b", "é", "😀", "ab", "\xff", "\xf0\x9f", " "}
	for range 3000 {
		var b []byte
		for range r.IntN(40) {
			b = append(b, pool[r.IntN(len(pool))]...)
		}
		stops := []string{"aba", "é😀", "bb b"}[:r.IntN(4)]
		text := oneShot(b)
		start, _, _ := firstStop(text, stops)
		want := text
		if start >= 0 {
			want = text[:start]
		}

		s := NewStream(NewStops(stops, false))
		got, pushed, released, stopped := "", 0, 0, false
		var decoded []string // text of the first i tokens
		check := func(d Delta) {
			got += d.Text
			released += d.Tokens
			stopped = stopped || d.Stopped
			if released > pushed {
				t.Fatalf("seed %d: %d tokens released of %d", seed, released, pushed)
			}
			if !stopped && released > 0 && !strings.HasPrefix(got, decoded[released-1]) {
				t.Fatalf("seed %d: token %d released with %q, before its text %q", seed, released-1, got, decoded[released-1])
			}
		}
		at := 0
		cut(r, b, func(p []byte) {
			if stopped {
				return
			}
			at += len(p)
			decoded = append(decoded, oneShot(b[:at]))
			pushed++
			check(s.Push(p, true))
		})
		if !stopped {
			check(s.Finish())
		}
		if got != want || stopped != (start >= 0) {
			t.Fatalf("seed %d: %q stops %q: got %q %v, want %q", seed, b, stops, got, stopped, want)
		}
		if released != pushed {
			t.Fatalf("seed %d: %d of %d tokens released", seed, released, pushed)
		}
	}
}

// Marks show where they are however stop strings hold text back, whole or not at all.
func TestStreamMarks(t *testing.T) {
	type token struct {
		text string
		mark bool
	}
	tokens := []token{{"<m>", true}, {"a", false}, {"<m>", false}, {"\xf0\x9f", false}, {"</m>", true}, {"b <", false}, {"<m>", true}, {"</m>", true}, {"é", false}}
	const want = "[<m>]a<m>\ufffd[</m>]b <[<m>][</m>]é"
	for stop, want := range map[string]string{
		"":         want,
		"zzz":      want,
		"m>z":      want, // holds back a part of each mark
		"<m>z":     want,
		"</m><":    want,
		"</m>b":    "[<m>]a<m>\ufffd",
		"/m>b":     "[<m>]a<m>\ufffd", // nothing of a mark that was cut
		"<<m>":     "[<m>]a<m>\ufffd[</m>]b ",
		"m></m>é":  "[<m>]a<m>\ufffd[</m>]b <",
		"\ufffd</": "[<m>]a<m>",
	} {
		s := NewStream(NewStops([]string{stop}, false))
		got, stopped, released := "", false, 0
		add := func(d Delta) {
			at := 0
			for _, m := range d.Marks {
				got += d.Text[at:m.At] + "[" + d.Text[m.At:m.At+m.Len] + "]"
				at = m.At + m.Len
			}
			got += d.Text[at:]
			stopped = stopped || d.Stopped
			released += d.Tokens
		}
		for _, tok := range tokens {
			if tok.mark {
				add(s.PushMark([]byte(tok.text), true))
			} else {
				add(s.Push([]byte(tok.text), true))
			}
		}
		add(s.Finish())
		if got != want || !stopped && released != len(tokens) {
			t.Errorf("stop %q: got %q, want %q; %d tokens", stop, got, want, released)
		}
	}
}

func TestStreamTokensComeWithTheirText(t *testing.T) {
	s := NewStream(NewStops([]string{"STOP"}, false))
	for _, c := range []struct {
		token string
		want  Delta
	}{
		{"hi", Delta{"hi", nil, 1, false, -1}},
		{" S", Delta{" ", nil, 0, false, -1}}, // half of the token is held back
		{"TO", Delta{"", nil, 0, false, -1}},
		{"\xf0\x9f", Delta{"", nil, 0, false, -1}}, // may still not be a stop
		{"\x98\x80", Delta{"STO😀", nil, 4, false, -1}},
		{"", Delta{"", nil, 1, false, -1}}, // a token without text
		{"ST", Delta{"", nil, 0, false, -1}},
		{"OPx", Delta{"", nil, 2, true, 0}},
	} {
		if got := s.Push([]byte(c.token), true); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: got %+v, want %+v", c.token, got, c.want)
		}
	}
	if got := s.Push([]byte("more"), true); got.Text != "" || got.Tokens != 0 {
		t.Errorf("after the stop: %+v", got)
	}
}

func TestStreamDoesNotObeyStopsBeforeMinTokens(t *testing.T) {
	s := NewStream(NewStops([]string{"ab"}, false))
	got := ""
	for i, token := range []string{"ab", "a", "b", "xa", "b"} {
		d := s.Push([]byte(token), i >= 2)
		got += d.Text
		if d.Stopped != (i == 4) {
			t.Fatalf("token %d: %+v", i, d)
		}
	}
	if got != "ababx" {
		t.Errorf("got %q", got)
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte("hello 😀 green blue"), "green blue", "e", uint64(7))
	f.Add([]byte("\xf0\x9f\x98\xff\xc0"), "\n", "", uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, stop1, stop2 string, seed uint64) {
		stops := []string{strings.ToValidUTF8(stop1, ""), strings.ToValidUTF8(stop2, "")}
		s := NewStream(NewStops(stops, false))
		got, pushed, released, stopped := "", 0, 0, false
		add := func(d Delta) {
			got += d.Text
			released += d.Tokens
			stopped = stopped || d.Stopped
		}
		cut(rand.New(rand.NewPCG(seed, 0)), b, func(p []byte) {
			if !stopped {
				pushed++
				add(s.Push(p, true))
			}
		})
		if !stopped {
			add(s.Finish())
		}
		want := oneShot(b)
		if start, _, _ := firstStop(want, stops); start >= 0 {
			want = want[:start]
		}
		if got != want || released != pushed {
			t.Fatalf("%q stops %q: got %q, want %q; %d of %d tokens", b, stops, got, want, released, pushed)
		}
	})
}

func BenchmarkStream(b *testing.B) {
	stops := []string{"\n\nUser:", "<|im_end|>", "###", "green blue"}
	token := []byte(" word")
	s := NewStream(NewStops(stops, false))
	b.ReportAllocs()
	for b.Loop() {
		s.Push(token, true)
	}
}

// Texts that share their stops share nothing else, and another text costs no automaton of its own.
func TestStopsForManyTexts(t *testing.T) {
	stops := NewStops([]string{"abc", strings.Repeat("x", 1000)}, false)
	a, b := NewStream(stops), NewStream(stops)
	if d := a.Push([]byte("1ab"), true); d.Text != "1" {
		t.Errorf("first text: %+v", d)
	}
	if d := b.Push([]byte("c2"), true); d.Text != "c2" || d.Stopped {
		t.Errorf("second text sees the first one: %+v", d)
	}
	if d := a.Push([]byte("c"), true); d.Text != "" || !d.Stopped || d.Stop != 0 {
		t.Errorf("first text: %+v", d)
	}
	if d := NewStream(stops).Push([]byte("c3"), true); d.Text != "c3" {
		t.Errorf("third text: %+v", d)
	}
	if n := testing.AllocsPerRun(10, func() { NewStream(stops) }); n > 4 {
		t.Errorf("a text over known stops takes %v allocations", n)
	}
}
