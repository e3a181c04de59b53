package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	endMark   = "<|im_end|>"
	startMark = "<|im_start|>"
	template  = "{% for m in messages %}" + startMark + "{{ m['role'] }}\n{{ m['content'] }}" + endMark +
		"\n{% endfor %}{% if add_generation_prompt %}" + startMark + "assistant\n{% endif %}"
)

// writeTokenizer writes a byte-level tokenizer of that many ids: the 256 bytes, fillers that no text
// yields, and the two marks of a turn.
func writeTokenizer(out string, vocab int) error {
	if vocab < 300 {
		return fmt.Errorf("vocab_size: %d is less than 300", vocab)
	}
	var b strings.Builder
	b.WriteString(`{"version":"1.0","truncation":null,"padding":null,"added_tokens":[`)
	for i, mark := range []string{startMark, endMark} {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%d,"content":%q,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}`, vocab-2+i, mark)
	}
	b.WriteString(`],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false},` +
		`"post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},` +
		`"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"vocab":{`)
	for i := range vocab - 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		if i < 256 {
			b.WriteString(quote(string(byteChar(byte(i)))))
		} else {
			fmt.Fprintf(&b, `"<filler %d>"`, i)
		}
		fmt.Fprintf(&b, ":%d", i)
	}
	b.WriteString(`},"merges":[]}}`)
	if err := os.WriteFile(filepath.Join(out, "tokenizer.json"), []byte(b.String()), 0o644); err != nil {
		return err
	}
	return writeJSON(filepath.Join(out, "tokenizer_config.json"), map[string]any{
		"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": endMark, "chat_template": template,
	})
}

func quote(s string) string {
	if s == `"` || s == `\` {
		return `"\` + s + `"`
	}
	return `"` + s + `"`
}

// byteChar is the character that stands for a byte in a byte-level vocabulary: itself where it
// prints, else the next free one from 256 on.
func byteChar(b byte) rune {
	prints := func(b int) bool { return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae }
	if prints(int(b)) {
		return rune(b)
	}
	n := rune(256)
	for i := range int(b) {
		if !prints(i) {
			n++
		}
	}
	return n
}
