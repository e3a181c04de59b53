package grammar

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Whatever is asked for, it is compiled or refused within a bounded time.
func TestHostileInputsEndSoon(t *testing.T) {
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
	for name, schema := range map[string]string{
		"enum of 100,000": `{"enum":[""` + enum.String() + `]}`, "deep": deep.String(), "optional properties": `{"properties":{"p":{}` + many.String() + `}}`,
		"anyOf multiplied":    `{"allOf":[` + group + strings.Repeat(","+group, 40) + `]}`,
		"exponential pattern": `{"pattern":"^(.*a.{40}|.*b.{40})$"}`, "nested repeats": `{"pattern":"^((a{300}){300}){300}$"}`,
		"long string": `{"type":"string","minLength":2000,"maxLength":100000}`, "large array": `{"type":"array","minItems":2000}`,
	} {
		begin := time.Now()
		e, err := Schema([]byte(schema))
		if err == nil {
			_, err = Compile(context.Background(), e, v)
		}
		took := time.Since(begin)
		t.Logf("%s: %v: %.150v", name, took, err)
		if took > 5*time.Second {
			t.Errorf("%s: %v", name, took)
		}
	}
}
