// Has the official JavaScript clients of OpenAI, Anthropic and Ollama call tools and ask for objects. Arguments: base URL, API key,
// models. tools_test.go says what the model answers.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(import.meta.url);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { default: OpenAI } = await load("openai");
const { default: Anthropic } = await load("@anthropic-ai/sdk");
const { Ollama } = await load("ollama");

const [base, key, model] = process.argv.slice(2);
const root = base.replace(/\/v1$/, "");
const client = new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0, timeout: 60_000 });
const claude = new Anthropic({ baseURL: root, apiKey: key, maxRetries: 0, timeout: 60_000 });
const llama = new Ollama({ host: root, headers: { Authorization: `Bearer ${key}` } });

const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const nothing = { type: "object", properties: {}, additionalProperties: false };
const schema = { type: "object", properties: { name: { type: "string" }, age: { type: "integer" } }, required: ["name", "age"], additionalProperties: false };
const tools = [["weather", city], ["now", nothing]].map(([name, parameters]) => ({ type: "function", function: { name, description: "D", parameters } }));
const one = "What is the weather in Köln?", two = "What is it like in two cities?";
const koeln = ["weather", { city: "Köln" }], ulm = ["weather", { city: "Ulm" }], now = ["now", {}], ada = { name: "Ada", age: 36 };
const heard = "I heard: rain and sun.";
const user = (content) => [{ role: "user", content }];
const weather = ({ city }) => (city === "Köln" ? "rain" : "sun");
const format = { type: "json_schema", json_schema: { name: "person", schema, strict: true } };

async function refused(status, kind, what, call, says) {
  try {
    const result = await call();
    if (result?.[Symbol.asyncIterator]) for await (const _ of result);
  } catch (e) {
    assert.ok(e instanceof kind, `${what}: ${e}`);
    assert.equal(e.status ?? e.status_code, status, `${what}: ${e}`);
    assert.ok(String(e.message ?? e.error).includes(says), `${what}: ${e}`);
    return;
  }
  assert.fail(`${what}: not refused`);
}

async function checkOpenAI() {
  const chat = (question, more) => client.chat.completions.create({ model, messages: user(question), tools, ...more });
  const called = (calls) => (calls ?? []).map((c) => [c.function.name, JSON.parse(c.function.arguments)]);
  const whole = (await chat(one)).choices[0];
  assert.deepEqual([called(whole.message.tool_calls), whole.message.content, whole.finish_reason], [[koeln], "Let me see.", "tool_calls"]);
  const both = (await chat(two)).choices[0].message;
  assert.deepEqual(called(both.tool_calls), [koeln, ulm]);
  const stream = client.chat.completions.stream({ model, messages: user(two), tools });
  const ended = [];
  stream.on("tool_calls.function.arguments.done", (e) => ended.push(JSON.parse(e.arguments)));
  const final = await stream.finalMessage();
  assert.deepEqual([called(final.tool_calls), ended], [[koeln, ulm], [koeln[1], ulm[1]]]);
  const turns = [...user(two), both, ...both.tool_calls.map((c) => ({ role: "tool", tool_call_id: c.id, content: weather(JSON.parse(c.function.arguments)) }))];
  assert.equal((await chat("", { messages: turns })).choices[0].message.content, heard);
  for (const stream of [false, true]) {
    const calls = async (more) => {
      const got = await chat("hi", { ...more, stream });
      if (!stream) return called(got.choices[0].message.tool_calls);
      const calls = [];
      for await (const chunk of got) for (const d of chunk.choices[0].delta.tool_calls ?? []) {
        calls[d.index] ??= { function: { name: d.function.name, arguments: "" } };
        calls[d.index].function.arguments += d.function.arguments ?? "";
      }
      return called(calls);
    };
    assert.deepEqual(await calls({ tool_choice: "required" }), [koeln]);
    assert.deepEqual(await calls({ tool_choice: { type: "function", function: { name: "now" } } }), [now]);
    assert.deepEqual(await calls({ tool_choice: "none" }), []);
  }
  const runner = client.chat.completions.runTools({ model, messages: user(two), tools: [
    { type: "function", function: { name: "weather", description: "D", parameters: city, parse: JSON.parse, function: weather } }] });
  assert.equal(await runner.finalContent(), heard);
  const person = await client.chat.completions.parse({ model, messages: user("Who?"), response_format: format });
  assert.deepEqual(JSON.parse(person.choices[0].message.content), ada);
  const bad = OpenAI.BadRequestError;
  for (const more of [{}, { stream: true }]) {
    await refused(400, bad, "no name", () => chat(one, { ...more, tools: [{ type: "function", function: {} }] }), "tools[0].function.name");
    await refused(400, bad, "choice", () => chat(one, { ...more, tool_choice: { type: "function", function: { name: "nope" } } }), "tool_choice");
  }
}

async function checkResponses() {
  const flat = tools.map((t) => ({ type: "function", strict: false, ...t.function }));
  const items = (r) => r.output.filter((o) => o.type === "function_call").map((o) => [o.name, JSON.parse(o.arguments)]);
  const respond = (input, more) => client.responses.create({ model, input, tools: flat, ...more });
  const whole = await respond(two);
  assert.deepEqual([items(whole), whole.status], [[koeln, ulm], "completed"]);
  assert.deepEqual(items(await client.responses.stream({ model, input: two, tools: flat }).finalResponse()), [koeln, ulm]);
  const results = whole.output.filter((o) => o.type === "function_call").map((o) => ({ type: "function_call_output", call_id: o.call_id, output: weather(JSON.parse(o.arguments)) }));
  assert.equal((await respond([...user(two), ...whole.output, ...results])).output_text, heard);
  assert.deepEqual(items(await respond("hi", { tool_choice: "required" })), [koeln]);
  assert.deepEqual(items(await respond("hi", { tool_choice: { type: "function", name: "now" } })), [now]);
  const parsed = await client.responses.parse({ model, input: "Who?", text: { format: { type: "json_schema", name: "person", schema, strict: true } } });
  assert.deepEqual(parsed.output_parsed ?? JSON.parse(parsed.output_text), ada);
  await refused(400, OpenAI.BadRequestError, "no name", () => respond(one, { tools: [{ type: "function" }] }), "tools[0]");
}

async function checkAnthropic() {
  const own = tools.map((t) => ({ name: t.function.name, description: "D", input_schema: t.function.parameters }));
  const ask = (question, more) => ({ model, max_tokens: 1000, messages: user(question), tools: own, ...more });
  const used = (m) => m.content.filter((b) => b.type === "tool_use").map((b) => [b.name, b.input]);
  const whole = await claude.messages.create(ask(one));
  assert.deepEqual([used(whole), whole.content[0].text, whole.stop_reason], [[koeln], "Let me see.", "tool_use"]);
  const stream = claude.messages.stream(ask(two));
  let parts = "";
  stream.on("inputJson", (part) => (parts += part));
  const final = await stream.finalMessage();
  assert.deepEqual([used(final), final.stop_reason, parts.split("city").length], [[koeln, ulm], "tool_use", 3]);
  const results = final.content.map((b) => ({ type: "tool_result", tool_use_id: b.id, content: weather(b.input) }));
  const turns = [...user(two), { role: "assistant", content: final.content }, { role: "user", content: results }];
  assert.equal((await claude.messages.create(ask("", { messages: turns }))).content[0].text, heard);
  assert.deepEqual(used(await claude.messages.create(ask("hi", { tool_choice: { type: "any" } }))), [koeln]);
  assert.deepEqual(used(await claude.messages.create(ask("hi", { tool_choice: { type: "tool", name: "now" } }))), [now]);
  const parsed = await claude.messages.parse({ model, max_tokens: 1000, messages: user("Who?"), output_config: { format: { type: "json_schema", schema } } });
  assert.deepEqual(parsed.parsed_output ?? JSON.parse(parsed.content[0].text), ada);
  await refused(400, Anthropic.BadRequestError, "no schema", () => claude.messages.create(ask(one, { tools: [{ name: "f" }] })), "tools[0]");
}

async function checkOllama() {
  const used = (calls) => (calls ?? []).map((c) => [c.function.name, c.function.arguments]);
  const whole = await llama.chat({ model, messages: user(two), tools });
  assert.deepEqual(used(whole.message.tool_calls), [koeln, ulm]);
  const calls = [];
  for await (const part of await llama.chat({ model, messages: user(two), tools, stream: true })) calls.push(...(part.message.tool_calls ?? []));
  assert.deepEqual(used(calls), [koeln, ulm]);
  const turns = [...user(two), whole.message, ...calls.map((c) => ({ role: "tool", tool_name: c.function.name, content: weather(c.function.arguments) }))];
  assert.equal((await llama.chat({ model, messages: turns, tools })).message.content, heard);
  assert.deepEqual(JSON.parse((await llama.chat({ model, messages: user("Who?"), format: schema })).message.content), ada);
  await refused(400, Error, "schema", () => llama.chat({ model, messages: user("Who?"), format: { type: "thing" } }), "format");
}

let checks = 0;
for (const check of [checkOpenAI, checkResponses, checkAnthropic, checkOllama]) {
  await check();
  checks++;
}
console.log(JSON.stringify({ clients: "JavaScript openai, @anthropic-ai/sdk, ollama", checks }));
