package grammar

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// Whatever is asked for, it is compiled or refused within bounded work.
func TestHostileInputsEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute under the race detector, which has nothing to see here")
	}
	v := byteVocabulary()
	var enum, deep, many strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&enum, ",%q", fmt.Sprint("v", i*7919))
	}
	for range 300 {
		deep.WriteString(`{"anyOf":[{"type":"null"},{"type":"array","items":`)
	}
	deep.WriteString("{}" + strings.Repeat("}]}", 300))
	for i := range 2000 {
		fmt.Fprintf(&many, `,"p%d":{"type":"string"}`, i)
	}
	group := `{"anyOf":[{"minLength":1},{"minLength":2}]}`
	for _, c := range []struct{ name, schema, err string }{
		{"enum of 100,000", `{"enum":[""` + enum.String() + `]}`, "more than 1000000 states"},
		{"deep", deep.String(), "nested"},
		{"optional properties", `{"properties":{"p":{}` + many.String() + `}}`, "more work than the limit"},
		{"anyOf multiplied", `{"allOf":[` + group + strings.Repeat(","+group, 40) + `]}`, "multipl"},
		{"exponential pattern", `{"pattern":"^(.*a.{40}|.*b.{40})$"}`, "more work than the limit"},
		{"nested repeats", `{"pattern":"^((a{300}){300}){300}$"}`, "more than 1000000 states"},
		{"long string", `{"type":"string","minLength":2000,"maxLength":100000}`, ""},
		{"large array", `{"type":"array","minItems":2000}`, ""},
	} {
		e, err := Schema([]byte(c.schema))
		if err == nil {
			_, err = Compile(context.Background(), e, v)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %.300v, want %q", c.name, err, c.err)
		}
	}
}
