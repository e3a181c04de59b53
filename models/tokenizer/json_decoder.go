// Reading the decoder of a tokenizer.json. Decoders are a chain over the list of tokens; the
// chains supported are those that come down to a function of each token and of the text's start.

package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

type fileDecoder struct {
	Type           string
	Decoders       []json.RawMessage
	Pattern        filePattern
	Content        string
	Start          int
	Stop           int
	Replacement    string
	PrependScheme  *string `json:"prepend_scheme"`
	AddPrefixSpace *bool   `json:"add_prefix_space"`
	Split          *bool   // these have no effect on decoding
	StrRep         string  `json:"str_rep"`
	TrimOffsets    bool    `json:"trim_offsets"`
	UseRegex       bool    `json:"use_regex"`
}

func (t *Tokenizer) readDecoder(raw json.RawMessage) error {
	if absent(raw) {
		t.decoding.space = true
		return nil
	}
	var chain []fileDecoder
	if err := flattenDecoder(raw, &chain); err != nil {
		return err
	}
	d := &t.decoding
	fused := false
	for _, c := range chain {
		alone := func() error {
			if len(chain) > 1 {
				return fmt.Errorf("%s in a sequence with others is not supported", c.Type)
			}
			return nil
		}
		perToken := func() error {
			if fused || d.byteFallback {
				return fmt.Errorf("%s after ByteFallback or Fuse is not supported", c.Type)
			}
			return nil
		}
		switch c.Type {
		case "ByteLevel":
			if err := alone(); err != nil {
				return err
			}
			d.byteLevel = true
		case "Metaspace":
			if err := alone(); err != nil {
				return err
			}
			scheme, err := metaspaceScheme(c.PrependScheme, c.AddPrefixSpace)
			if err != nil {
				return err
			}
			r, n := utf8.DecodeRuneInString(c.Replacement)
			if n == 0 || n != len(c.Replacement) {
				return fmt.Errorf("Metaspace: replacement %q is not one character", c.Replacement)
			}
			d.tokenOps = append(d.tokenOps, func(s string) string { return strings.ReplaceAll(s, c.Replacement, " ") })
			d.stripChar, d.stripFirstToken = r, scheme != prependNever
		case "Replace":
			if err := perToken(); err != nil {
				return err
			}
			m, err := c.Pattern.matcher()
			if err != nil {
				return fmt.Errorf("Replace: %w", err)
			}
			d.tokenOps = append(d.tokenOps, replace{m, c.Content}.normalize)
		case "ByteFallback":
			if err := perToken(); err != nil {
				return err
			}
			d.byteFallback = true
		case "Fuse":
			fused = true
		case "Strip":
			r, n := utf8.DecodeRuneInString(c.Content)
			if n == 0 || n != len(c.Content) || c.Start < 0 || c.Stop < 0 {
				return fmt.Errorf("Strip: content %q, start %d, stop %d is not supported", c.Content, c.Start, c.Stop)
			}
			if fused {
				if c.Stop != 0 || d.stripCount != 0 {
					return fmt.Errorf("Strip: stop %d after Fuse is not supported", c.Stop)
				}
				d.stripChar, d.stripCount = r, c.Start
				break
			}
			if err := perToken(); err != nil {
				return err
			}
			d.tokenOps = append(d.tokenOps, func(s string) string {
				for range c.Start {
					s = strings.TrimPrefix(s, c.Content)
				}
				for range c.Stop {
					s = strings.TrimSuffix(s, c.Content)
				}
				return s
			})
		default:
			return fmt.Errorf("%s is not supported", c.Type)
		}
	}
	return nil
}

func flattenDecoder(raw json.RawMessage, chain *[]fileDecoder) error {
	typ, err := componentType(raw)
	if err != nil {
		return err
	}
	switch typ {
	case "Sequence", "ByteLevel", "Metaspace", "Replace", "ByteFallback", "Fuse", "Strip":
	default:
		return fmt.Errorf("%s is not supported", typ)
	}
	var c fileDecoder
	if err := strict(raw, &c); err != nil {
		return fmt.Errorf("%s: %w", typ, err)
	}
	if typ != "Sequence" {
		*chain = append(*chain, c)
		return nil
	}
	for _, r := range c.Decoders {
		if err := flattenDecoder(r, chain); err != nil {
			return err
		}
	}
	return nil
}
