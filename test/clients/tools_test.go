//go:build clients

package clients

import (
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

// TestTools has real clients, and frameworks on top of them, call tools and ask for objects. The same facts stand in tools.py,
// tools.mjs and the others: the model calls weather, for one city or for two, and tells the results that it gets.
func TestTools(t *testing.T) {
	base := calling(t)
	py := func(dir string) string { return "PYTHONPATH=" + testdata.Cache(t, dir) }
	t.Run("Go", func(t *testing.T) { checkGoTools(t, base) })
	t.Run("Python", func(t *testing.T) {
		script(t, base, py("py-shapes")+string(os.PathListSeparator)+testdata.Cache(t, "py"), "python3", "tools.py")
	})
	t.Run("JavaScript", func(t *testing.T) {
		script(t, base, "NODE_PATH="+testdata.Cache(t, "js-shapes", "node_modules"), "node", "tools.mjs")
	})
	t.Run("AISDK", func(t *testing.T) {
		script(t, base, "NODE_PATH="+testdata.Cache(t, "js-ai", "node_modules"), "node", "aisdk.mjs")
	})
	t.Run("Frameworks", func(t *testing.T) { script(t, base, py("py-frameworks"), "python3", "frameworks.py") })
}

// What the model may say. It says the first that its prompt asks for and the request's grammar, if there is one, accepts: a
// request whose tool_choice or schema is lost on the way gets another answer.
const (
	oneCall   = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln\"}}\n</tool_call>"
	otherCall = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call>"
	nowCall   = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"
	person    = `{"name": "Ada", "age": 36}`
	saysNone  = "Nothing that I say fits."
)

// answerOf scripts a model by the last message and the grammar.
func answerOf(t *testing.T, gen *apitest.Generator, r engine.Request) string {
	prompt, err := gen.Detokenize(r.Model, r.Prompt)
	if err != nil {
		t.Error(err)
	}
	turns := strings.Split(prompt, "<|im_start|>")
	var results []string
	for i := len(turns) - 2; i >= 0 && strings.HasPrefix(turns[i], "tool\n"); i-- {
		text, _, _ := strings.Cut(strings.TrimPrefix(turns[i], "tool\n"), "<|im_end|>")
		results = append([]string{text}, results...)
	}
	var may []string
	switch last := turns[len(turns)-2]; {
	case len(results) > 0:
		may = []string{"I heard: " + strings.Join(results, " and ") + "."}
	case strings.Contains(last, "two cities"):
		may = []string{oneCall + "\n" + otherCall}
	case strings.Contains(last, "weather"):
		may = []string{"Let me see.\n" + oneCall}
	default:
		may = []string{"No tool is needed, ñor a cäll."}
	}
	for _, s := range append(may, oneCall, nowCall, person, `{"person": `+person+`}`) {
		if r.Grammar == nil {
			return s
		}
		if end, ok := r.Grammar.Start().AdvanceBytes([]byte(s)); ok && end.MayEnd() {
			return s
		}
	}
	return saysNone
}

// calling serves a model that calls tools.
func calling(t *testing.T) string {
	gen := &apitest.Generator{Names: models, Tools: engine.ToolFormat{Parser: "hermes"}, MaxLen: 32768}
	gen.Answer = func(r engine.Request) apitest.Answer { return apitest.Answer{Text: answerOf(t, gen, r)} }
	s := httptest.NewServer(api.New(gen, api.Options{Keys: []string{key}}))
	t.Cleanup(s.Close)
	t.Cleanup(func() {
		if live := gen.Live.Load(); live != 0 {
			t.Errorf("%d sequences live after the last client", live)
		}
	})
	return s.URL + "/v1"
}
