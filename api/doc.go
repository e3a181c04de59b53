// Package api is the HTTP face of OpenInfer: OpenAI's endpoints with vLLM's additions, Anthropic's messages
// and Ollama's API over the same engine, server-sent events, health and metrics.
//
// It owns wire types, the checks that need no model, the one table from errors to status codes and
// the life of a connection. It does not tokenize, render templates or assemble text: that is behind
// Generator, which engine.Engine satisfies.
//
// Invariant: every request gets exactly one reply. It is a whole JSON body, or a stream that ends
// with its API's one last event ("data: [DONE]", message_stop, response.completed, "done": true) or with one error event; no input makes a 5xx, and when a client goes, what
// it asked for is cancelled before its handler returns.
//
// # Endpoints
//
//	GET  /v1/models, /v1/models/{id}    ids may hold slashes, escaped or not
//	POST /v1/models/load                {"model"}: answers when the weights are on the device
//	POST /v1/models/unload              {"model", "force"}: and when they have left it
//	GET  /v1/state                      what fills the device, what runs and how fast: package api/state
//	POST /v1/requests/cancel            {"id"}, as /v1/state lists it
//	POST /v1/chat/completions
//	POST /v1/completions
//	POST /tokenize, /detokenize
//	POST /v1/messages, /v1/messages/count_tokens            Anthropic's
//	POST /v1/responses, /v1/responses/input_tokens          OpenAI's
//	POST /api/chat, /api/generate, /api/show                Ollama's
//	GET  /api/tags, /api/ps, /api/version
//	GET  /openapi.json                  all of this in OpenAPI 3.1
//	GET  /health, /healthz              200, or 503 when the step loop's heartbeat is stale
//	GET  /readyz                        200, or 503 until every model is loaded
//	GET  /metrics, /version
//	     /models/{id}/...               each of these as if that model were the only one: for programs that take the
//	                                    first of /v1/models, and of each metric's series, for theirs
//	GET  /, /ui/...                     the page, which chats and shows the server live
//
// With API keys configured, /v1/..., /api/..., /tokenize and /detokenize need one, as Authorization: Bearer KEY or
// X-Api-Key: KEY; the others, and /api/version, stay open, as what watches a server seldom has a key. The page's files are open
// too; it asks its reader for a key when the API does. Every key may see the state of all models and requests, which has no
// text of any, load and unload models, and cancel every request: who has a key is trusted to operate the server. A key beyond its
// limits gets 429 with Retry-After and X-Ratelimit-* headers.
//
// The client of a request that is cancelled gets its one reply: 410, or as the last event of its stream the same error, with the
// code request_cancelled.
//
// Paths of these APIs that nothing is behind (embeddings, images, audio, moderations, files, batches, stored responses, Ollama's
// pull and the like: see unserved) answer 501 in their API's words, and tell clients not to try again.
//
// # Requests
//
// Field names match by case, null means the default, a whole number may be written 16.0, a name
// given twice is refused, unknown fields are ignored. Text must be valid UTF-8 and escapes must
// not be lone surrogates: the error says where. What is known but would change the answer if it
// were left out is refused by name (functions, images, suffix, best_of above 1,
// adapters and more: see refusals). Known and harmless, so ignored: metadata, store,
// service_tier, safety_identifier, prompt_cache_key, prompt_cache_retention,
// request_id, length_penalty, spaces_between_special_tokens, guided_decoding_backend,
// stream_options.include_obfuscation.
//
//	stop                   a string or up to 32 of them, none empty; [] and null are none
//	max_completion_tokens  wins over max_tokens, on both endpoints
//	max_tokens             at least 1; 0 on completions with echo. Left out: 16 for completions
//	                       (or what the context has room for), the rest of the context for chat
//	echo                   completions: the prompt before the answer, with logprobs also of its tokens
//	reasoning_effort       handed to the chat template, as if in chat_template_kwargs
//	chat_template_kwargs   variables of the chat template; enable_thinking and thinking are booleans,
//	                       fields of the request itself are refused
//	include_reasoning      false leaves reasoning out of the answer
//	response_format        {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema"}}
//	structured_outputs     one of json, regex, choice, grammar (GBNF) and json_object, as in vLLM; whitespace_pattern
//	                       for JSON. guided_json, guided_regex, guided_choice and guided_grammar are the same. One
//	                       request has one form. An answer ends where its form does, also before min_tokens, and is
//	                       cut at max_tokens. A model that reasons does so first. What of a schema is
//	                       supported: package engine/grammar; the rest is a 400 that names the keyword and its place
//	tools                  functions and custom tools, up to 1024, of a model that calls tools: see Tools
//	tool_choice            none, auto, required, {"type": "function"} or {"type": "custom"} with a name, or {"type": "allowed_tools"}:
//	                       the model is shown no others
//	parallel_tool_calls    false: calls after the first are left out
//	messages               orders that a template refuses: package models/chat has the rule
//	sla                    {"ttft_ms", "tpot_ms"}: targets in milliseconds; headers X-SLA-TTFT-Ms and X-SLA-TPOT-Ms
//	                       stand in for the fields; 429 when the first token is predicted to come later
//	priority               -1000 to 1000; of a model's waiting requests the lower number is first, as in vLLM
//	keep_alive             seconds or a string such as "5m": the model's idle time until it is parked, 0 at
//	                       once, negative never; holds until the model's next request
//	user                   whose request it is, for fairness between callers; with API keys the key says that
//	cache_salt             parts prefix caches; with API keys, only within one key
//	stream_options         only with stream; continuous_usage_stats only with include_usage
//
// # Tools
//
// Chat takes tools of type function and custom; functions and function_call, which came before them, are refused. A name is 1 to 128
// letters, digits and characters of _-.:/. A function's parameters are a schema of an object; missing, null and {} are no arguments.
// A custom tool's input is text: the model is shown a function with one string, input, and the client gets what the model wrote there
// as a call of type custom. With format grammar and syntax regex the input matches the expression as a whole (package engine/grammar
// has the dialect), also with tool_choice auto; syntax lark is refused. The chat template says in which of toolcall.Formats a model calls tools, or
// --tool-call-parser does; a model without one gets no tools: 400.
//
// Calls are read out of the answer: message.tool_calls, or in a stream delta.tool_calls, in which a call begins with its id and
// name and goes on with parts of its arguments. The finish_reason of an answer with calls is tool_calls; of one that was cut at
// max_tokens it is length, and the last arguments may be a part. With auto, arguments are what the model wrote: no schema holds
// them. A grammar does with tool_choice required or a name, and for each tool whose function has strict true; what of a schema
// is supported is as in response_format, which excludes a call that has to be made. Every format holds the whole schema; where
// parameters are written one by one (qwen3_xml) the schema as a whole may have properties, required and additionalProperties, and a
// parameter that may be text is text or null. What cannot be held is a 400 that names the tool and the keyword. tool_choice with a name shows
// the model all tools and lets it make one call; none reads nothing as a call and shows the model no tools.
//
// Calls of earlier turns may have their arguments as an object or as its text, as the model wrote it: text that is no JSON object is a
// 400, and missing, null and empty ones are {}. The template gets them in the form that it reads (package models/chat): one that knows
// one call a turn gets them one by one, and of one that knows none the calls stand in the turn's text.
//
// # Answers
//
// A client that closes its side of the connection, even only for writing, counts as gone.
//
// A stream sends a comment line when nothing else was sent for a while, and its headers with the first
// event or comment: until then an error is a status, and a balancer may ask another node. With n above 1 or several prompts, the choice of prompt p and sequence s has
// index p*n+s.
//
// Chat parts reasoning from content (package reasoning): message.reasoning_content, null when there
// is none, and delta.reasoning_content, never in one delta with content. It is the name that DeepSeek
// gave the field and most clients read; vLLM's newer name for it, reasoning, is understood in earlier
// turns and not sent. White space around reasoning is dropped. Log probabilities and token ids are of
// all tokens, reasoning and marks included. Completions are text as the model writes it.
//
// Log probabilities are floored at -9999. In the legacy lists of completions a token that is part
// of a character is written bytes:\xNN, and text_offset counts characters (code points).
//
// # Other APIs
//
// A request of another API is made into the one of chat (or completions) that asks for the same, so bounds, defaults and
// refusals are those above, and what was left out means the model's own default. Errors have their API's form and name
// the client's own fields. sla, priority, keep_alive, cache_salt and chat_template_kwargs are understood everywhere.
//
// Messages (Anthropic). Text, thinking, tools and their results; any other block is refused by its type.
//
//	max_tokens        must be there; more than the context has room for means all of it (model_context_window_exceeded)
//	system            blocks are paragraphs; a line of Claude Code's accounts (x-anthropic-billing-header) is left out
//	messages          a system message may stand anywhere; an assistant's at the end is what the answer goes on with
//	thinking          enabled and adaptive set the template's enable_thinking, disabled and none at all unset it, and
//	                  then reasoning of a model that cannot be told is not shown; display omitted does that, too.
//	                  budget_tokens is not enforced. Signatures are not made: "unsigned"
//	output_config     effort is reasoning_effort, with xhigh and max as high; format is response_format
//	metadata.user_id  is user
//	usage             input_tokens are those that were not found in the prefix cache, cache_read_input_tokens the others
//
// Ignored: cache_control (every prefix is cached), context_management, service_tier, betas, diagnostics, is_error of a
// tool's result and whatever is not known. Refused: mcp_servers, container, tools that Anthropic runs. A silent stream gets
// ping events. With the header Anthropic-Version, GET /v1/models answers in Anthropic's form.
//
// Ollama. Names may end in :latest, and do in lists. Streams are the default: JSON texts, line by line.
//
//	messages, prompt  none: the model is loaded and stays for keep_alive, or with 0 is parked when its answers have ended
//	options           num_predict (below 1: the rest of the context, as is more than that), temperature, top_p, top_k, min_p, seed,
//	                  stop, repeat_penalty, presence_penalty, frequency_penalty; num_ctx up to the model's context
//	                  length changes nothing, more is refused; so are mirostat, tfs_z, typical_p; others are ignored
//	think             true, false, low, medium, high; none: as the template has it
//	format            "json" or a schema: response_format
//	raw               generate: the prompt without template, as /v1/completions takes it
//
// Refused: images, suffix, template, context. Durations are in nanoseconds; load_duration is 0, as a load is part of
// prompt_eval_duration. digest names a model, not its files; parameter_size and quantization_level are unknown; expires_at is far.
//
// Responses (OpenAI). Nothing is stored: store is ignored, previous_response_id, conversation, prompt, background and
// item_reference are refused. Input is text: messages, reasoning, calls of functions and of custom tools and what came of them.
//
//	tools                        functions, custom tools and namespaces of these, as in Tools; hosted tools
//	                             such as web_search are left out, and refused where tool_choice wants one
//	reasoning.effort             none: enable_thinking false; else reasoning_effort
//	text.format                  response_format
//	include                      message.output_text.logprobs; reasoning.encrypted_content, which is the reasoning in a form to
//	                             be handed back, no secret; others are ignored
//	truncation                   prompts are never cut, whatever it says
//
// Reasoning is an item of its own with reasoning_text. A stream that fails ends with response.failed.
package api
