"""Runs frameworks that stand on the clients: Instructor, LiteLLM and the Agents SDK, with tools and objects. Arguments: base URL,
API key, models. tools_test.go says what the model answers."""

import asyncio
import importlib.metadata
import json
import os
import sys

base, key, model, *_ = sys.argv[1:]
os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", OPENAI_AGENTS_DISABLE_TRACING="1")  # they look nothing up

import agents
import instructor
import litellm
import openai
import pydantic

ONE = "What is the weather in Köln?"
TWO, HEARD = "What is it like in two cities?", "I heard: rain and sun."
litellm.telemetry, litellm.suppress_debug_info = False, True
checks = 0


class Person(pydantic.BaseModel):
    name: str
    age: int


ADA = {"name": "Ada", "age": 36}


def eq(got, want, what):
    global checks
    assert got == want, f"{what}: got {got!r}, want {want!r}"
    checks += 1


def user(text):
    return [{"role": "user", "content": text}]


def check_instructor():
    client = openai.OpenAI(base_url=base, api_key=key, max_retries=0, timeout=60)
    for mode in ("JSON_SCHEMA", "JSON"):
        ask = instructor.from_openai(client, mode=instructor.Mode[mode])
        eq(ask.chat.completions.create(model=model, response_model=Person, messages=user("Who?"), max_retries=1).model_dump(), ADA, mode)
    ask = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
    parts = list(ask.chat.completions.create_partial(model=model, response_model=Person, messages=user("Who?"), max_retries=1))
    eq((parts[-1].name, parts[-1].age), ("Ada", 36), "partial")

    class weather(pydantic.BaseModel):
        city: str

    ask = instructor.from_openai(client, mode=instructor.Mode.TOOLS)
    eq(ask.chat.completions.create(model=model, response_model=weather, messages=user("hi"), max_retries=1).model_dump(), {"city": "Köln"}, "TOOLS")


def check_litellm():
    def tool(name):
        return {"type": "function", "function": {"name": name, "description": "D", "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}

    tools = [tool("weather")]

    def ask(kind, messages, **more):
        where = {"openai": base, "hosted_vllm": base, "anthropic": base.removesuffix("/v1"), "ollama_chat": base.removesuffix("/v1")}
        return litellm.completion(model=f"{kind}/{model}", api_base=where[kind], api_key=key, messages=messages, num_retries=0, timeout=60, max_tokens=1000, **more)

    def called(message):
        return [(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls or []]

    both = [("weather", {"city": "Köln"}), ("weather", {"city": "Ulm"})]
    for kind in ("openai", "hosted_vllm", "anthropic", "ollama_chat"):
        message = ask(kind, user(TWO), tools=tools).choices[0].message
        eq(called(message), both, kind)
        # LiteLLM joins the calls of different objects of Ollama's stream into one, so there it gets one call
        question, want = (ONE, both[:1]) if kind == "ollama_chat" else (TWO, both)
        chunks = list(ask(kind, user(question), tools=tools, stream=True))
        eq(called(litellm.stream_chunk_builder(chunks).choices[0].message), want, f"{kind}, streamed")
        turns = user(TWO) + [message] + [{"role": "tool", "tool_call_id": c.id, "name": "weather", "content": r} for c, r in zip(message.tool_calls, ("rain", "sun"))]
        eq(ask(kind, turns, tools=tools).choices[0].message.content, HEARD, f"{kind}, results")
        if kind != "ollama_chat":  # which knows no tool_choice
            eq(called(ask(kind, user("hi"), tools=tools, tool_choice="required").choices[0].message), both[:1], f"{kind}, required")
        for what, more in (("name", {"tools": [tool("a b")]}), ("temperature", {"temperature": 9})):
            if (kind, what) == ("anthropic", "name"):  # which LiteLLM makes a good one of
                continue
            try:
                ask(kind, user(TWO), **more)
                raise AssertionError(f"{kind}: a bad {what} is not refused")
            except openai.APIError as e:
                assert what in str(e), e
                if kind != "ollama_chat":  # LiteLLM keeps no status of Ollama's
                    assert isinstance(e, litellm.BadRequestError), repr(e)
    for kind in ("openai", "hosted_vllm"):
        eq(Person.model_validate_json(ask(kind, user("Who?"), response_format=Person).choices[0].message.content).model_dump(), ADA, f"{kind}, object")


async def check_agents():
    own = openai.AsyncOpenAI(base_url=base, api_key=key, max_retries=0, timeout=60)
    asked = []

    @agents.function_tool
    def weather(city: str) -> str:
        """The weather of a city.

        Args:
            city: its name
        """
        asked.append(city)
        return "rain" if city == "Köln" else "sun"

    async def streamed(agent):
        run = agents.Runner.run_streamed(agent, TWO)
        async for _ in run.stream_events():
            pass
        return run.final_output

    for shape in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):
        agent = agents.Agent(name="A", instructions="Be short.", tools=[weather], model=shape(model=model, openai_client=own))
        eq((await agents.Runner.run(agent, TWO)).final_output, HEARD, shape.__name__)
        eq(sorted(asked), ["Köln", "Ulm"], "what was asked")
        eq(await streamed(agent), HEARD, f"{shape.__name__}, streamed")
        asked.clear()
        typed = agents.Agent(name="P", output_type=Person, model=shape(model=model, openai_client=own))
        eq((await agents.Runner.run(typed, "Who?")).final_output.model_dump(), ADA, f"{shape.__name__}, object")


agents.set_tracing_disabled(True)
check_instructor()
check_litellm()
asyncio.run(check_agents())
versions = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in ("instructor", "litellm", "openai-agents", "openai"))
print(json.dumps({"clients": versions, "checks": checks}))
