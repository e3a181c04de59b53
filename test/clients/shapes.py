"""Runs the official Python clients of Anthropic, of Ollama, and of OpenAI's Responses against a server. Arguments: base URL, API key, models."""

import asyncio
import json
import sys

import anthropic
import ollama
import openai

base, key, *models = sys.argv[1:]
root = base.removesuffix("/v1")
claude = anthropic.Anthropic(base_url=root, api_key=key, max_retries=0, timeout=60)
llama = ollama.Client(host=root, headers={"Authorization": f"Bearer {key}"}, timeout=60)
client = openai.OpenAI(base_url=base, api_key=key, max_retries=0, timeout=60)
question = "Tell me a story about a fox."
greedy = {"temperature": 0}


def eq(got, want, what):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def refused(kind, status, what, call, says=""):
    try:
        result = call()
        for _ in result if hasattr(result, "__iter__") and not isinstance(result, dict) else ():
            pass
    except kind as e:
        eq(e.status_code, status, what)
        assert says in str(e), f"{what}: {e}"
        return
    raise AssertionError(f"{what}: no {kind.__name__}")


def message(model, **more):
    args = dict(model=model, max_tokens=24, messages=[{"role": "user", "content": question}])
    return claude.messages.create(**(args | more), extra_body=greedy)


def check_anthropic(model):
    whole = message(model, system=[{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}], metadata={"user_id": "u"})
    text = whole.content[0].text
    assert text and whole.id.startswith("msg_") and whole.role == "assistant" and whole.model == model
    used = whole.usage
    assert whole.stop_reason in ("max_tokens", "end_turn") and 0 < used.output_tokens <= 24

    with claude.messages.stream(model=model, max_tokens=24, system="Be short.", messages=[{"role": "user", "content": [{"type": "text", "text": question}]}],
                                extra_body=greedy) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    eq(("".join(pieces), final.content[0].text, final.stop_reason), (text, text, whole.stop_reason), "stream")
    eq(final.usage.output_tokens, used.output_tokens, "streamed usage")
    prompt = used.input_tokens + used.cache_read_input_tokens
    eq(final.usage.input_tokens + final.usage.cache_read_input_tokens, prompt, "streamed input tokens")
    events = [e.type for e in message(model, system="Be short.", stream=True)]
    eq((events[0], events[-2:]), ("message_start", ["message_delta", "message_stop"]), "events")
    counted = claude.messages.count_tokens(model=model, system="Be short.", messages=[{"role": "user", "content": question}])
    eq(counted.input_tokens, prompt, "count_tokens")

    plain = message(model).content[0].text
    stop = plain[8:12]
    got = message(model, stop_sequences=[stop, "\x00never"])
    eq((got.content[0].text, got.stop_reason, got.stop_sequence), (plain[: plain.index(stop)], "stop_sequence", stop), "stop sequence")
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": [{"type": "text", "text": plain}]},
             {"role": "user", "content": "And then?"}]
    assert message(model, messages=turns).usage.output_tokens > 0
    eq(message(model, max_tokens=32000, stop_sequences=[stop]).stop_sequence, stop, "more tokens than there is room for")
    assert message(model, thinking={"type": "disabled"}).content[0].type == "text"

    listed = [m.id for m in claude.models.list()]
    assert model in listed and claude.models.retrieve(model).id == model
    bad = anthropic.BadRequestError
    refused(bad, 400, "messages", lambda: message(model, messages=[]), "messages: is empty")
    refused(bad, 400, "image", lambda: message(model, messages=[{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}]}]), "messages[0].content[0].type")
    refused(bad, 400, "max_tokens, streamed", lambda: message(model, max_tokens=0, stream=True), "max_tokens")
    refused(anthropic.NotFoundError, 404, "model", lambda: message("no-such-model"), "not_found_error")
    refused(anthropic.AuthenticationError, 401, "key", lambda: claude.with_options(api_key="wrong").messages.create(
        model=model, max_tokens=5, messages=[{"role": "user", "content": "hi"}]), "authentication_error")


def check_ollama(model):
    options = {"temperature": 0, "num_predict": 24}
    turns = [{"role": "system", "content": "Be short."}, {"role": "user", "content": question}]
    whole = llama.chat(model, turns, options=options)
    text = whole.message.content
    assert text and whole.done and whole.done_reason in ("stop", "length") and 0 < whole.eval_count <= 24 and whole.total_duration > 0
    parts = list(llama.chat(model + ":latest", turns, stream=True, options=options))
    eq(("".join(p.message.content for p in parts), parts[-1].done_reason), (text, whole.done_reason), "stream")
    eq([p.done for p in parts], [False] * (len(parts) - 1) + [True], "done")
    eq((parts[-1].prompt_eval_count, parts[-1].eval_count), (whole.prompt_eval_count, whole.eval_count), "counts")
    eq(llama.generate(model, question, system="Be short.", options=options).response, text, "generate")
    eq("".join(p.response for p in llama.generate(model, question, system="Be short.", options=options, stream=True)), text, "generate, streamed")
    raw = llama.generate(model, "Once upon a time", raw=True, options=options)
    eq(raw.response, client.completions.create(model=model, prompt="Once upon a time", temperature=0, max_tokens=24).choices[0].text, "raw")
    stop = text[8:12]
    eq(llama.chat(model, turns, options=options | {"stop": [stop]}).message.content, text[: text.index(stop)], "stop")

    names = [m.model for m in llama.list().models]
    assert model + ":latest" in names, names
    shown = llama.show(model)
    assert "completion" in shown.capabilities and shown.modelinfo[shown.modelinfo["general.architecture"] + ".context_length"] > 0
    eq(llama.generate(model, "", keep_alive=0).done_reason, "unload", "unload")
    eq(llama.chat(model, []).done_reason, "load", "load")
    assert model + ":latest" in [m.model for m in llama.ps().models]
    bad = ollama.ResponseError
    refused(bad, 404, "model", lambda: llama.chat("no-such-model", turns), "not found")
    refused(bad, 400, "options", lambda: llama.chat(model, turns, options={"temperature": 9}), "options.temperature")
    refused(bad, 400, "options, streamed", lambda: llama.chat(model, turns, stream=True, options={"num_ctx": 10**9}), "options.num_ctx")
    refused(bad, 501, "pull", lambda: llama.pull("llama3"), "not fetched")
    refused(bad, 501, "embed", lambda: llama.embed(model, "x"), "not served")
    refused(bad, 401, "key", lambda: ollama.Client(host=root).list())

    async def apart():
        other = ollama.AsyncClient(host=root, headers={"Authorization": f"Bearer {key}"})
        return "".join([p.message.content async for p in await other.chat(model, turns, stream=True, options=options)])

    eq(asyncio.run(apart()), text, "async")


def check_responses(model):
    def respond(**more):
        return client.responses.create(**(dict(model=model, instructions="Be short.", input=question, temperature=0, max_output_tokens=24) | more))

    whole = respond(metadata={"a": "b"}, store=False)
    text = whole.output_text
    assert text and whole.status in ("completed", "incomplete") and whole.id.startswith("resp_") and whole.metadata == {"a": "b"}
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    with client.responses.stream(model=model, instructions="Be short.", input=[{"role": "user", "content": question}], temperature=0, max_output_tokens=24) as stream:
        events = list(stream)
        final = events[-1].response
    eq("".join(e.delta for e in events if e.type == "response.output_text.delta"), text, "deltas")
    eq((final.output_text, final.status), (text, whole.status), "stream")
    eq([e.sequence_number for e in respond(stream=True)], list(range(len(list(respond(stream=True))))), "sequence numbers")
    turns = [{"role": "user", "content": question}] + [o.model_dump(exclude_none=True) for o in whole.output] + [{"role": "user", "content": "And then?"}]
    assert respond(input=turns).usage.output_tokens > 0
    eq(client.responses.input_tokens.count(model=model, instructions="Be short.", input=question).input_tokens, whole.usage.input_tokens, "input tokens")
    scored = respond(include=["message.output_text.logprobs"], top_logprobs=2)
    assert len(scored.output[0].content[0].logprobs) == scored.usage.output_tokens

    bad = openai.BadRequestError
    refused(bad, 400, "stored", lambda: respond(previous_response_id="resp_1"), "previous_response_id")
    refused(bad, 400, "background", lambda: respond(background=True), "background")
    refused(bad, 400, "image", lambda: respond(input=[{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]), "input[0].content[0].type")
    refused(openai.NotFoundError, 404, "model", lambda: respond(model="no-such-model"))
    refused(openai.APIStatusError, 501, "retrieve", lambda: client.responses.retrieve("resp_1"), "not stored")
    refused(openai.APIStatusError, 501, "embeddings", lambda: client.embeddings.create(model=model, input="x"), "not served")


checks = 0
for m in models:
    for check in (check_anthropic, check_ollama, check_responses):
        check(m)
        checks += 1
print(json.dumps({"clients": f"Python anthropic {anthropic.__version__}, ollama, openai {openai.__version__}", "checks": checks, "models": models}))
