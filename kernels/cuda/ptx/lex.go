package ptx

import (
	"fmt"
	"strings"
)

// An Error is PTX that this package does not understand or that is not legal.
type Error struct {
	Line int // line in the PTX text, from 1; 0 when the whole file is meant
	Msg  string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return "ptx: " + e.Msg
	}
	return fmt.Sprintf("ptx: line %d: %s", e.Line, e.Msg)
}

func errorf(line int, format string, args ...any) *Error {
	return &Error{Line: line, Msg: fmt.Sprintf(format, args...)}
}

type token struct {
	kind byte // 'w' word, 's' string, 'p' punctuation, 0 end of file
	text string
	line int
}

func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c == '%' || c == '.'
}

// lex cuts PTX text into tokens. A word is an opcode with all its modifiers, a directive, a name
// or a number; "::" inside an opcode ("L1::no_allocate") belongs to it.
func lex(src string) ([]token, error) {
	var toks []token
	line := 1
	for i := 0; i < len(src); {
		c := src[i]
		switch {
		case c == '\n':
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case c == '\x00' && strings.Trim(src[i:], "\x00") == "":
			i = len(src) // the driver's images end in zeros
		case strings.HasPrefix(src[i:], "//"):
			for i < len(src) && src[i] != '\n' {
				i++
			}
		case strings.HasPrefix(src[i:], "/*"):
			end := strings.Index(src[i+2:], "*/")
			if end < 0 {
				return nil, errorf(line, "comment without end")
			}
			line += strings.Count(src[i:i+2+end], "\n")
			i += end + 4
		case c == '"':
			end := i + 1
			for end < len(src) && src[end] != '"' && src[end] != '\n' {
				if src[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(src) || src[end] != '"' {
				return nil, errorf(line, "string without end")
			}
			toks = append(toks, token{'s', src[i+1 : end], line})
			i = end + 1
		case wordByte(c):
			end := i
			for end < len(src) && (wordByte(src[end]) && (end == i || c != '.' || src[end] != '.') || src[i] != '.' && strings.HasPrefix(src[end:], "::")) {
				if src[end] == ':' {
					end++
				}
				end++
			}
			toks = append(toks, token{'w', src[i:end], line}) // ".reg.b16" gives two
			i = end
		case strings.IndexByte("{}[]()<>,;:@!|+-=*", c) >= 0:
			toks = append(toks, token{'p', src[i : i+1], line})
			i++
		default:
			return nil, errorf(line, "unknown character %q", c)
		}
	}
	return append(toks, token{0, "end of file", line}), nil
}
