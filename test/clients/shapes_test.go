//go:build clients

package clients

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/openinfer-go/openinfer/internal/testdata"
)

func TestShapesScripted(t *testing.T) { shapes(t, scripted(t)) }

func TestShapesBinary(t *testing.T) {
	base := binary(t, builtBinary(t))
	shapes(t, base)
	t.Run("ClaudeCode", func(t *testing.T) { checkClaudeCode(t, base) })
}

// checkClaudeCode sends what Claude Code does: a system prompt that begins with an account of its own, which differs from
// request to request, and a reminder from the system at the end. The second turn must find the first one's prefix.
func checkClaudeCode(t *testing.T, base string) {
	ask := func(account, reminder, more string) (usage struct {
		Input int `json:"input_tokens"`
		Read  int `json:"cache_read_input_tokens"`
	}) {
		body := `{"model":"` + models[0] + `","max_tokens":32000,"temperature":0,"stop_sequences":[" "],"metadata":{"user_id":"u"},"thinking":{"type":"adaptive"},
			"context_management":{"edits":[]},"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2; cch=` + account + `;"},
			{"type":"text","text":"` + strings.Repeat("You tell tales of animals. ", 12) + `","cache_control":{"type":"ephemeral"}}],
			"messages":[{"role":"user","content":[{"type":"text","text":"Tell me a story about a fox, a long one."}]}` + more + `,{"role":"system","content":"` + reminder + `"}]}`
		req, err := http.NewRequestWithContext(t.Context(), "POST", base+"/messages?beta=true", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Api-Key", key)
		req.Header.Set("Anthropic-Version", "2023-06-01")
		req.Header.Set("Anthropic-Beta", "claude-code-20250219,interleaved-thinking-2025-05-14")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var out struct{ Usage, Error json.RawMessage }
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%d %v %s", resp.StatusCode, err, out.Error)
		}
		if err := json.Unmarshal(out.Usage, &usage); err != nil {
			t.Fatal(err)
		}
		return usage
	}
	ask("a1b2c", "900 tokens left", "")
	second := ask("d3e4f", "800 tokens left", `,{"role":"assistant","content":"Once."},{"role":"user","content":"Go on."}`)
	if second.Read < second.Input {
		t.Errorf("of the second turn's prompt %d tokens were found and %d were not", second.Read, second.Input)
	}
}

func builtBinary(t *testing.T) string {
	bin := os.Getenv("OPENINFER_BIN")
	if bin == "" {
		t.Skip("OPENINFER_BIN names no binary")
	}
	return bin
}

// shapes runs the clients of the other APIs, and those of Responses, against the server at base.
func shapes(t *testing.T, base string) {
	t.Run("Go", func(t *testing.T) {
		client := openai.NewClient(option.WithBaseURL(base), option.WithAPIKey(key), option.WithMaxRetries(0))
		for _, model := range models {
			checkResponses(t, client, model)
		}
	})
	t.Run("Python", func(t *testing.T) {
		script(t, base, "PYTHONPATH="+testdata.Cache(t, "py-shapes")+string(os.PathListSeparator)+testdata.Cache(t, "py"), "python3", "shapes.py")
	})
	t.Run("JavaScript", func(t *testing.T) {
		script(t, base, "NODE_PATH="+testdata.Cache(t, "js-shapes", "node_modules"), "node", "shapes.mjs")
	})
}

// checkResponses runs the official Go client of /v1/responses.
func checkResponses(t *testing.T, client openai.Client, model string) {
	ask := func() responses.ResponseNewParams {
		return responses.ResponseNewParams{Model: model, Temperature: param.NewOpt(0.0), MaxOutputTokens: param.NewOpt(int64(24)),
			Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt("Tell me a story about a fox.")}}
	}
	whole, err := client.Responses.New(t.Context(), ask())
	if err != nil {
		t.Fatal(err)
	}
	if whole.OutputText() == "" || whole.Usage.OutputTokens > 24 || whole.Usage.TotalTokens != whole.Usage.InputTokens+whole.Usage.OutputTokens {
		t.Errorf("%s", whole.RawJSON())
	}
	text, last := "", ""
	stream := client.Responses.NewStreaming(t.Context(), ask())
	for stream.Next() {
		e := stream.Current()
		if last = e.Type; e.Type == "response.output_text.delta" {
			text += e.Delta
		}
	}
	if stream.Err() != nil || text != whole.OutputText() || last != "response."+string(whole.Status) {
		t.Errorf("streamed %q to %s (%v), whole %q", text, last, stream.Err(), whole.OutputText())
	}
	p := ask()
	p.PreviousResponseID = param.NewOpt("resp_1")
	_, err = client.Responses.New(t.Context(), p)
	refused(t, err, 400, "previous_response_id", "")
	p = ask()
	p.Model = "no-such-model"
	failed := client.Responses.NewStreaming(t.Context(), p)
	for failed.Next() {
		t.Errorf("an event of a model that is not there: %s", failed.Current().RawJSON())
	}
	refused(t, failed.Err(), 404, "model", "model_not_found")
}

// TestDescription has requests made of what the server says of itself, right ones and wrong ones, and compares its
// answers with that: no 5xx, nothing wrong accepted, nothing that is not described. The seed is fixed.
func TestDescription(t *testing.T) {
	base := strings.TrimSuffix(binary(t, builtBinary(t), "--max-model-len", "160"), "/v1")
	resp, err := http.Get(base + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var doc map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	// most of what is made up would ask for models that are not there: one that is, in every request
	for name, s := range doc["components"].(map[string]any)["schemas"].(map[string]any) {
		if fields, ok := s.(map[string]any)["properties"].(map[string]any); ok && strings.HasSuffix(name, "Request") && fields["model"] != nil {
			fields["model"] = map[string]any{"type": "string", "enum": models}
		}
	}
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "openapi.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	dir := testdata.Cache(t, "schemathesis")
	cmd := exec.CommandContext(ctx, "python3", "-m", "schemathesis.cli", "run", file, "--url", base, "--header", "Authorization: Bearer "+key,
		"--seed", "7", "--max-examples", "8", "--max-time", "35", "--phases", "coverage,fuzzing", "--continue-on-failure", "--no-color", "--warnings", "off",
		// a request that is well formed may still be refused: too long, or for a model that is not there
		"--checks", "all", "--exclude-checks", "positive_data_acceptance,ignored_auth")
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "PYTHONPATH="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all := strings.Split(strings.TrimSpace(string(out)), "\n")
	t.Logf("%s", strings.Join(all[max(0, len(all)-8):], "\n"))
	if !strings.Contains(string(out), "generated") {
		t.Errorf("nothing was asked: %s", out)
	}
}
