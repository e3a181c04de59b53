"""Has the official Python clients of OpenAI, Anthropic and Ollama call tools and ask for objects. Arguments: base URL, API key,
models. tools_test.go says what the model answers."""

import asyncio
import json
import sys

import anthropic
import ollama
import openai
import pydantic

base, key, *models = sys.argv[1:]
root = base.removesuffix("/v1")
claude = anthropic.Anthropic(base_url=root, api_key=key, max_retries=0, timeout=60)
llama = ollama.Client(host=root, headers={"Authorization": f"Bearer {key}"}, timeout=60)
client = openai.OpenAI(base_url=base, api_key=key, max_retries=0, timeout=60)

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
NONE = {"type": "object", "properties": {}, "additionalProperties": False}
ONE = "What is the weather in Köln?"
TWO = "What is it like in two cities?"
SAID = "I heard: rain."


class Person(pydantic.BaseModel):
    name: str
    age: int


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


def function(name, parameters, **more):
    return {"type": "function", "function": {"name": name, "description": "D", "parameters": parameters} | more}


tools = [function("weather", CITY), function("now", NONE)]


def called(calls):
    return [(c.function.name, json.loads(c.function.arguments)) for c in calls or []]


KOELN, ULM, NOW = ("weather", {"city": "Köln"}), ("weather", {"city": "Ulm"}), ("now", {})


def check_openai(model):
    def chat(question=ONE, **more):
        return client.chat.completions.create(**(dict(model=model, messages=[{"role": "user", "content": question}], tools=tools) | more))

    def streamed(question=ONE, **more):
        """Puts a stream together as clients do: by the index of each call."""
        calls, content, finish = {}, "", None
        for chunk in chat(question, stream=True, **more):
            c = chunk.choices[0]
            content, finish = content + (c.delta.content or ""), c.finish_reason or finish
            for d in c.delta.tool_calls or []:
                if d.index not in calls:
                    assert d.id and d.type == "function" and d.function.name, d
                    calls[d.index] = [d.function.name, ""]
                calls[d.index][1] += d.function.arguments or ""
        return [(name, json.loads(a)) for _, (name, a) in sorted(calls.items())], content, finish

    whole = chat().choices[0]
    eq((called(whole.message.tool_calls), whole.message.content, whole.finish_reason), ([KOELN], "Let me see.", "tool_calls"), "whole")
    eq(streamed(), ([KOELN], "Let me see.", "tool_calls"), "streamed")
    both = chat(TWO).choices[0].message
    eq((called(both.tool_calls), len({c.id for c in both.tool_calls})), ([KOELN, ULM], 2), "parallel")
    eq(streamed(TWO)[0], [KOELN, ULM], "parallel, streamed")
    eq(called(chat(TWO, parallel_tool_calls=False).choices[0].message.tool_calls), [KOELN], "not parallel")
    eq(streamed(TWO, parallel_tool_calls=False)[0], [KOELN], "not parallel, streamed")
    eq(chat("hi").choices[0].finish_reason, "stop", "no call")

    def back(message):
        return [{"role": "user", "content": TWO}, message, {"role": "tool", "tool_call_id": both.tool_calls[0].id, "content": "rain"},
                {"role": "tool", "tool_call_id": both.tool_calls[1].id, "content": [{"type": "text", "text": "sun"}]}]

    eq(chat(messages=back(both)).choices[0].message.content, "I heard: rain and sun.", "results")
    eq(chat(messages=back(both.model_dump())).choices[0].message.content, "I heard: rain and sun.", "results, with every null")
    eq(streamed(messages=back(both)), ([], "I heard: rain and sun.", "stop"), "results, streamed")

    # a question that needs none gets a call when one has to be
    named = {"type": "function", "function": {"name": "now"}}
    for get in (lambda **more: called(chat("hi", **more).choices[0].message.tool_calls), lambda **more: streamed("hi", **more)[0]):
        eq(get(tool_choice="required"), [KOELN], "required")
        eq(get(tool_choice=named), [NOW], "named")
        eq(get(tool_choice="none"), [], "none")
    eq(chat(tools=[function("weather", CITY, strict=True)]).choices[0].message.tool_calls[0].function.name, "weather", "strict")

    with client.chat.completions.stream(model=model, messages=[{"role": "user", "content": TWO}],
                                        tools=[openai.pydantic_function_tool(Person), function("weather", CITY, strict=True)]) as stream:
        done = [json.loads(e.arguments) for e in stream if e.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0].message
    eq((done, called(final.tool_calls)), ([KOELN[1], ULM[1]], [KOELN, ULM]), "the stream helper")
    person = client.chat.completions.parse(model=model, messages=[{"role": "user", "content": "Who?"}], response_format=Person)
    eq(person.choices[0].message.parsed, Person(name="Ada", age=36), "parse")
    with client.chat.completions.stream(model=model, messages=[{"role": "user", "content": "Who?"}], response_format=Person) as stream:
        for _ in stream:
            pass
        eq(stream.get_final_completion().choices[0].message.parsed, Person(name="Ada", age=36), "parse, streamed")
    eq(json.loads(chat("Who?", tools=openai.omit, response_format={"type": "json_object"}).choices[0].message.content), {"name": "Ada", "age": 36}, "json_object")

    bad = openai.BadRequestError
    for what, more, says in (
        ("no name", {"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ("type", {"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ("parameters", {"tools": [function("f", {"type": "thing"})]}, "tools[0].function.parameters"),
        ("schema", {"tools": [function("f", {"type": "object", "properties": {"a": {"type": "thing"}}}, strict=True)]}, "strict"),
        ("unknown choice", {"tool_choice": {"type": "function", "function": {"name": "nope"}}}, "tool_choice.function.name"),
        ("no tools", {"tools": [], "tool_choice": "required"}, "tool_choice"),
        ("two forms", {"tool_choice": "required", "response_format": {"type": "json_object"}}, "response_format"),
        ("result of none", {"messages": [{"role": "tool", "tool_call_id": 5, "content": "x"}]}, "messages[0]"),
    ):
        refused(bad, 400, what, lambda more=more: chat(**more), says)
        refused(bad, 400, what + ", streamed", lambda more=more: chat(stream=True, **more), says)


def check_responses(model):
    flat = [{"type": "function", "name": t["function"]["name"], "parameters": t["function"]["parameters"], "strict": False} for t in tools]

    def respond(question=ONE, **more):
        return client.responses.create(**(dict(model=model, input=question, tools=flat) | more))

    def items(r):
        return [(o.name, json.loads(o.arguments)) for o in r.output if o.type == "function_call"]

    whole = respond(TWO)
    eq((items(whole), whole.status), ([KOELN, ULM], "completed"), "whole")
    with client.responses.stream(model=model, input=TWO, tools=flat) as stream:
        events = list(stream)
        final = events[-1].response
    eq(items(final), [KOELN, ULM], "streamed")
    eq([json.loads(e.arguments) for e in events if e.type == "response.function_call_arguments.done"], [KOELN[1], ULM[1]], "done")
    joined = {}
    for e in events:
        if e.type == "response.function_call_arguments.delta":
            joined[e.output_index] = joined.get(e.output_index, "") + e.delta
    eq([json.loads(v) for _, v in sorted(joined.items())], [KOELN[1], ULM[1]], "deltas")
    asked = [{"role": "user", "content": TWO}, *whole.output] + [{"type": "function_call_output", "call_id": o.call_id, "output": "rain"} for o in whole.output if o.type == "function_call"]
    eq(respond(asked).output_text, "I heard: rain and rain.", "results")
    eq(items(respond("hi", tool_choice="required")), [KOELN], "required")
    eq(items(respond("hi", tool_choice={"type": "function", "name": "now"})), [NOW], "named")
    eq(client.responses.parse(model=model, input="Who?", text_format=Person).output_parsed, Person(name="Ada", age=36), "parse")
    refused(openai.BadRequestError, 400, "no name", lambda: respond(tools=[{"type": "function"}]), "tools[0]")
    refused(openai.BadRequestError, 400, "unknown choice", lambda: respond(tool_choice={"type": "function", "name": "nope"}), "tool_choice")


def check_anthropic(model):
    own = [{"name": t["function"]["name"], "description": "D", "input_schema": t["function"]["parameters"]} for t in tools]

    def ask(question=ONE, **more):
        return dict(model=model, max_tokens=1000, messages=[{"role": "user", "content": question}], tools=own) | more

    def message(*a, **more):
        return claude.messages.create(**ask(*a, **more))

    def used(m):
        return [(b.name, b.input) for b in m.content if b.type == "tool_use"]

    whole = message()
    eq((used(whole), whole.content[0].text, whole.stop_reason), ([KOELN], "Let me see.", "tool_use"), "whole")
    with claude.messages.stream(**ask(TWO)) as stream:
        parts = "".join(e.partial_json for e in stream if e.type == "input_json")
        final = stream.get_final_message()
    eq((used(final), final.stop_reason), ([KOELN, ULM], "tool_use"), "streamed")
    assert parts.count("city") == 2, parts
    results = [{"type": "tool_result", "tool_use_id": b.id, "content": c} for b, c in zip(final.content, ("rain", [{"type": "text", "text": "sun"}]))]
    turns = [{"role": "user", "content": TWO}, {"role": "assistant", "content": final.content}, {"role": "user", "content": results}]
    eq(message(messages=turns).content[0].text, "I heard: rain and sun.", "results")
    eq(used(message("hi", tool_choice={"type": "any"})), [KOELN], "any")
    eq(used(message("hi", tool_choice={"type": "tool", "name": "now"})), [NOW], "named")
    eq(used(message(TWO, tool_choice={"type": "auto", "disable_parallel_tool_use": True})), [KOELN], "not parallel")
    parsed = claude.messages.parse(model=model, max_tokens=1000, messages=[{"role": "user", "content": "Who?"}], output_format=Person)
    eq(parsed.parsed_output, Person(name="Ada", age=36), "parse")

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """The weather of a city.

        Args:
            city: its name
        """
        return "rain" if city == "Köln" else "sun"

    runner = claude.beta.messages.tool_runner(model=model, max_tokens=1000, tools=[weather], messages=[{"role": "user", "content": TWO}])
    eq(runner.until_done().content[0].text, "I heard: rain and sun.", "the tool runner")
    bad = anthropic.BadRequestError
    refused(bad, 400, "no schema", lambda: message(tools=[{"name": "f"}]), "tools[0]")
    refused(bad, 400, "unknown choice", lambda: message(tool_choice={"type": "tool", "name": "nope"}), "tool_choice")
    refused(bad, 400, "hosted", lambda: message(tools=[{"type": "web_search_20250305", "name": "web_search"}]), "tools[0]")


def check_ollama(model):
    def weather(city: str) -> str:
        """The weather of a city.

        Args:
            city: its name
        """
        return "rain" if city == "Köln" else "sun"

    def used(calls):
        return [(c.function.name, dict(c.function.arguments)) for c in calls or []]

    for kind in ([weather], tools):
        whole = llama.chat(model, [{"role": "user", "content": TWO}], tools=kind)
        eq(used(whole.message.tool_calls), [KOELN, ULM], "whole")
        calls = [c for p in llama.chat(model, [{"role": "user", "content": TWO}], tools=kind, stream=True) for c in p.message.tool_calls or []]
        eq(used(calls), [KOELN, ULM], "streamed")
    turns = [{"role": "user", "content": TWO}, whole.message] + [{"role": "tool", "content": weather(**c.function.arguments), "tool_name": c.function.name} for c in calls]
    eq(llama.chat(model, turns, tools=[weather]).message.content, "I heard: rain and sun.", "results")
    eq(Person.model_validate_json(llama.chat(model, [{"role": "user", "content": "Who?"}], format=Person.model_json_schema()).message.content), Person(name="Ada", age=36), "format")
    eq(json.loads(llama.generate(model, "Who?", format="json").response), {"name": "Ada", "age": 36}, "json")
    assert "tools" in llama.show(model).capabilities
    refused(ollama.ResponseError, 400, "schema", lambda: llama.chat(model, [{"role": "user", "content": "Who?"}], format={"type": "thing"}), "format")

    async def apart():
        other = ollama.AsyncClient(host=root, headers={"Authorization": f"Bearer {key}"})
        return used((await other.chat(model, [{"role": "user", "content": ONE}], tools=[weather])).message.tool_calls)

    eq(asyncio.run(apart()), [KOELN], "async")


checks = 0
model = models[0]
for check in (check_openai, check_responses, check_anthropic, check_ollama):
    check(model)
    checks += 1
print(json.dumps({"clients": f"Python openai {openai.__version__}, anthropic {anthropic.__version__}, ollama", "checks": checks}))
