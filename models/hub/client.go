package hub

import (
	"context"
	"crypto/tls"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	maxTries    = 6               // in a row that bring nothing
	maxWait     = 5 * time.Minute // that a hub may ask for
	maxHops     = 10              // redirects
	maxListing  = 64 << 20        // bytes of a repository's listing
	stallLimit  = time.Minute     // without a byte
	progressMin = 1 << 20         // bytes of a try that brought something
)

// client speaks a hub's protocol. It follows redirects itself: what the hub says of a file stands in the first
// answers of a chain, and the token belongs to the hub's own address alone.
type client struct {
	base  *url.URL
	token string
	http  *http.Client
	sleep func(context.Context, time.Duration) error
}

// endpointOf reads the address of a hub.
func endpointOf(text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(text, "/"))
	switch {
	case err != nil:
		return nil, fmt.Errorf("hub address %.200q: %w", text, errors.Unwrap(err))
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, fmt.Errorf("hub address %.200q: want https://HOST (--endpoint or HF_ENDPOINT)", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("hub address %.200q: want no user name, query or fragment in it", u.Redacted())
	}
	return u, nil
}

// DefaultToken is the token of the environment (HF_TOKEN) or of the file where the hub's own tools keep it;
// "" when there is none.
func DefaultToken() (string, error) {
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if t := strings.TrimSpace(os.Getenv(name)); t != "" {
			return t, nil
		}
	}
	path := firstSet("HF_TOKEN_PATH", "", home("token"))
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func newClient(o Options) (*client, error) {
	base, err := endpointOf(o.Endpoint)
	if err != nil {
		return nil, err
	}
	for _, r := range o.Token {
		if r <= ' ' || r > '~' {
			return nil, errors.New("the hub token has characters that no token has (--token, HF_TOKEN or the token file)")
		}
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // sizes and hashes are of the bytes as stored
	t.MaxConnsPerHost, t.MaxIdleConnsPerHost = o.Connections, o.Connections
	return &client{base: base, token: o.Token, sleep: o.sleep, http: &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// home says whether u is at the hub's own address.
func (c *client) home(u *url.URL) bool {
	return u.Scheme == c.base.Scheme && strings.EqualFold(u.Host, c.base.Host)
}

// at is the address of a path whose parts are escaped already.
func (c *client) at(path string) string { return c.base.String() + path }

func escape(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// answer is the last response of a chain of redirects, and what was said on the way.
type answer struct {
	*http.Response
	etag   string // what the hub itself says of the file: X-Linked-Etag, else its own answer's ETag
	far    string // the ETag of storage elsewhere
	size   int64  // X-Linked-Size, -1 when nobody said
	commit string
}

// errStalled ends a request that no byte has come from for stallLimit.
var errStalled = fmt.Errorf("nothing arrived for %v", stallLimit)

// watched is a body that ends with errStalled instead of waiting for ever.
type watched struct {
	io.ReadCloser
	ctx   context.Context
	timer *time.Timer
	stop  context.CancelCauseFunc
}

func (w *watched) Read(b []byte) (int, error) {
	w.timer.Reset(stallLimit)
	n, err := w.ReadCloser.Read(b)
	if err != nil && err != io.EOF && w.ctx.Err() != nil {
		err = context.Cause(w.ctx)
	}
	return n, err
}

func (w *watched) Close() error {
	w.timer.Stop()
	w.stop(nil)
	return w.ReadCloser.Close()
}

// request makes one request, with the token when it goes to the hub.
func (c *client) request(ctx context.Context, method, address string, header http.Header) (*http.Response, error) {
	ctx, stop := context.WithCancelCause(ctx)
	r, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		stop(nil)
		return nil, errors.New("the hub redirects to what is no address")
	}
	for k, v := range header {
		r.Header[k] = v
	}
	r.Header.Set("User-Agent", "openinfer")
	r.Header.Set("Accept-Encoding", "identity")
	if c.token != "" && c.home(r.URL) {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	timer := time.AfterFunc(stallLimit, func() { stop(errStalled) })
	a, err := c.http.Do(r)
	if err != nil {
		timer.Stop()
		err = networkError(ctx, r.URL, err)
		stop(nil)
		return nil, err
	}
	a.Body = &watched{a.Body, ctx, timer, stop}
	return a, nil
}

// send makes a request and follows redirects; enough, when not nil, ends the chain early. A status that is no
// success is an error. The caller closes the body.
func (c *client) send(ctx context.Context, method, address string, header http.Header, enough func(*answer) bool) (*answer, error) {
	a := &answer{size: -1}
	linked := false
	for hop := 0; ; hop++ {
		var err error
		if a.Response, err = c.request(ctx, method, address, header); err != nil {
			return nil, err
		}
		h, from := a.Header, a.Request.URL
		if tag := h.Get("X-Linked-Etag"); tag != "" && !linked {
			a.etag, linked = plainTag(tag), true
			if n, err := strconv.ParseInt(h.Get("X-Linked-Size"), 10, 64); err == nil && n >= 0 {
				a.size = n
			}
		}
		if commit := h.Get("X-Repo-Commit"); commit != "" && c.home(from) {
			a.commit = commit
		}
		if a.StatusCode < 300 {
			switch tag := plainTag(h.Get("ETag")); {
			case !c.home(from):
				a.far = tag
			case !linked:
				a.etag = tag
			}
			return a, nil
		}
		if a.StatusCode >= 400 || h.Get("Location") == "" {
			defer a.Body.Close()
			return nil, c.statusError(a.Response)
		}
		if enough != nil && enough(a) {
			return a, nil
		}
		_ = a.Body.Close()
		to, err := a.Location()
		switch {
		case err != nil:
			return nil, errors.New("the hub redirects to what is no address")
		case to.Scheme != "https" && (to.Scheme != "http" || from.Scheme == "https"):
			return nil, fmt.Errorf("the hub redirects to %s, which is not a secure address as its own is", place(to))
		case hop == maxHops:
			return nil, fmt.Errorf("the hub redirects more than %d times, at last to %s", maxHops, place(to))
		}
		address = to.String()
	}
}

// plainTag is the text of an entity tag.
func plainTag(tag string) string {
	return strings.Trim(strings.TrimPrefix(strings.TrimSpace(tag), "W/"), `"`)
}

// place is an address without its query, which may hold a signature.
func place(u *url.URL) string {
	return fmt.Sprintf("%.200s", (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String())
}

// tryAgain is an error that may pass; after is how long the hub asks to wait.
type tryAgain struct {
	err   error
	after time.Duration
}

func (e *tryAgain) Error() string { return e.err.Error() }
func (e *tryAgain) Unwrap() error { return e.err }

func again(format string, args ...any) error { return &tryAgain{err: fmt.Errorf(format, args...)} }

// networkError is what a request that got no answer ended with.
func networkError(ctx context.Context, u *url.URL, err error) error {
	switch cause := context.Cause(ctx); cause {
	case nil:
	case errStalled:
		return &tryAgain{err: fmt.Errorf("%s: %w", place(&url.URL{Scheme: u.Scheme, Host: u.Host}), cause)}
	default:
		return cause
	}
	var inner *url.Error // it repeats the address, query and all
	if errors.As(err, &inner) {
		err = inner.Err
	}
	var certificate *tls.CertificateVerificationError
	var name *net.DNSError
	err = fmt.Errorf("%s: %w", place(&url.URL{Scheme: u.Scheme, Host: u.Host}), err)
	if errors.As(err, &certificate) || errors.As(err, &name) && name.IsNotFound {
		return fmt.Errorf("%w (is the hub's address right? --endpoint, HF_ENDPOINT)", err)
	}
	return &tryAgain{err: err}
}

// statusError says what an answer that is no success means and what to do.
func (c *client) statusError(r *http.Response) error {
	code, said := r.Header.Get("X-Error-Code"), ""
	if m := r.Header.Get("X-Error-Message"); m != "" {
		said = fmt.Sprintf(": %.300q", m)
	}
	err := fmt.Errorf("%s answers %d %s%s", r.Request.URL.Host, r.StatusCode, http.StatusText(r.StatusCode), said)
	switch r.StatusCode {
	case http.StatusRequestedRangeNotSatisfiable:
		return &tryAgain{err: fmt.Errorf("%w: %w", err, errRange)}
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusTooEarly:
		if c.token == "" && r.StatusCode == http.StatusTooManyRequests {
			err = fmt.Errorf("%w (with a token, --token or HF_TOKEN, limits are wider)", err)
		}
		return &tryAgain{err: err, after: retryAfter(r.Header)}
	}
	switch {
	case r.StatusCode >= 500 && r.StatusCode != http.StatusNotImplemented:
		return &tryAgain{err: err, after: retryAfter(r.Header)}
	case !c.home(r.Request.URL):
		// A signed address is good for some time; the next try gets a new one.
		return &tryAgain{err: err}
	case code == "GatedRepo" || r.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%w: access has to be granted: ask for it on the model's page at %s and give a token of that account (--token or HF_TOKEN)", err, c.base.Host)
	case code == "RevisionNotFound":
		return fmt.Errorf("%w: the repository has no such revision", err)
	case code == "EntryNotFound":
		return fmt.Errorf("%w: the repository has no such file", err)
	case r.StatusCode == http.StatusUnauthorized && c.token != "":
		return fmt.Errorf("%w: there is no such repository, or the token (--token, HF_TOKEN or the token file) is not valid for it", err)
	case r.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%w: there is no such repository, or it is private: check the name, or give a token (--token or HF_TOKEN)", err)
	case r.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%w: there is no such repository, revision or file: check the name", err)
	}
	return err
}

var rateReset = regexp.MustCompile(`;\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d+)`)

// retryAfter is how long a hub asks to wait: Retry-After in seconds or as a date, or a RateLimit that is used up.
func retryAfter(h http.Header) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if m := rateReset.FindStringSubmatch(h.Get("RateLimit")); v == "" && m != nil {
		v = m[1]
	}
	if n, err := strconv.ParseInt(v, 10, 64); err == nil {
		return time.Duration(min(max(n, 0), 1<<30)) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// retry calls try until it succeeds, fails for good, or has brought nothing maxTries times in a row. note hears
// of each wait.
func (c *client) retry(ctx context.Context, note func(error, time.Duration), try func() (moved int64, err error)) error {
	for tries := 1; ; tries++ {
		moved, err := try()
		if ctx.Err() != nil && err != nil {
			return context.Cause(ctx)
		}
		var soon *tryAgain
		if err == nil || !errors.As(err, &soon) {
			return err
		}
		if moved >= progressMin {
			tries = 1
		}
		if tries >= maxTries {
			return fmt.Errorf("%w (tried %d times; pull again to go on from what has arrived)", err, tries)
		}
		if soon.after > maxWait {
			return fmt.Errorf("%w: it asks to wait %v: pull again then, to go on from what has arrived", err, soon.after)
		}
		wait := time.Second << (tries - 1)
		wait = max(wait+rand.N(wait/4), soon.after)
		note(err, wait)
		if err := c.sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// listed is what the hub's listing says of a file.
type listed struct {
	size int64  // -1 when it does not say
	hash string // sha256 or git blob id, "" when it does not say
}

// list asks for the commit of a revision and the files in it.
func (c *client) list(ctx context.Context, r Ref, note func(error, time.Duration)) (commit string, files map[string]listed, err error) {
	address := c.at("/api/models/" + escape(r.Repo) + "/revision/" + url.PathEscape(r.revision()) + "?blobs=true")
	err = c.retry(ctx, note, func() (int64, error) {
		a, err := c.send(ctx, http.MethodGet, address, nil, nil)
		if err != nil {
			return 0, err
		}
		defer a.Body.Close()
		raw, err := io.ReadAll(io.LimitReader(a.Body, maxListing+1))
		switch {
		case err != nil:
			return 0, again("the listing of its files ends after %d bytes: %w", len(raw), err)
		case len(raw) > maxListing:
			return 0, fmt.Errorf("the listing of its files is longer than %d bytes", maxListing)
		}
		commit, files, err = readListing(raw)
		return 0, err
	})
	return commit, files, err
}

// readListing reads and checks a listing. A name that leaves the repository makes all of it untrustworthy.
func readListing(raw []byte) (string, map[string]listed, error) {
	var info struct {
		SHA   string `json:"sha"`
		Files []struct {
			Name string `json:"rfilename"`
			Size *int64 `json:"size"`
			Blob string `json:"blobId"`
			LFS  *struct {
				SHA256 string `json:"sha256"`
				Size   *int64 `json:"size"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(raw, &info); err != nil {
		return "", nil, fmt.Errorf("the listing of its files cannot be read (is this a hub? --endpoint, HF_ENDPOINT): %w", err)
	}
	if !commitShape.MatchString(info.SHA) {
		return "", nil, fmt.Errorf("the listing of its files names no commit but %.80q (is this a hub? --endpoint, HF_ENDPOINT)", info.SHA)
	}
	files := make(map[string]listed, len(info.Files))
	for _, f := range info.Files {
		if !filepath.IsLocal(f.Name) || strings.HasPrefix(f.Name, "/") {
			return "", nil, fmt.Errorf("the hub lists a file %.200q, whose path leaves the repository: refused", f.Name)
		}
		if _, twice := files[f.Name]; twice {
			return "", nil, fmt.Errorf("the hub lists the file %.200q twice: refused", f.Name)
		}
		l := listed{size: -1, hash: f.Blob}
		if f.Size != nil {
			l.size = *f.Size
		}
		if f.LFS != nil {
			l.hash = f.LFS.SHA256
			if f.LFS.Size != nil {
				l.size = *f.LFS.Size
			}
		}
		if hasher(l.hash) == nil {
			l.hash = ""
		}
		files[f.Name] = l
	}
	return info.SHA, files, nil
}

// describe asks what a file of a commit holds: its hash and size.
func (c *client) describe(ctx context.Context, r Ref, commit, name string, l listed, note func(error, time.Duration)) (file, error) {
	f := file{name: name, hash: l.hash, size: l.size}
	err := c.retry(ctx, note, func() (int64, error) {
		// The answer that redirects elsewhere has said what is to be known, and storage may refuse to be asked.
		a, err := c.send(ctx, http.MethodHead, c.fileAddress(r, commit, name), nil, func(a *answer) bool {
			return hasher(a.etag) != nil
		})
		if err != nil {
			return 0, err
		}
		_ = a.Body.Close()
		switch {
		case a.commit != "" && a.commit != commit:
			return 0, fmt.Errorf("the hub gives that of commit %.80q, asked for was %s: pull again", a.commit, commit)
		case hasher(a.etag) != nil && hasher(l.hash) != nil && len(l.hash) == len(a.etag) && l.hash != a.etag:
			return 0, fmt.Errorf("the hub lists it as %s and gives it the etag %s: pull again when it has settled", l.hash, a.etag)
		case hasher(a.etag) != nil:
			f.hash = a.etag
		case f.hash == "" && hasher(a.far) != nil:
			f.hash = a.far
		case f.hash == "":
			return 0, fmt.Errorf("the hub gives it the etag %.80q, which is no hash, and lists none: what would arrive cannot be checked", a.etag)
		}
		switch {
		case a.size >= 0:
			f.size = a.size
		case f.size < 0 && a.StatusCode < 300:
			f.size = a.ContentLength
		}
		return 0, nil
	})
	return f, err
}

func (c *client) fileAddress(r Ref, commit, name string) string {
	return c.at("/" + escape(r.Repo) + "/resolve/" + url.PathEscape(commit) + "/" + escape(name))
}
