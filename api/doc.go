// Package api is the HTTP face of OpenInfer: OpenAI's endpoints with vLLM's additions, server-sent
// events, health and metrics.
//
// It owns wire types, the checks that need no model, the one table from errors to status codes and
// the life of a connection. It does not tokenize, render templates or assemble text: that is behind
// Generator, which engine.Engine satisfies.
//
// Invariant: every request gets exactly one reply. It is a whole JSON body, or a stream that ends
// with "data: [DONE]" or with one error event; no input makes a 5xx, and when a client goes, what
// it asked for is cancelled before its handler returns.
//
// # Endpoints
//
//	GET  /v1/models, /v1/models/{id}    ids may hold slashes, escaped or not
//	POST /v1/models/load                {"model"}: answers when the weights are on the device
//	POST /v1/models/unload              {"model", "force"}: and when they have left it
//	POST /v1/chat/completions
//	POST /v1/completions
//	POST /tokenize, /detokenize
//	GET  /health, /healthz              200, or 503 when the step loop's heartbeat is stale
//	GET  /readyz                        200, or 503 until every model is loaded
//	GET  /metrics, /version
//
// With API keys configured, /v1/..., /tokenize and /detokenize need one; the others stay open, as
// what watches a server seldom has a key.
//
// # Requests
//
// Field names match by case, null means the default, a whole number may be written 16.0, a name
// given twice is refused, unknown fields are ignored. Text must be valid UTF-8 and escapes must
// not be lone surrogates: the error says where. What is known but would change the answer if it
// were left out is refused by name (tools, images, suffix, best_of above 1,
// adapters and more: see refusals). Known and harmless, so ignored: metadata, store,
// service_tier, safety_identifier, prompt_cache_key, prompt_cache_retention, parallel_tool_calls,
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
package api
