package api

import (
	"context"
	"crypto/rand"
	"encoding/json/v2"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// Options say how requests are taken. The zero value of a field is its default.
type Options struct {
	Version string   // of the program, for /version
	Keys    []string // API keys without limits, until SetKeys says others; none: everybody may ask

	// CORSOrigins are the origins whose pages may ask from a browser, such as https://chat.example.org; "*": all.
	CORSOrigins []string
	// LogText is how many bytes of a request's prompt and of its answer the log line has; 0: none of either.
	LogText int

	BodyLimit   int64         // bytes of one body; 0: 32 MiB
	BodyTimeout time.Duration // from the headers to the end of the body; 0: 30 s
	BodyMemory  int64         // bytes of all bodies being read or served; 0: 16 times BodyLimit

	// KeepAlive is after how much silence a stream gets a comment line; 0: 2 s.
	KeepAlive time.Duration
	// WriteTimeout is how long a client may take for what was sent to it; 0: 30 s.
	WriteTimeout time.Duration

	Log *slog.Logger // one line a request; nil: none
}

// Handler serves a Generator over HTTP.
type Handler struct {
	Options
	gen         Generator
	keys        *keyring
	bodies      *bodies
	metrics     *metrics
	running     *running
	fingerprint string
	routes      map[string]route
	views       map[string]*Handler // by model
}

// route is what a path answers to. An open one needs no API key.
type route struct {
	method string
	open   bool
	quiet  bool     // asked by machines, again and again: logged at debug level
	label  string   // what metrics call it, where the path is not fixed
	as     *dialect // nil: OpenAI's
	serve  func(*reply, *http.Request) error
}

const modelPath = "/v1/models/"

// New returns a Handler that asks gen. The served models are those that gen names now.
func New(gen Generator, o Options) *Handler {
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.BodyLimit == 0 {
		o.BodyLimit = 32 << 20
	}
	if o.BodyTimeout == 0 {
		o.BodyTimeout = 30 * time.Second
	}
	if o.BodyMemory == 0 {
		o.BodyMemory = 16 * o.BodyLimit
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = 2 * time.Second
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 30 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	h := &Handler{
		Options: o, gen: gen, keys: newKeyring(plainKeys(o.Keys)),
		bodies:      &bodies{limit: o.BodyLimit, timeout: o.BodyTimeout, total: o.BodyMemory},
		metrics:     newMetrics(gen, o.Version),
		running:     &running{cancels: map[string]runningRequest{}},
		fingerprint: "fp_openinfer_" + o.Version,
	}
	h.routes = h.table()
	h.addPage()
	h.views = map[string]*Handler{}
	for _, m := range gen.Models() {
		h.views[m.Name] = h.view(m.Name)
	}
	return h
}

// table has the routes of whole paths.
func (h *Handler) table() map[string]route {
	return h.withOtherAPIs(map[string]route{
		"/v1/models":           {method: "GET", serve: h.models},
		"/v1/chat/completions": {method: "POST", serve: h.chat},
		"/v1/completions":      {method: "POST", serve: h.completions},
		"/v1/models/load":      {method: "POST", serve: h.load},
		"/v1/models/unload":    {method: "POST", serve: h.unload},
		"/v1/state":            {method: "GET", quiet: true, serve: h.snapshot},
		"/v1/requests/cancel":  {method: "POST", serve: h.cancel},
		"/tokenize":            {method: "POST", serve: h.tokenize},
		"/detokenize":          {method: "POST", serve: h.detokenize},
		"/version":             {method: "GET", open: true, quiet: true, serve: h.version},
		"/health":              {method: "GET", open: true, quiet: true, serve: h.health},
		"/healthz":             {method: "GET", open: true, quiet: true, serve: h.health},
		"/readyz":              {method: "GET", open: true, quiet: true, serve: h.ready},
		"/metrics":             {method: "GET", open: true, quiet: true, serve: h.scrape},
	})
}

// NewServer returns a server of h with the time-outs that a listening socket needs: clients that
// are slow with headers or idle are hung up on. Bodies and answers have time-outs of their own,
// since a good answer may take long.
func NewServer(h *Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(h.Log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return context.Background() },
	}
}

// ServeHTTP finds the route, checks the key, turns errors and panics into replies and logs one
// line. Texts of requests and answers are never logged.
func (h *Handler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if v, rest := h.viewed(r.URL.Path); v != nil {
		r = r.Clone(r.Context())
		r.URL.Path, r.URL.RawPath = rest, ""
		v.ServeHTTP(rw, r)
		return
	}
	w := &reply{ResponseWriter: rw, h: h, requestToken: strings.ToLower(rand.Text())}
	if w.requestID = requestID(r.Header.Get("X-Request-Id")); w.requestID == "" {
		w.requestID = requestID(r.Header.Get("Request-Id"))
	}
	if w.requestID == "" {
		w.requestID = w.requestToken
	}
	w.Header().Set("X-Request-Id", w.requestID)
	w.refuseAs503 = r.Header.Get(headerRefuseAs) == "503"
	start := time.Now()
	rt, err := h.route(r)
	if w.dialect = rt.as; w.dialect == nil {
		w.dialect = openAI
	}
	if w.dialect == anthropic {
		w.Header().Set("Request-Id", w.requestID) // where Anthropic's clients look for it
	}
	if cors(h.CORSOrigins).answer(w, r) {
		rt.quiet = true
		h.log(w, r, rt, time.Since(start))
		return
	}
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			h.Log.Error("panic", "request_id", w.requestID, "path", shorten(r.URL.Path, 200), "panic", p, "stack", string(debug.Stack()))
			if w.status != 0 { // half a reply must not look like a whole one
				panic(http.ErrAbortHandler)
			}
			w.fail(errors.New("panic"))
		}
		h.log(w, r, rt, time.Since(start))
	}()
	if err == nil && !rt.open {
		var leave func()
		if rt, leave, err = h.enter(w, r, rt); leave != nil {
			defer leave()
		}
	}
	if err == nil {
		err = rt.serve(w, r)
	}
	if err != nil {
		w.fail(err)
	}
}

// enter lets a request in by its key: a 401 or 429 if not, else what serves it, which sees the key's models alone, and
// what to call at its end.
func (h *Handler) enter(w *reply, r *http.Request, rt route) (route, func(), error) {
	key, err := h.keys.check(r)
	if key == nil || err != nil {
		return rt, nil, err
	}
	w.key, w.keySalt = key, key.salt
	leave := func() {}
	if r.Method == http.MethodPost {
		if leave, err = key.begin(w.Header(), h.metrics); err != nil {
			return rt, nil, err
		}
	}
	if key.Models != nil {
		h = h.onlyModels(key.Models)
		w.h = h
		rt, err = h.route(r)
	}
	return rt, leave, err
}

// route finds what serves a request, or a 404 or 405.
func (h *Handler) route(r *http.Request) (route, error) {
	rt, ok := h.routes[r.URL.Path]
	if !ok && strings.HasPrefix(r.URL.Path, modelPath) {
		rt, ok = route{method: "GET", label: modelPath + "{id}", serve: h.oneModel}, true
	}
	if !ok {
		if rt, ok := notServed(r.URL.Path); ok {
			return rt, nil
		}
		return route{as: dialectOf(r.URL.Path)}, &apiError{status: http.StatusNotFound, kind: "invalid_request_error", code: "unknown_path",
			message: "no such path: " + shorten(r.URL.Path, 200)}
	}
	if r.Method == rt.method || r.Method == "HEAD" && rt.method == "GET" {
		return rt, nil
	}
	return rt, &apiError{status: http.StatusMethodNotAllowed, kind: "invalid_request_error", code: "method_not_allowed",
		message: r.URL.Path + " answers to " + rt.method, allow: rt.method}
}

// requestID accepts a client's id if it is short and harmless in a log, else it is "".
func requestID(s string) string {
	if len(s) > 128 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return s
}

// readRequest reads and parses a body. release gives its memory back; a second call does nothing.
func (h *Handler) readRequest(w *reply, r *http.Request) (o *object, release func(), err error) {
	body, release, err := h.bodies.read(w, r)
	if err != nil {
		return nil, nil, err
	}
	release = sync.OnceFunc(release)
	if len(body) == 0 {
		release()
		return nil, nil, errNoBody
	}
	if o, err = parseObject(body); err != nil {
		release()
		return nil, nil, err
	}
	return o, release, nil
}

// reply is a response and what the log line says of it.
type reply struct {
	http.ResponseWriter
	h *Handler

	dialect *dialect

	requestID    string   // the client's own, or ours
	requestToken string   // ours: unique whatever clients send
	key          *account // nil: there are none
	keySalt      string

	refuseAs503 bool // the client is a balancer that asks another node then: headerRefuseAs

	status int  // 0: nothing was sent
	sse    *sse // of a stream that began while its model was loading
	err    *apiError

	id, model, outcome                           string
	promptText, answerText                       string // for the log, if asked for
	stream                                       bool
	simulated                                    bool // no answer was computed
	promptTokens, completionTokens, cachedTokens int
	ttft                                         time.Duration
}

// Unwrap lets http.ResponseController reach the connection.
func (w *reply) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *reply) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *reply) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// json sends v as the whole reply.
func (w *reply) json(status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.deadline()
	w.WriteHeader(status)
	if _, err := w.Write(append(b, '\n')); err != nil {
		return w.gone(err)
	}
	return nil
}

// deadline gives the client time to take what is written next.
func (w *reply) deadline() {
	// a writer without deadlines is one without a connection
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.h.WriteTimeout))
}

// fail replies with an error, if nothing was sent yet.
func (w *reply) fail(err error) {
	e := asError(err)
	w.failed(e)
	if w.sse != nil { // the stream began before the request could be looked at
		if w.sse.event(w.dialect.errorEvent(w, e)) == nil {
			_ = w.sse.flush() // as below
		}
		return
	}
	if w.status != 0 {
		return
	}
	e.headers(w.Header())
	status := e.status
	if status == http.StatusTooManyRequests && w.refuseAs503 {
		w.Header().Set(headerRefusedStatus, strconv.Itoa(status))
		status = http.StatusServiceUnavailable
	}
	_ = w.json(status, w.dialect.errorBody(w, e)) // a client that is gone now has nothing to be told
}

// failed notes an error for the log.
func (w *reply) failed(e *apiError) { w.err = e }

// gone notes that the client did not take its reply. It returns no error: nobody is left to tell.
func (w *reply) gone(err error) error {
	w.failed(&apiError{status: statusClientGone, message: "the client did not take the reply", cause: err})
	return nil
}

// log writes the request's line.
func (h *Handler) log(w *reply, r *http.Request, rt route, took time.Duration) {
	level := slog.LevelInfo
	if rt.quiet {
		level = slog.LevelDebug
	}
	status := w.status
	args := []any{"request_id", w.requestID, "method", r.Method, "path", shorten(r.URL.Path, 200)}
	if w.model != "" {
		args = append(args, "model", w.model)
	}
	if w.key != nil {
		args = append(args, "key", w.key.Name)
	}
	if w.simulated {
		args = append(args, "simulated", true)
	}
	if w.id != "" {
		args = append(args, "id", w.id, "stream", w.stream, "prompt_tokens", w.promptTokens, "cached_tokens", w.cachedTokens,
			"completion_tokens", w.completionTokens, "ttft_ms", w.ttft.Milliseconds())
	}
	if h.LogText > 0 && w.id != "" {
		args = append(args, "prompt", w.promptText, "answer", w.answerText)
	}
	outcome := w.outcome
	if w.err != nil {
		outcome = w.err.kind
		if w.err.status == statusClientGone {
			status, outcome = statusClientGone, "client gone"
		}
		if w.err.status >= 500 {
			if !errors.Is(w.err, engine.ErrUnloaded) && !errors.Is(w.err, engine.ErrClosed) { // somebody wanted those
				level = slog.LevelError
			}
			args = append(args, "error", w.err.message)
			if w.err.cause != nil {
				args = append(args, "cause", w.err.cause.Error())
			}
		} else if w.err.param != "" {
			args = append(args, "param", w.err.param)
		}
	}
	args = append(args, "status", status)
	if outcome != "" {
		args = append(args, "outcome", outcome)
	}
	args = append(args, "ms", took.Milliseconds())
	h.metrics.reply(rt, r.URL.Path, status)
	h.metrics.keyReply(w, status)
	h.Log.Log(context.Background(), level, "request", args...)
}
