package tokenizer

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestRefused: what is not supported is an error that names it.
func TestRefused(t *testing.T) {
	const base = `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null,"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`
	if _, err := FromJSON([]byte(base)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ key, value, want string }{
		{"model", `{"type":"WordPiece","vocab":{"a":0},"unk_token":"a","max_input_chars_per_word":100,"continuing_subword_prefix":"##"}`, "WordPiece is not supported"},
		{"model", `{"type":"Unigram","vocab":[["a",-1.0]],"unk_id":0}`, "Unigram is not supported"},
		{"model", `{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}`, "WordLevel is not supported"},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1}`, "dropout"},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":[],"end_of_word_suffix":"</w>"}`, "end_of_word_suffix"},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":[],"continuing_subword_prefix":"##"}`, "continuing_subword_prefix"},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":[],"new_thing":true}`, "new_thing"},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":["a b"]}`, "merge 0"},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":["ab"]}`, "merge 0"},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}`, "merge 0"},
		{"model", `{"type":"BPE","vocab":{"a":-1},"merges":[]}`, "id of \"a\""},
		{"model", `{"type":"BPE","vocab":{"a":99999999999},"merges":[]}`, "id of \"a\""},
		{"model", `{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}`, "id 0 is both"},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":[],"unk_token":"u"}`, "unk_token"},
		{"model", `null`, "model"},
		{"normalizer", `{"type":"BertNormalizer"}`, "BertNormalizer is not supported"},
		{"normalizer", `{"type":"Sequence","normalizers":[{"type":"StripAccents"}]}`, "StripAccents is not supported"},
		{"normalizer", `{"type":"Precompiled","precompiled_charsmap":"AAAA"}`, "Precompiled is not supported"},
		{"normalizer", `{"type":"NFC","strange":1}`, "strange"},
		{"normalizer", `{"type":"Replace","pattern":{"Regex":"[[:alpha:]]"},"content":""}`, "pattern"},
		{"pre_tokenizer", `{"type":"BertPreTokenizer"}`, "BertPreTokenizer is not supported"},
		{"pre_tokenizer", `{"type":"UnicodeScripts"}`, "UnicodeScripts is not supported"},
		{"pre_tokenizer", `{"type":"Split","pattern":{"Regex":"\\w+"},"behavior":"Isolated","invert":false}`, "\\\\w"},
		{"pre_tokenizer", `{"type":"Split","pattern":{"String":"a"},"behavior":"Sideways","invert":false}`, "Sideways"},
		{"pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"ByteLevel"}]}`, "ByteLevel twice"},
		{"post_processor", `{"type":"BertProcessing","sep":["b",1],"cls":["a",0]}`, "BertProcessing is not supported"},
		{"post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{}}`, "\"x\" is not among"},
		{"decoder", `{"type":"WordPiece","prefix":"##","cleanup":true}`, "WordPiece is not supported"},
		{"decoder", `{"type":"CTC"}`, "CTC is not supported"},
		{"decoder", `{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteFallback"}]}`, "ByteFallback after"},
		{"added_tokens", `[{"id":1,"content":"a"}]`, "has id 1, and 0"},
		{"added_tokens", `[{"id":2,"content":"c"}]`, "id 2 is both"},
		{"added_tokens", `[{"content":"c"}]`, "has no id"},
		{"surprise", `1`, "surprise"},
	} {
		var file map[string]json.RawMessage
		if err := json.Unmarshal([]byte(base), &file); err != nil {
			t.Fatal(err)
		}
		file[c.key] = json.RawMessage(c.value)
		data, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := FromJSON(data); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "tokenizer.json: ") {
			t.Errorf("%s %s: error %v, want one with %s", c.key, c.value, err, c.want)
		}
	}
	for _, data := range []string{"", "[]", "{", `{"model":`, "\xff", `{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a",`} {
		if _, err := FromJSON([]byte(data)); err == nil {
			t.Errorf("%q is accepted", data)
		}
	}
}

// TestValidUTF8 replaces maximal broken parts; the cases are those of the Unicode standard,
// section 3.9.
func TestValidUTF8(t *testing.T) {
	for in, want := range map[string]string{
		"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82A": "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdA",
		"\xed\xa0\x80\xed\xbf\xbf\xed\xafA": "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdA",
		"\xf4\x91\x92\x93\xffA\x80\xbfB":    "\ufffd\ufffd\ufffd\ufffd\ufffdA\ufffd\ufffdB",
		"\xe1\x80\xe2\xf0\x91\x92\xf1\xbfA": "\ufffd\ufffd\ufffd\ufffdA",
		"ok":                                "ok",
	} {
		if got := validUTF8(in); got != want {
			t.Errorf("%q: %+q, want %+q", in, got, want)
		}
	}
}
