//go:build clients

package clients

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

const (
	twoCities = "What is it like in two cities?"
	bothCalls = `weather{"city": "Köln"};weather{"city": "Ulm"};`
)

func cityTool(name string) openai.ChatCompletionToolUnionParam {
	return openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: name, Description: param.NewOpt("D"), Parameters: shared.FunctionParameters{
		"type": "object", "properties": map[string]any{"city": map[string]string{"type": "string"}}, "required": []string{"city"}}})
}

func called(calls []openai.ChatCompletionMessageToolCallUnion) (all string) {
	for _, c := range calls {
		all += c.Function.Name + c.Function.Arguments + ";"
	}
	return all
}

// checkGoTools has the official Go client call tools.
func checkGoTools(t *testing.T, base string) {
	client := openai.NewClient(option.WithBaseURL(base), option.WithAPIKey(key), option.WithMaxRetries(0))
	now := openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "now"})
	ask := func(question string) openai.ChatCompletionNewParams {
		return openai.ChatCompletionNewParams{Model: models[0], Tools: []openai.ChatCompletionToolUnionParam{cityTool("weather"), now},
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)}}
	}
	chat := func(p openai.ChatCompletionNewParams) openai.ChatCompletionChoice {
		t.Helper()
		c, err := client.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		return c.Choices[0]
	}
	whole := chat(ask(twoCities))
	if got := called(whole.Message.ToolCalls); got != bothCalls || whole.FinishReason != "tool_calls" {
		t.Errorf("calls %s, %s", got, whole.FinishReason)
	}
	stream, acc, finished := client.Chat.Completions.NewStreaming(t.Context(), ask(twoCities)), openai.ChatCompletionAccumulator{}, ""
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Errorf("a chunk that does not fit: %s", stream.Current().RawJSON())
		}
		if c, ok := acc.JustFinishedToolCall(); ok {
			finished += c.Name + c.Arguments + ";"
		}
	}
	if stream.Err() != nil || called(acc.Choices[0].Message.ToolCalls) != bothCalls || finished != bothCalls {
		t.Errorf("streamed %q, finished %q: %v", called(acc.Choices[0].Message.ToolCalls), finished, stream.Err())
	}
	p := ask(twoCities)
	p.Messages = append(p.Messages, whole.Message.ToParam(), openai.ToolMessage("rain", whole.Message.ToolCalls[0].ID), openai.ToolMessage("sun", whole.Message.ToolCalls[1].ID))
	if got := chat(p).Message.Content; got != "I heard: rain and sun." {
		t.Errorf("results: %q", got)
	}
	for want, choice := range map[string]openai.ChatCompletionToolChoiceOptionUnionParam{
		`weather{"city": "Köln"};`: {OfAuto: param.NewOpt("required")}, "": {OfAuto: param.NewOpt("none")},
		"now{}; ": openai.ToolChoiceOptionAllowedTools(openai.ChatCompletionAllowedToolsParam{Mode: "required",
			Tools: []map[string]any{{"type": "function", "function": map[string]any{"name": "now"}}}}),
		"now{};": openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "now"}),
	} {
		p := ask("hi")
		p.ToolChoice = choice
		if got := called(chat(p).Message.ToolCalls); got != strings.TrimSpace(want) {
			t.Errorf("tool_choice: %q, want %q", got, want)
		}
	}
	p = openai.ChatCompletionNewParams{Model: models[0], Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Who?")}}
	p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "person", Strict: param.NewOpt(true),
		// a text, as a map would lose the order of the properties, which is that of the answer
		Schema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"],"additionalProperties":false}`)}}
	var who struct {
		Name string `json:"name"`
		Age  int    `json:"age"`
	}
	if got := chat(p).Message.Content; json.Unmarshal([]byte(got), &who) != nil || who.Name != "Ada" || who.Age != 36 {
		t.Errorf("an object: %q", got)
	}
	p = ask("hi")
	p.Tools[0] = cityTool("a b")
	_, err := client.Chat.Completions.New(t.Context(), p)
	refused(t, err, 400, "tools[0].function.name", "")
	checkGoResponsesTools(t, client)
}

func checkGoResponsesTools(t *testing.T, client openai.Client) {
	ask := responses.ResponseNewParams{Model: models[0], Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(twoCities)}, Tools: []responses.ToolUnionParam{
		responses.ToolParamOfFunction("weather", map[string]any{"type": "object", "properties": map[string]any{"city": map[string]string{"type": "string"}}}, false)}}
	whole, err := client.Responses.New(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	got, streamed := "", ""
	for _, o := range whole.Output {
		if o.Type == "function_call" {
			got += o.Name + o.Arguments.OfString + ";"
		}
	}
	stream := client.Responses.NewStreaming(t.Context(), ask)
	for stream.Next() {
		if e := stream.Current(); e.Type == "response.output_item.done" && e.Item.Type == "function_call" {
			streamed += e.Item.Name + e.Item.Arguments.OfString + ";"
		}
	}
	if got != bothCalls || streamed != bothCalls || stream.Err() != nil {
		t.Errorf("calls %q, streamed %q: %v", got, streamed, stream.Err())
	}
}
