"""Runs the official Python client against a server. Arguments: base URL, API key, models."""

import asyncio
import json
import sys
import time
import urllib.request

import openai

base, key, *models = sys.argv[1:]
client = openai.OpenAI(base_url=base, api_key=key, max_retries=0, timeout=60)


def eq(got, want, what):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def refused(kind, what, call, param=None, code=None):
    try:
        result = call()
        for _ in result if hasattr(result, "__iter__") else ():
            pass
    except kind as e:
        if param:
            eq(e.param, param, f"{what}: param")
        if code:
            eq(e.code, code, f"{what}: code")
        return
    raise AssertionError(f"{what}: no {kind.__name__}")


def check_models():
    listed = [m.id for m in client.models.list()]
    for m in models:
        assert m in listed, f"{m} not in {listed}"
        eq(client.models.retrieve(m).id, m, "retrieve")
    refused(openai.NotFoundError, "unknown model", lambda: client.models.retrieve("no/such"), "model", "model_not_found")


def chat(model, **more):
    args = dict(model=model, temperature=0, max_tokens=24, messages=[
        {"role": "user", "content": [{"type": "text", "text": "Tell me a story "}, {"type": "text", "text": "about a fox."}]}])
    extra = more.pop("extra_body", {})
    return client.chat.completions.create(**(args | more), extra_body=extra)


def joined(stream, n=1):
    """Puts a stream together; checks its protocol."""
    text, finish, roles, usage, ids = [""] * n, [None] * n, [0] * n, None, set()
    for chunk in stream:
        ids.add((chunk.id, chunk.created))
        if not chunk.choices:
            assert usage is None
            usage = chunk.usage
            continue
        c = chunk.choices[0]
        assert finish[c.index] is None, "a chunk after the end"
        if hasattr(c, "delta"):
            roles[c.index] += c.delta.role == "assistant"
            text[c.index] += c.delta.content or ""
        else:
            text[c.index] += c.text
        finish[c.index] = c.finish_reason
    eq(len(ids), 1, "ids and times of one stream")
    return text, finish, roles, usage


def check_chat(model):
    endless = {"ignore_eos": True}
    whole = chat(model, extra_body=endless)
    choice = whole.choices[0]
    content = choice.message.content
    eq((choice.finish_reason, whole.usage.completion_tokens), ("length", 24), "limit")
    eq(whole.usage.total_tokens, whole.usage.prompt_tokens + 24, "usage")
    assert whole.usage.prompt_tokens_details.cached_tokens >= 0
    assert content and whole.model == model and whole.id.startswith("chatcmpl-")

    text, finish, roles, usage = joined(chat(model, stream=True, stream_options={"include_usage": True}, extra_body=endless))
    eq((text[0], finish[0], roles[0]), (content, "length", 1), "stream")
    eq((usage.prompt_tokens, usage.completion_tokens), (whole.usage.prompt_tokens, 24), "streamed usage")
    eq(joined(chat(model, stream=True, extra_body=endless))[3], None, "usage nobody asked for")
    eq(chat(model, max_completion_tokens=5, extra_body=endless).usage.completion_tokens, 5, "max_completion_tokens")

    stop = content[8:12]
    want = content[: content.index(stop)]
    got = chat(model, stop=[stop, "\x00never"], extra_body=endless)
    eq((got.choices[0].message.content, got.choices[0].finish_reason), (want, "stop"), "stop")
    text, finish, _, _ = joined(chat(model, stop=stop, stream=True, extra_body=endless))
    eq((text[0], finish[0]), (want, "stop"), "stop, streamed")

    sampled = dict(n=2, temperature=1, seed=7, max_tokens=8, extra_body=endless)
    both = chat(model, **sampled)
    eq([c.index for c in both.choices], [0, 1], "indexes")
    eq(both.usage.completion_tokens, 16, "usage over n")
    text, finish, roles, usage = joined(chat(model, stream=True, stream_options={"include_usage": True}, **sampled), 2)
    eq(text, [c.message.content for c in both.choices], "n = 2, streamed with the same seed")
    eq((finish, roles, usage.completion_tokens), (["length"] * 2, [1, 1], 16), "n = 2")


def check_logprobs(model):
    whole = chat(model, max_tokens=12, logprobs=True, top_logprobs=3, extra_body={"return_token_ids": True})
    choice = whole.choices[0]
    entries = choice.logprobs.content
    eq(len(entries), whole.usage.completion_tokens, "entries")
    eq(len(choice.token_ids), len(entries), "token ids")
    spoken = entries[:-1] if choice.finish_reason == "stop" else entries
    raw = b"".join(bytes(e.bytes) for e in spoken)
    eq(raw.decode("utf-8", "ignore"), choice.message.content, "bytes of the tokens")
    for e in entries:
        eq(len(e.top_logprobs), 3, "alternatives")
        eq(e.top_logprobs[0].logprob, e.logprob, "the greedy token is the most likely one")
        assert -9999 <= e.logprob <= 0
    streamed = []
    for chunk in chat(model, max_tokens=12, logprobs=True, top_logprobs=3, stream=True):
        if chunk.choices and chunk.choices[0].logprobs:
            streamed += [e.token for e in chunk.choices[0].logprobs.content]
    eq(streamed, [e.token for e in entries], "streamed logprobs")

    text = client.completions.create(model=model, prompt="Once upon a time", temperature=0, max_tokens=8, logprobs=2)
    lists = text.choices[0].logprobs
    eq({len(lists.tokens), len(lists.token_logprobs), len(lists.top_logprobs), len(lists.text_offset)},
       {text.usage.completion_tokens}, "lengths of the lists")
    eq(lists.text_offset[0], 0, "first offset")

    echo = client.completions.create(model=model, prompt="Once upon a time", temperature=0, max_tokens=0, echo=True, logprobs=1)
    lists = echo.choices[0].logprobs
    eq((echo.choices[0].text, echo.usage.completion_tokens), ("Once upon a time", 0), "echo")
    eq(len(lists.tokens), echo.usage.prompt_tokens, "prompt tokens")
    assert lists.token_logprobs[0] is None and all(x <= 0 for x in lists.token_logprobs[1:])


def check_completions(model):
    def complete(prompt, **more):
        extra = {"ignore_eos": True} | more.pop("extra_body", {})
        return client.completions.create(model=model, prompt=prompt, temperature=0, max_tokens=12, extra_body=extra, **more)

    prompts = ["Once upon a time", "The king said"]
    alone = [complete(p, extra_body={"return_token_ids": True}) for p in prompts]
    texts = [a.choices[0].text for a in alone]
    assert all(texts) and alone[0].object == "text_completion"
    many = complete(prompts)
    eq([c.text for c in many.choices], texts, "two prompts at once")
    eq(many.usage.prompt_tokens, sum(a.usage.prompt_tokens for a in alone), "usage over prompts")
    eq(joined(complete(prompts, stream=True), 2)[0], texts, "two prompts, streamed")
    ids = alone[0].choices[0].prompt_token_ids
    eq(complete(ids).choices[0].text, texts[0], "token ids")
    eq([c.text for c in complete([ids, ids]).choices], texts[:1] * 2, "lists of token ids")
    eq(client.completions.create(model=model, prompt=prompts[0], extra_body={"ignore_eos": True}).usage.completion_tokens, 16, "default limit")


def check_errors(model):
    bad = openai.BadRequestError
    refused(bad, "temperature", lambda: chat(model, temperature=3), "temperature")
    refused(bad, "n, streamed", lambda: chat(model, n=0, stream=True), "n")
    refused(bad, "messages", lambda: chat(model, messages=[]), "messages")
    refused(bad, "tools", lambda: chat(model, tools=[{"type": "function", "function": {"name": "f"}}]), "tools")
    refused(bad, "image", lambda: chat(model, messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:"}}]}]), "messages[0].content[0].type")
    refused(bad, "context", lambda: chat(model, max_tokens=10**6), "max_tokens", "context_length_exceeded")
    refused(bad, "surrogate", lambda: client.post("/completions", cast_to=object, content=(
        '{"model":"%s","prompt":"\\ud83d"}' % model).encode(), options={"headers": {"Content-Type": "application/json"}}), "prompt")
    for stream in (False, True):
        refused(openai.NotFoundError, "unknown model", lambda: chat("no-such-model", stream=stream), "model", "model_not_found")
    refused(openai.AuthenticationError, "wrong key", lambda: client.with_options(api_key="wrong").models.list(), code="invalid_api_key")
    raw = client.with_raw_response.models.list(extra_headers={"X-Request-Id": "from-python"})
    eq(raw.headers["x-request-id"], "from-python", "request id")


def running(model):
    text = urllib.request.urlopen(base.removesuffix("/v1") + "/metrics").read().decode()
    return [line for line in text.splitlines() if line.startswith("vllm:num_requests_running") and f'"{model}"' in line][0].split()[-1]


def check_cancel(model):
    stream = chat(model, stream=True, max_tokens=600, extra_body={"ignore_eos": True})
    for i, _ in enumerate(stream):
        if i == 3:
            break
    stream.close()
    for _ in range(200):
        if running(model) == "0":
            break
        time.sleep(0.05)
    eq(running(model), "0", "running after the client left")
    assert chat(model).choices[0].message.content


async def check_async():
    """All models at once, through the async client: each answer is its solo answer."""
    other = openai.AsyncOpenAI(base_url=base, api_key=key, max_retries=0, timeout=60)

    async def one(model):
        stream = await other.chat.completions.create(model=model, temperature=0, max_tokens=24, stream=True,
                                                     messages=[{"role": "user", "content": "Tell me a story about a fox."}])
        return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])

    solo = [await one(m) for m in models]
    eq(await asyncio.gather(*[one(m) for m in models * 3]), solo * 3, "several at once")


checks = 0
check_models()
for m in models:
    for check in (check_chat, check_logprobs, check_completions, check_errors, check_cancel):
        check(m)
        checks += 1
asyncio.run(check_async())
print(json.dumps({"client": f"Python openai {openai.__version__}", "checks": checks + 2, "models": models}))
