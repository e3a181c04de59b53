package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Target answers requests: a Client, or something that chooses one.
type Target interface {
	// Send sends q now and returns when its answer has ended. It fills in r, whose Due and Ready are set. counter is
	// the number of tokens of all requests, for who watches a run.
	Send(ctx context.Context, q *Request, r *Record, counter *atomic.Int64)
}

// The two endpoints that a Client knows.
const (
	Completions     = "/v1/completions"
	ChatCompletions = "/v1/chat/completions"
)

// ClientOptions say how a server is asked. The zero value of a field is its default.
type ClientOptions struct {
	URL      string // http://host:port
	Endpoint string // Completions, or a path that ends in chat/completions; "": Completions
	Model    string // of requests that name none
	Key      string // API key
	Header   http.Header
	Extra    map[string]any // fields of every body, such as temperature or ignore_eos
	Timeout  time.Duration  // of one request; 0: none
	KeepText bool           // records keep the answer's text

	Transport http.RoundTripper // nil: one made for many streams
}

// Client sends requests to one server. It may be used by many goroutines.
type Client struct {
	ClientOptions
	chat  bool
	http  *http.Client
	usage atomic.Int32 // a usageWanted
}

// NewClient returns a Client. Nothing is sent.
func NewClient(o ClientOptions) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not an address like http://127.0.0.1:8080", o.URL)
	}
	o.URL = strings.TrimSuffix(strings.TrimSuffix(o.URL, "/"), "/v1")
	if o.Endpoint == "" {
		o.Endpoint = Completions
	}
	chat := strings.HasSuffix(o.Endpoint, "/chat/completions")
	if !chat && !strings.HasSuffix(o.Endpoint, "/completions") || !strings.HasPrefix(o.Endpoint, "/") {
		return nil, fmt.Errorf("endpoint %q is neither %s nor %s", o.Endpoint, Completions, ChatCompletions)
	}
	if o.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1<<16
		// Servers close a connection that is idle for five seconds (uvicorn, llama-server) or more; a request on one
		// that is being closed would fail by no fault of the server.
		t.IdleConnTimeout = 4 * time.Second
		t.DisableCompression = true
		t.ForceAttemptHTTP2, t.Protocols = false, new(http.Protocols)
		t.Protocols.SetHTTP1(true) // a connection a stream: none waits for another's window
		o.Transport = t
	}
	return &Client{ClientOptions: o, chat: chat, http: &http.Client{Transport: o.Transport}}, nil
}

// Close lets idle connections go.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Send implements Target.
func (c *Client) Send(ctx context.Context, q *Request, r *Record, counter *atomic.Int64) {
	r.Target = c.URL
	if r.Model = q.Model; r.Model == "" {
		r.Model = c.Model
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, errTimeout)
		defer cancel()
	}
	err := c.send(ctx, q, r, counter)
	r.End = r.now()
	switch cause := context.Cause(ctx); {
	case err == nil:
		r.Outcome = OK
	case errors.Is(cause, errTimeout):
		r.Outcome, r.Reason = Failed, fmt.Sprintf("timed out after %v", c.Timeout)
	case cause != nil:
		r.Outcome, r.Reason = Cancelled, "the run ended"
	case r.Status == http.StatusTooManyRequests || r.Status == http.StatusServiceUnavailable:
		r.Outcome, r.Reason = Refused, err.Error()
	default:
		r.Outcome, r.Reason = Failed, err.Error()
	}
}

var errTimeout = errors.New("timed out")

func (c *Client) send(ctx context.Context, q *Request, r *Record, counter *atomic.Int64) error {
	usage := usageWanted(c.usage.Load())
	body, err := q.body(c.Model, c.chat, usage, c.Extra)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	r.Sent = r.now()
	resp, err := c.post(ctx, body, r)
	if err != nil {
		return unwrapURL(err)
	}
	defer resp.Body.Close()
	r.FirstByte, r.Status = r.now(), resp.StatusCode
	if resp.StatusCode != http.StatusOK {
		r.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), time.Now())
		return statusError(resp)
	}
	a := answer{r: r, counter: counter, event: event{keep: c.KeepText || q.Then != nil}}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		err = a.readWhole(resp.Body)
	} else {
		err = a.read(resp.Body)
	}
	a.settle()
	if err == nil && r.Tokens == 0 {
		err = errors.New("an answer without a token")
	}
	return err
}

// mostStale bounds how many connections that turn out to be closed a request tries.
const mostStale = 5

// post sends body and waits for the answer's headers. A server may close a connection that was idle at the moment in which
// it is used again: the request then goes out on another, as with any HTTP client, and r.Resent says so.
func (c *Client) post(ctx context.Context, body []byte, r *Record) (*http.Response, error) {
	for {
		var wrote atomic.Int64 // by a goroutine of the connection, which may outlive the request
		var reused atomic.Bool
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn:      func(i httptrace.GotConnInfo) { reused.Store(i.Reused) },
			WroteRequest: func(httptrace.WroteRequestInfo) { wrote.Store(int64(r.now())) },
		})
		req, err := http.NewRequestWithContext(traced, http.MethodPost, c.URL+c.Endpoint, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		c.header(req)
		req.Header.Set("Content-Type", "application/json")
		resp, err := c.http.Do(req)
		r.Wrote = time.Duration(wrote.Load())
		if err == nil || ctx.Err() != nil || !reused.Load() || r.Resent == mostStale {
			return resp, err
		}
		r.Resent++
	}
}

func (c *Client) header(req *http.Request) {
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	for name, values := range c.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
}

// readWhole takes an answer that is not streamed although it was asked to be: all its tokens come at its end.
func (a *answer) readWhole(body io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(body, maxEvent))
	if err != nil {
		return err
	}
	at := Chunk{At: a.r.now()}
	if err := a.take(bytes.TrimSpace(data), at); err != nil {
		return err
	}
	if a.r.Finish == "" {
		return errNoEnd
	}
	return nil
}

// statusError is what a server says about a request that it did not take.
func statusError(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var body struct {
		Error json.RawMessage `json:"error"`
		Text  string          `json:"message"`
	}
	var object struct {
		Message string `json:"message"`
	}
	text := shorten(b)
	if json.Unmarshal(b, &body) == nil {
		switch {
		case json.Unmarshal(body.Error, &object) == nil && object.Message != "":
			text = shorten([]byte(object.Message))
		case json.Unmarshal(body.Error, &text) == nil:
		case body.Text != "":
			text = shorten([]byte(body.Text))
		}
	}
	if text == "" {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return fmt.Errorf("status %d: %s", resp.StatusCode, text)
}

// retryAfter reads the header, which is seconds or a date; 0 if it is neither.
func retryAfter(s string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(s); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(s); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// unwrapURL leaves out method and address, which all requests have in common.
func unwrapURL(err error) error {
	if e := new(url.Error); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// ServedModel is what a server says of a model.
type ServedModel struct {
	ID          string `json:"id"`
	MaxModelLen int    `json:"max_model_len"` // 0: not said
	Simulated   string `json:"simulated"`     // the card that an OpenInfer server makes its answers up for
}

// Models asks for the server's models.
func (c *Client) Models(ctx context.Context) ([]ServedModel, error) {
	var list struct {
		Data []ServedModel `json:"data"`
	}
	if err := c.do(ctx, http.MethodGet, "/v1/models", nil, &list); err != nil {
		return nil, err
	}
	return list.Data, nil
}

// do asks for JSON. Its errors name the address.
func (c *Client) do(ctx context.Context, method, path string, body, to any) error {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, in)
	if err != nil {
		return err
	}
	c.header(req)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s%s: %w", c.URL, path, unwrapURL(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s%s: %w", c.URL, path, statusError(resp))
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<20)).Decode(to); err != nil {
		return fmt.Errorf("%s%s: %w", c.URL, path, err)
	}
	return nil
}

// Probe sends q alone and finds out which stream_options the server takes; later requests keep to that. A server that
// answers with anything but tokens is an error.
func (c *Client) Probe(ctx context.Context, q *Request) (*Record, error) {
	for {
		r := &Record{begin: time.Now(), Index: -1, Sent: -1}
		c.Send(ctx, q, r, new(atomic.Int64))
		usage := usageWanted(c.usage.Load())
		switch {
		case r.Outcome == OK:
			return r, nil
		case r.Outcome == Cancelled:
			return nil, context.Cause(ctx)
		case (r.Status == http.StatusBadRequest || r.Status == http.StatusUnprocessableEntity) && usage < usageNone &&
			(strings.Contains(r.Reason, "stream_options") || strings.Contains(r.Reason, "continuous_usage_stats")):
			c.usage.Store(int32(usage + 1))
		default:
			return nil, fmt.Errorf("%s%s: %s", c.URL, c.Endpoint, r.Reason)
		}
	}
}

// With returns a Client of the same connections whose requests have more fields in their bodies.
func (c *Client) With(extra map[string]any) *Client {
	o := c.ClientOptions
	o.Extra = maps.Clone(o.Extra)
	if o.Extra == nil {
		o.Extra = map[string]any{}
	}
	maps.Copy(o.Extra, extra)
	d := &Client{ClientOptions: o, chat: c.chat, http: c.http}
	d.usage.Store(c.usage.Load())
	return d
}

// Pick returns the one of models that name asks for: the first if name is "".
func Pick(models []ServedModel, name string) (ServedModel, error) {
	if len(models) == 0 {
		return ServedModel{}, errors.New("the server lists no models")
	}
	if name == "" {
		return models[0], nil
	}
	i := slices.IndexFunc(models, func(m ServedModel) bool { return m.ID == name })
	if i < 0 {
		var ids []string
		for _, m := range models {
			ids = append(ids, m.ID)
		}
		return ServedModel{}, fmt.Errorf("model %q is not served: there are %s", name, strings.Join(ids, ", "))
	}
	return models[i], nil
}
