// Runs the official JavaScript client against a server. Arguments: base URL, API key, models.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The package lies in a cache folder, which NODE_PATH names; imports do not look there, require does.
const require = createRequire(import.meta.url);
const { default: OpenAI } = await import(pathToFileURL(require.resolve("openai")));

const [base, key, ...models] = process.argv.slice(2);
const options = { baseURL: base, apiKey: key, maxRetries: 0, timeout: 60_000 };
const client = new OpenAI(options);

async function refused(status, what, call, param, code) {
  try {
    const result = await call();
    if (result?.[Symbol.asyncIterator]) for await (const _ of result);
  } catch (e) {
    assert.equal(e.status, status, `${what}: ${e}`);
    if (param) assert.equal(e.param, param, what);
    if (code) assert.equal(e.code, code, what);
    return;
  }
  assert.fail(`${what}: not refused`);
}

async function checkModels() {
  const listed = [];
  for await (const m of client.models.list()) listed.push(m.id);
  for (const m of models) {
    assert.ok(listed.includes(m), `${m} in ${listed}`);
    assert.equal((await client.models.retrieve(m)).id, m);
  }
  await refused(404, "unknown model", () => client.models.retrieve("no/such"), "model", "model_not_found");
}

const chat = (model, more) => client.chat.completions.create({
  model, temperature: 0, max_tokens: 24, messages: [{ role: "user", content: "Tell me a story about a fox." }], ...more,
});

// joined puts a stream together.
async function joined(stream, n = 1) {
  const text = Array(n).fill(""), finish = Array(n).fill(null), roles = Array(n).fill(0);
  let usage = null;
  for await (const chunk of stream) {
    if (chunk.choices.length === 0) {
      assert.equal(usage, null, "one usage chunk");
      usage = chunk.usage;
      continue;
    }
    const c = chunk.choices[0];
    assert.equal(finish[c.index], null, "a chunk after the end");
    if (c.delta) {
      if (c.delta.role === "assistant") roles[c.index]++;
      text[c.index] += c.delta.content ?? "";
    } else {
      text[c.index] += c.text;
    }
    finish[c.index] = c.finish_reason;
  }
  return { text, finish, roles, usage };
}

async function checkChat(model) {
  const endless = { ignore_eos: true };
  const whole = await chat(model, endless);
  const content = whole.choices[0].message.content;
  assert.ok(content.length > 0);
  assert.equal(whole.choices[0].finish_reason, "length");
  assert.equal(whole.usage.completion_tokens, 24);
  assert.ok(whole.usage.prompt_tokens_details.cached_tokens >= 0);

  const parts = await joined(await chat(model, { ...endless, stream: true, stream_options: { include_usage: true } }));
  assert.deepEqual([parts.text, parts.finish, parts.roles], [[content], ["length"], [1]]);
  assert.equal(parts.usage.total_tokens, whole.usage.total_tokens);
  assert.equal((await joined(await chat(model, { ...endless, stream: true }))).usage, null);

  const stop = [...content].slice(8, 12).join(""), // whole characters
     want = content.slice(0, content.indexOf(stop));
  const stopped = await chat(model, { ...endless, stop });
  assert.deepEqual([stopped.choices[0].message.content, stopped.choices[0].finish_reason], [want, "stop"]);
  assert.deepEqual((await joined(await chat(model, { ...endless, stop: [stop], stream: true }))).text, [want]);

  const sampled = { ...endless, n: 2, temperature: 1, seed: 7, max_tokens: 8 };
  const both = await chat(model, sampled);
  assert.equal(both.usage.completion_tokens, 16);
  const streamed = await joined(await chat(model, { ...sampled, stream: true }), 2);
  assert.deepEqual(streamed.text, both.choices.map((c) => c.message.content));
  assert.deepEqual(streamed.finish, ["length", "length"]);

  // the client's own helper puts a stream together, too
  const helped = await client.chat.completions.stream({
    model, temperature: 0, max_tokens: 24, messages: [{ role: "user", content: "Tell me a story about a fox." }], ...endless,
  }).finalChatCompletion();
  assert.equal(helped.choices[0].message.content, content);
}

async function checkLogprobs(model) {
  const whole = await chat(model, { max_tokens: 12, logprobs: true, top_logprobs: 3 });
  const choice = whole.choices[0], entries = choice.logprobs.content;
  assert.equal(entries.length, whole.usage.completion_tokens);
  const spoken = choice.finish_reason === "stop" ? entries.slice(0, -1) : entries;
  const text = Buffer.from(spoken.flatMap((e) => e.bytes)).toString("utf8").replace(/\ufffd+$/, "");
  assert.equal(text, choice.message.content);
  for (const e of entries) assert.equal(e.top_logprobs.length, 3);

  const legacy = await client.completions.create({ model, prompt: "Once upon a time", temperature: 0, max_tokens: 8, logprobs: 2 });
  const lists = legacy.choices[0].logprobs;
  for (const list of [lists.tokens, lists.token_logprobs, lists.top_logprobs, lists.text_offset]) {
    assert.equal(list.length, legacy.usage.completion_tokens);
  }
  const echo = await client.completions.create({ model, prompt: "Once upon a time", max_tokens: 0, echo: true, logprobs: 1 });
  assert.equal(echo.choices[0].text, "Once upon a time");
  assert.equal(echo.choices[0].logprobs.token_logprobs[0], null);
}

async function checkCompletions(model) {
  const complete = (prompt, more) => client.completions.create({ model, prompt, temperature: 0, max_tokens: 12, ignore_eos: true, ...more });
  const prompts = ["Once upon a time", "The king said"];
  const texts = [];
  for (const p of prompts) texts.push((await complete(p)).choices[0].text);
  const many = await complete(prompts);
  assert.deepEqual(many.choices.map((c) => c.text), texts);
  assert.deepEqual((await joined(await complete(prompts, { stream: true }), 2)).text, texts);
}

async function checkErrors(model) {
  await refused(400, "temperature", () => chat(model, { temperature: 3 }), "temperature");
  await refused(400, "n, streamed", () => chat(model, { n: 0, stream: true }), "n");
  await refused(400, "tools", () => chat(model, { tools: [{ type: "function", function: { name: "f" } }] }), "tools");
  await refused(400, "lone surrogate", () => chat(model, { messages: [{ role: "user", content: "\ud83d" }] }), "messages");
  for (const stream of [false, true]) {
    await refused(404, "unknown model", () => chat("no-such-model", { stream }), "model", "model_not_found");
  }
  await refused(401, "wrong key", () => new OpenAI({ ...options, apiKey: "wrong" }).models.list(), null, "invalid_api_key");
}

async function running(model) {
  const text = await (await fetch(base.replace(/\/v1$/, "/metrics"))).text();
  return text.split("\n").find((l) => l.startsWith("vllm:num_requests_running") && l.includes(`"${model}"`)).split(" ").at(-1);
}

async function checkCancel(model) {
  const stream = await chat(model, { stream: true, max_tokens: 600, ignore_eos: true });
  let seen = 0;
  for await (const _ of stream) if (++seen === 3) break; // the client aborts the request
  for (let i = 0; i < 200 && (await running(model)) !== "0"; i++) await new Promise((r) => setTimeout(r, 50));
  assert.equal(await running(model), "0", "running after the client left");
  assert.ok((await chat(model)).choices[0].message.content);
}

let checks = 1;
await checkModels();
for (const m of models) {
  for (const check of [checkChat, checkLogprobs, checkCompletions, checkErrors, checkCancel]) {
    await check(m);
    checks++;
  }
}
const { VERSION } = require("openai/version");
console.log(JSON.stringify({ client: `JavaScript openai ${VERSION}`, checks, models }));
