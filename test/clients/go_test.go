//go:build clients

package clients

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
)

// checkGo runs the official Go client.
func checkGo(t *testing.T, base string) {
	client := openai.NewClient(option.WithBaseURL(base), option.WithAPIKey(key), option.WithMaxRetries(0))
	t.Run("models", func(t *testing.T) {
		page, err := client.Models.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		listed := map[string]bool{}
		for _, m := range page.Data {
			listed[m.ID] = true
		}
		for _, name := range models {
			m, err := client.Models.Get(t.Context(), name)
			if err != nil || m.ID != name || !listed[name] {
				t.Errorf("%s: %v %v, listed %v", name, m, err, listed[name])
			}
		}
		_, err = client.Models.Get(t.Context(), "no/such")
		refused(t, err, 404, "model", "model_not_found")
	})
	for _, model := range models {
		t.Run(model, func(t *testing.T) { checkModel(t, client, base, model) })
	}
}

// endless makes answers as long as they may get, so that counts are known.
var endless = option.WithJSONSet("ignore_eos", true)

func chatParams(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: model, Temperature: param.NewOpt(0.0), MaxTokens: param.NewOpt(int64(24)),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Tell me a story about a fox.")},
	}
}

func checkModel(t *testing.T, client openai.Client, base, model string) {
	ctx := t.Context()
	whole, err := client.Chat.Completions.New(ctx, chatParams(model), endless)
	if err != nil {
		t.Fatal(err)
	}
	content := whole.Choices[0].Message.Content
	if content == "" || whole.Choices[0].FinishReason != "length" || whole.Usage.CompletionTokens != 24 ||
		whole.Usage.TotalTokens != whole.Usage.PromptTokens+24 || !whole.Usage.PromptTokensDetails.JSON.CachedTokens.Valid() {
		t.Errorf("%+v", whole.RawJSON())
	}

	p := chatParams(model)
	p.StreamOptions.IncludeUsage = param.NewOpt(true)
	stream := client.Chat.Completions.NewStreaming(ctx, p, endless)
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Fatalf("the client's accumulator refuses %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if got := acc.Choices[0].Message.Content; got != content || acc.Choices[0].FinishReason != "length" || acc.Usage.CompletionTokens != 24 {
		t.Errorf("streamed %q (%s, %d tokens), whole %q", got, acc.Choices[0].FinishReason, acc.Usage.CompletionTokens, content)
	}

	p = chatParams(model)
	p.N, p.Seed, p.Temperature, p.MaxTokens = param.NewOpt(int64(2)), param.NewOpt(int64(7)), param.NewOpt(1.0), param.NewOpt(int64(8))
	both, err := client.Chat.Completions.New(ctx, p, endless)
	if err != nil || len(both.Choices) != 2 || both.Choices[1].Index != 1 || both.Usage.CompletionTokens != 16 {
		t.Fatalf("n = 2: %v %v", both, err)
	}

	p = chatParams(model)
	p.Logprobs, p.TopLogprobs = param.NewOpt(true), param.NewOpt(int64(2))
	scored, err := client.Chat.Completions.New(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	if entries := scored.Choices[0].Logprobs.Content; int64(len(entries)) != scored.Usage.CompletionTokens ||
		len(entries[0].TopLogprobs) != 2 || entries[0].TopLogprobs[0].Logprob != entries[0].Logprob {
		t.Errorf("logprobs %+v", entries)
	}

	prompt := openai.CompletionNewParams{Model: openai.CompletionNewParamsModel(model), Temperature: param.NewOpt(0.0), MaxTokens: param.NewOpt(int64(12)),
		Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"Once upon a time", "The king said"}}}
	texts, err := client.Completions.New(ctx, prompt, endless)
	if err != nil || len(texts.Choices) != 2 || texts.Choices[0].Text == "" || texts.Usage.CompletionTokens != 24 {
		t.Fatalf("completions: %v %v", texts, err)
	}
	parts := make([]string, 2)
	pieces := client.Completions.NewStreaming(ctx, prompt, endless)
	for pieces.Next() {
		for _, c := range pieces.Current().Choices {
			parts[c.Index] += c.Text
		}
	}
	if pieces.Err() != nil || parts[0] != texts.Choices[0].Text || parts[1] != texts.Choices[1].Text {
		t.Errorf("streamed completions %q, whole %q, %v", parts, []string{texts.Choices[0].Text, texts.Choices[1].Text}, pieces.Err())
	}

	p = chatParams(model)
	p.Temperature = param.NewOpt(3.0)
	_, err = client.Chat.Completions.New(ctx, p)
	refused(t, err, 400, "temperature", "")
	p = chatParams("no-such-model")
	failed := client.Chat.Completions.NewStreaming(ctx, p)
	for failed.Next() {
		t.Errorf("a chunk of a model that is not there: %s", failed.Current().RawJSON())
	}
	refused(t, failed.Err(), 404, "model", "model_not_found")
	_, err = client.Models.List(ctx, option.WithAPIKey("wrong"))
	refused(t, err, 401, "", "invalid_api_key")

	leave, cancel := context.WithCancel(ctx)
	p = chatParams(model)
	p.MaxTokens = param.NewOpt(int64(600))
	long := client.Chat.Completions.NewStreaming(leave, p, endless)
	for i := 0; i < 3 && long.Next(); i++ {
	}
	cancel()
	long.Close()
	for end := time.Now().Add(10 * time.Second); running(t, base, model) != "0"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s requests run after the client left", running(t, base, model))
		}
	}
	again, err := client.Chat.Completions.New(ctx, chatParams(model), endless)
	if err != nil || again.Choices[0].Message.Content != content {
		t.Errorf("after that: %v %v", again, err)
	}
}

func refused(t *testing.T, err error, status int, param, code string) {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != status || e.Param != param || code != "" && e.Code != code {
		t.Errorf("%v, want status %d, param %q, code %q", err, status, param, code)
	}
}

// running is what /metrics says of a model's running requests.
func running(t *testing.T, base, model string) string {
	t.Helper()
	resp, err := http.Get(strings.TrimSuffix(base, "/v1") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		if strings.HasPrefix(line, "vllm:num_requests_running") && strings.Contains(line, `"`+model+`"`) {
			return strings.Fields(line)[1]
		}
	}
	t.Fatalf("no running requests of %s in the metrics", model)
	return ""
}
