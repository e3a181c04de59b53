// Runs the official JavaScript clients of Anthropic, of Ollama, and of OpenAI's Responses against a server. Arguments: base
// URL, API key, models.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(import.meta.url);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { default: Anthropic } = await load("@anthropic-ai/sdk");
const { Ollama } = await load("ollama");
const { default: OpenAI } = await load("openai");

const [base, key, ...models] = process.argv.slice(2);
const root = base.replace(/\/v1$/, "");
const claude = new Anthropic({ baseURL: root, apiKey: key, maxRetries: 0, timeout: 60_000 });
const llama = new Ollama({ host: root, headers: { Authorization: `Bearer ${key}` } });
const client = new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0, timeout: 60_000 });
const question = "Tell me a story about a fox.";

async function refused(status, what, call, says = "") {
  try {
    const result = await call();
    if (result?.[Symbol.asyncIterator]) for await (const _ of result);
  } catch (e) {
    assert.equal(e.status ?? e.status_code, status, `${what}: ${e}`);
    assert.ok(String(e.message ?? e.error).includes(says), `${what}: ${e}`);
    return;
  }
  assert.fail(`${what}: not refused`);
}

async function checkAnthropic(model) {
  const ask = { model, max_tokens: 24, temperature: 0, messages: [{ role: "user", content: question }] };
  const whole = await claude.messages.create(ask);
  const text = whole.content[0].text;
  assert.ok(text && whole.id.startsWith("msg_") && whole.usage.output_tokens <= 24);
  const stream = claude.messages.stream(ask);
  let pieces = "";
  stream.on("text", (t) => (pieces += t));
  const final = await stream.finalMessage();
  assert.deepEqual([pieces, final.content[0].text, final.stop_reason, final.usage.output_tokens], [text, text, whole.stop_reason, whole.usage.output_tokens]);
  const counted = await claude.messages.countTokens({ model, messages: ask.messages });
  assert.equal(counted.input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens);
  const beta = await claude.beta.messages.create({ ...ask, betas: ["context-management-2025-06-27"] }); // asks with ?beta=true
  assert.equal(beta.content[0].text, text);
  const listed = [];
  for await (const m of claude.models.list()) listed.push(m.id);
  assert.ok(listed.includes(model));
  await refused(400, "messages", () => claude.messages.create({ ...ask, messages: [] }), "messages: is empty");
  await refused(400, "streamed", () => claude.messages.create({ ...ask, temperature: 7, stream: true }), "temperature");
  await refused(404, "model", () => claude.messages.create({ ...ask, model: "no-such-model" }), "not_found_error");
}

async function checkOllama(model) {
  const ask = { model, messages: [{ role: "user", content: question }], options: { temperature: 0, num_predict: 24 } };
  const whole = await llama.chat(ask);
  const text = whole.message.content;
  assert.ok(text && whole.done && whole.eval_count <= 24);
  let pieces = "", last;
  for await (const part of await llama.chat({ ...ask, stream: true })) {
    pieces += part.message.content;
    last = part;
  }
  assert.deepEqual([pieces, last.done, last.done_reason, last.eval_count], [text, true, whole.done_reason, whole.eval_count]);
  assert.equal((await llama.generate({ model, prompt: question, options: ask.options })).response, text);
  assert.ok((await llama.list()).models.some((m) => m.name === `${model}:latest`));
  assert.ok((await llama.show({ model })).capabilities.includes("completion"));
  await refused(404, "model", () => llama.chat({ ...ask, model: "no-such-model" }), "not found");
  await refused(400, "options", () => llama.chat({ ...ask, stream: true, options: { top_p: 4 } }), "options.top_p");
  await refused(501, "embed", () => llama.embed({ model, input: "x" }), "not served");
}

async function checkResponses(model) {
  const ask = { model, input: question, temperature: 0, max_output_tokens: 24 };
  const whole = await client.responses.create(ask);
  assert.ok(whole.output_text && whole.usage.output_tokens <= 24);
  const kinds = [];
  let pieces = "";
  for await (const e of await client.responses.create({ ...ask, stream: true })) {
    assert.equal(e.sequence_number, kinds.length);
    kinds.push(e.type);
    if (e.type === "response.output_text.delta") pieces += e.delta;
  }
  assert.equal(pieces, whole.output_text);
  assert.deepEqual([kinds[0], kinds.at(-1)], ["response.created", `response.${whole.status}`]);
  const final = await client.responses.stream(ask).finalResponse();
  assert.equal(final.output_text, whole.output_text);
  await refused(400, "stored", () => client.responses.create({ ...ask, previous_response_id: "x" }), "previous_response_id");
  await refused(400, "streamed", () => client.responses.create({ ...ask, temperature: 7, stream: true }), "temperature");
}

let checks = 0;
for (const m of models) {
  for (const check of [checkAnthropic, checkOllama, checkResponses]) {
    await check(m);
    checks++;
  }
}
console.log(JSON.stringify({ clients: "JavaScript @anthropic-ai/sdk, ollama, openai", checks, models }));
