package api

import (
	"maps"
	"net/http"
)

// dialect is how one family of endpoints writes what is no answer: errors, and what a stream has beside its events.
// Errors are made once, in asError, and every dialect words them for its own clients.
type dialect struct {
	// lines: a stream is one JSON text a line; else it is server-sent events.
	lines bool
	// heartbeat is what a stream sends when nothing else was sent for a while; "": nothing.
	heartbeat string
	// done follows the last event of a stream that ended well.
	done string
	// errorBody is a reply that is an error.
	errorBody func(w *reply, e *apiError) any
	// errorEvent is the last event of a stream that failed.
	errorEvent func(w *reply, e *apiError) any
}

// openAI is the dialect of every path that has no other.
var openAI = &dialect{
	heartbeat:  ": keep-alive\n\n",
	done:       "data: [DONE]\n\n",
	errorBody:  func(_ *reply, e *apiError) any { return e.body() },
	errorEvent: func(_ *reply, e *apiError) any { return e.body() },
}

// withOtherAPIs adds the routes of the APIs beside OpenAI's chat and completions, and of what describes them all.
func (h *Handler) withOtherAPIs(routes map[string]route) map[string]route {
	maps.Copy(routes, map[string]route{
		"/v1/messages":               {method: "POST", as: anthropic, serve: h.anthropicMessages},
		"/v1/messages/count_tokens":  {method: "POST", as: anthropic, serve: h.anthropicCount},
		"/v1/responses":              {method: "POST", as: responses, serve: h.responses},
		"/v1/responses/input_tokens": {method: "POST", serve: h.responsesCount},
		"/api/chat":                  {method: "POST", as: ollama, serve: h.ollamaChat},
		"/api/generate":              {method: "POST", as: ollama, serve: h.ollamaGenerate},
		"/api/show":                  {method: "POST", as: ollama, serve: h.ollamaShow},
		"/api/tags":                  {method: "GET", as: ollama, quiet: true, serve: h.ollamaTags},
		"/api/ps":                    {method: "GET", as: ollama, quiet: true, serve: h.ollamaPS},
		"/api/version":               {method: "GET", as: ollama, open: true, quiet: true, serve: h.ollamaVersion},
		"/openapi.json":              {method: "GET", open: true, quiet: true, serve: h.describe},
	})
	return routes
}

// event is a server-sent event that has a name beside its data, as Anthropic's and those of Responses have.
type event struct {
	name string
	data any
}

// unserved are paths of the APIs served here, and what begins like them, that nothing is behind: what a client asks
// there is not in a text model. They answer 501 in their API's own words, so that a client does not take the address for a wrong one.
var unserved = []struct {
	path string // one that ends in a slash stands for all that begin with it
	as   *dialect
	what string
}{
	{"/v1/embeddings", openAI, "embeddings are not served: the models here generate text"},
	{"/v1/images/", openAI, "images are not served: the models here generate text"},
	{"/v1/audio/", openAI, "audio is not served: the models here generate text"},
	{"/v1/videos", openAI, "videos are not served: the models here generate text"},
	{"/v1/moderations", openAI, "moderation is not served: the models here generate text"},
	{"/v1/realtime", openAI, "the realtime API is not served"},
	{"/v1/rerank", openAI, "reranking is not served: the models here generate text"},
	{"/v1/score", openAI, "scoring is not served: the models here generate text"},
	{"/v1/responses/", openAI, "responses are not stored: send the whole conversation as input"},
	{"/v1/conversations", openAI, "conversations are not stored: send the whole conversation as input"},
	{"/v1/files", openAI, "files are not stored"},
	{"/v1/uploads", openAI, "files are not stored"},
	{"/v1/batches", openAI, "batches are not served: send the requests one by one"},
	{"/v1/fine_tuning/", openAI, "models are not trained here"},
	{"/v1/assistants", openAI, "assistants are not served; /v1/chat/completions and /v1/responses are"},
	{"/v1/threads", openAI, "assistants are not served; /v1/chat/completions and /v1/responses are"},
	{"/v1/vector_stores", openAI, "vector stores are not served"},
	{"/v1/messages/batches", anthropic, "batches are not served: send the requests one by one"},
	{"/v1/complete", anthropic, "text completions are Anthropic's legacy API; /v1/messages is served"},
	{"/api/embed", ollama, "embeddings are not served: the models here generate text"},
	{"/api/embeddings", ollama, "embeddings are not served: the models here generate text"},
	{"/api/pull", ollama, "models are not fetched over HTTP: openinfer pull and the server's own command line do that"},
	{"/api/push", ollama, "models are not published from here"},
	{"/api/create", ollama, "models are not made over HTTP: openinfer quantize does that"},
	{"/api/copy", ollama, "models are not copied; the server's command line names them"},
	{"/api/delete", ollama, "models are not deleted over HTTP; keep_alive 0 takes one off the device"},
	{"/api/blobs/", ollama, "models are not made over HTTP: openinfer quantize does that"},
}

// notServed is the route of an unserved path.
func notServed(path string) (route, bool) {
	for _, u := range unserved {
		if path != u.path && !underPath(path, u.path) {
			continue
		}
		return route{as: u.as, label: u.path, serve: func(w *reply, _ *http.Request) error {
			w.Header().Set("X-Should-Retry", "false") // clients ask again after a 5xx, unless they are told
			return &apiError{status: http.StatusNotImplemented, kind: "not_implemented_error", code: "not_implemented", message: u.what}
		}}, true
	}
	return route{}, false
}

// underPath reports whether path lies under parent, with or without a slash at the end.
func underPath(path, parent string) bool {
	if parent[len(parent)-1] != '/' {
		parent += "/"
	}
	return len(path) > len(parent) && path[:len(parent)] == parent
}
