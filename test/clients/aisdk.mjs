// Runs the AI SDK with its provider for OpenAI-compatible servers: a loop over tools, streams, objects. Arguments: base URL, API
// key, models. tools_test.go says what the model answers.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(import.meta.url);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { APICallError, generateObject, generateText, Output, stepCountIs, streamObject, streamText, tool } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { z } = await load("zod");

const [base, key, name] = process.argv.slice(2);
const model = createOpenAICompatible({ name: "openinfer", baseURL: base, apiKey: key, supportsStructuredOutputs: true, includeUsage: true })(name);
const two = "What is it like in two cities?", heard = "I heard: rain and sun.", ada = { name: "Ada", age: 36 };
const asked = [];
const tools = {
  weather: tool({ description: "D", inputSchema: z.object({ city: z.string() }), execute: async ({ city }) => {
    asked.push(city);
    return city === "Köln" ? "rain" : "sun";
  } }),
  now: tool({ description: "D", inputSchema: z.object({}), execute: async () => "noon" }),
};
const person = z.object({ name: z.string(), age: z.int().min(0).max(150) });
const common = { model, tools, stopWhen: stepCountIs(4), maxRetries: 0 };
let checks = 0;

const whole = await generateText({ ...common, prompt: two });
assert.deepEqual([whole.text, whole.steps.length, asked.splice(0)], [heard, 2, ["Köln", "Ulm"]]);
assert.equal(whole.steps[0].finishReason, "tool-calls");
checks++;

const stream = streamText({ ...common, prompt: two, onError: ({ error }) => { throw error; } });
let text = "", calls = 0;
for await (const part of stream.fullStream) {
  if (part.type === "text-delta") text += part.text;
  if (part.type === "tool-call") calls++;
  assert.notEqual(part.type, "error", JSON.stringify(part));
}
assert.deepEqual([text, calls, (await stream.steps).length, asked.splice(0)], [heard, 2, 2, ["Köln", "Ulm"]]);
assert.ok((await stream.totalUsage).outputTokens > 0);
checks++;

for (const [toolChoice, want] of [["required", "weather"], [{ type: "tool", toolName: "now" }, "now"]]) {
  const forced = await generateText({ ...common, stopWhen: stepCountIs(1), prompt: "hi", toolChoice });
  assert.deepEqual(forced.toolCalls.map((c) => c.toolName), [want]);
  checks++;
}
assert.deepEqual((await generateText({ ...common, prompt: "hi", toolChoice: "none" })).toolCalls, []);

assert.deepEqual((await generateObject({ model, schema: person, prompt: "Who?", maxRetries: 0 })).object, ada);
const parts = streamObject({ model, schema: person, prompt: "Who?", maxRetries: 0 });
for await (const _ of parts.partialObjectStream);
assert.deepEqual(await parts.object, ada);
assert.deepEqual((await generateText({ model, prompt: "Who?", output: Output.object({ schema: person }), maxRetries: 0 })).output, ada);
checks++;

await assert.rejects(generateText({ ...common, tools: { "a b": tools.now }, prompt: two }), (e) => {
  assert.ok(APICallError.isInstance(e), String(e));
  assert.equal(e.statusCode, 400);
  assert.match(e.message, /tools\[0\]\.function\.name/);
  return true;
});
checks++;
console.log(JSON.stringify({ clients: `AI SDK ${require("ai/package.json").version}, openai-compatible ${require("@ai-sdk/openai-compatible/package.json").version}`, checks }));
