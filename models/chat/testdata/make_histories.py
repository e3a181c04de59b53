# Renders conversations that call tools by the reference templates (shared/golden/chat) with Python's jinja2 in transformers'
# settings, after what vLLM does to messages first: arguments are objects, content that is not there is empty text.
# Run: python3 make_histories.py GOLDEN_CHAT_FOLDER > histories.json
import copy, json, os, sys
from make_jinja import env

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Get the weather.", "parameters": {"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "The time."}},
]


def call(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(id, name, content):
    return {"role": "tool", "tool_call_id": id, "name": name, "content": content}


U, CITY = {"role": "user", "content": "Weather?"}, {"city": "Zürich \"ZH\"\n", "days": 3}
DEEP = {"s": "a", "n": -1.5, "i": 7, "t": True, "f": False, "z": None, "l": [1, "x", [], {}], "o": {"k": {"m": "v"}}}
CONVERSATIONS = {
    "one call": [U, {"role": "assistant", "content": "", "tool_calls": [call("call00001", "get_weather", CITY)]}, result("call00001", "get_weather", "rain")],
    "an answer after it": [U, {"role": "assistant", "content": "", "tool_calls": [call("call00001", "get_weather", CITY)]}, result("call00001", "get_weather", "rain"),
                           {"role": "assistant", "content": "It rains."}, {"role": "user", "content": "And now?"}],
    "text beside a call": [U, {"role": "assistant", "content": "Let me see.", "tool_calls": [call("call00001", "get_weather", CITY)]}, result("call00001", "get_weather", "rain")],
    "two calls": [U, {"role": "assistant", "content": "", "tool_calls": [call("call00001", "get_weather", CITY), call("call00002", "now", {})]},
                  result("call00001", "get_weather", "rain"), result("call00002", "now", "12:00")],
    "calls in a row": [U, {"role": "assistant", "content": "", "tool_calls": [call("call00001", "now", {})]}, result("call00001", "now", "12:00"),
                       {"role": "assistant", "content": "", "tool_calls": [call("call00002", "get_weather", CITY)]}, result("call00002", "get_weather", "rain")],
    "no arguments": [U, {"role": "assistant", "content": "", "tool_calls": [call("call00001", "now", {})]}, result("call00001", "now", "12:00")],
    "all kinds of values": [U, {"role": "assistant", "content": "", "tool_calls": [call("call00001", "get_weather", DEEP)]}, result("call00001", "get_weather", "rain")],
    "a result in JSON": [U, {"role": "assistant", "content": "", "tool_calls": [call("call00001", "now", {})]}, result("call00001", "now", "{\"h\": 12, \"ü\": [null]}")],
    "an empty result": [U, {"role": "assistant", "content": "", "tool_calls": [call("call00001", "now", {})]}, result("call00001", "now", "")],
    "reasoning": [U, {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call("call00001", "now", {})]}, result("call00001", "now", "12:00")],
}

out = {"what": "conversations with calls, rendered by the reference templates after vLLM's normalisation", "tools": TOOLS, "conversations": CONVERSATIONS, "rendered": {}}
for family in ["qwen3", "qwen3.5", "qwen3.6", "llama-3.1", "llama-3.2", "gemma4", "ministral-3", "gpt-oss", "glm"]:
    with open(os.path.join(sys.argv[1], family + ".json"), encoding="utf-8") as f:
        d = json.load(f)
    variables = {k: d[k] for k in ("bos_token", "eos_token") if d.get(k) is not None}
    texts = {}
    for name, messages in CONVERSATIONS.items():
        messages = copy.deepcopy(messages)
        for m in messages:  # transformers 5 gives templates both names
            if "reasoning_content" in m:
                m["thinking"] = m["reasoning"] = m["reasoning_content"]
        try:
            text = env.from_string(d["template"]).render(messages=messages, tools=copy.deepcopy(TOOLS), documents=None, add_generation_prompt=True, **variables)
            texts[name] = text[text.index(U["content"]):]  # what is before it is tested elsewhere
        except Exception as e:
            texts[name] = None
            print(family, name, type(e).__name__, e, file=sys.stderr)
    out["rendered"][family] = texts
json.dump(out, sys.stdout, ensure_ascii=False, indent=0)
