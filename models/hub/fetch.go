package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

const (
	maxUnsized = 64 << 20 // bytes of a file whose size nobody states
	maxWrong   = 3        // times that a whole file of the wrong hash arrives
	bufferSize = 256 << 10
)

// file is a file of a commit as the hub describes it.
type file struct {
	name string
	hash string // hex: sha256, or a git blob id
	size int64  // -1 when the hub does not say
}

var hexText = regexp.MustCompile(`^[0-9a-f]+$`)

// hasher makes what computes hashes of this kind for size bytes, nil when the text is no such hash. A git blob id
// is a sha1 over a header with the size and the bytes.
func hasher(text string) func(size int64) hash.Hash {
	switch {
	case len(text) == 2*sha256.Size && hexText.MatchString(text):
		return func(int64) hash.Hash { return sha256.New() }
	case len(text) == 2*sha1.Size && hexText.MatchString(text):
		return func(size int64) hash.Hash {
			h := sha1.New()
			fmt.Fprintf(h, "blob %d\x00", size)
			return h
		}
	}
	return nil
}

// errRange is an answer that says that the part which is here already goes beyond the file.
var errRange = errors.New("the part that is here does not fit it")

// fetch brings f into the cache unless it is there and right.
func (p *pull) fetch(ctx context.Context, f file) error {
	blob := p.cache.blob(p.ref, f.hash)
	if err := os.MkdirAll(filepath.Dir(blob), 0o777); err != nil {
		return err
	}
	unlock, err := p.cache.lock(ctx, p.ref, f.hash, func() {
		p.tell(Event{File: f.name, State: Waiting, Size: f.size, Note: "another process is fetching it"})
	})
	if err != nil {
		return err
	}
	defer unlock()
	have, err := p.check(ctx, f, blob)
	switch {
	case err == nil:
		p.tell(Event{File: f.name, State: Ready, Done: have, Size: have, Note: "already there"})
		return nil
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errWrong):
		p.tell(Event{File: f.name, State: Retrying, Size: f.size, Note: fmt.Sprintf("in the cache, but %v: fetching it again", err)})
	default:
		return err
	}

	part, wrong := blob+".incomplete", 0
	err = p.client.retry(ctx, p.noteOf(f), func() (int64, error) {
		moved, err := p.transfer(ctx, f, part)
		if err != nil {
			return moved, err
		}
		have, err = p.check(ctx, f, part)
		if errors.Is(err, errWrong) {
			_ = os.Remove(part)
			if wrong++; wrong == maxWrong {
				return 0, fmt.Errorf("arrived %d times whole and wrong: %w", wrong, err)
			}
			return 0, &tryAgain{err: err}
		}
		return moved, err
	})
	if err != nil {
		return err
	}
	if err := os.Rename(part, blob); err != nil {
		return err
	}
	p.tell(Event{File: f.name, State: Ready, Done: have, Size: have, Note: "fetched"})
	return nil
}

// errWrong is what check finds in a file that is not what the hub says.
var errWrong = errors.New("not what the hub has")

// check reads a file of the disk and returns its size when it is f, an errWrong when it is something else.
func (p *pull) check(ctx context.Context, f file, path string) (int64, error) {
	in, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	info, err := in.Stat()
	switch {
	case err != nil:
		return 0, err
	case !info.Mode().IsRegular():
		return 0, fmt.Errorf("%s is no file", path)
	case f.size >= 0 && info.Size() != f.size:
		return 0, fmt.Errorf("%w: it has %d bytes, should have %d", errWrong, info.Size(), f.size)
	}
	sum := hasher(f.hash)(info.Size())
	buffer := make([]byte, bufferSize)
	for done := int64(0); ; {
		n, err := in.Read(buffer)
		sum.Write(buffer[:n])
		done += int64(n)
		switch {
		case err == io.EOF:
			if got := hex.EncodeToString(sum.Sum(nil)); got != f.hash {
				return 0, fmt.Errorf("%w: its hash is %s, should be %s", errWrong, got, f.hash)
			}
			return done, nil
		case err != nil:
			return 0, err
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		}
		p.tell(Event{File: f.name, State: Checking, Done: done, Size: info.Size()})
	}
}

// transfer makes part all of f, as far as sizes tell, going on from what part holds. moved is how many bytes
// came; what came stays in part when there is an error, for the next try.
func (p *pull) transfer(ctx context.Context, f file, part string) (moved int64, err error) {
	out, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	have, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	restart := func() error {
		have = 0
		_, err := out.Seek(0, io.SeekStart)
		return errors.Join(err, out.Truncate(0))
	}
	if have > f.size { // always, when the size is not known: then nothing says whether a part is all
		if err := restart(); err != nil {
			return 0, err
		}
	}
	if have == f.size {
		return 0, nil
	}
	p.tell(Event{File: f.name, State: Fetching, Done: have, Size: f.size})
	header := http.Header{}
	if have > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	a, err := p.client.send(ctx, http.MethodGet, p.client.fileAddress(p.ref, p.commit, f.name), header, nil)
	if errors.Is(err, errRange) {
		return 0, errors.Join(err, restart())
	}
	if err != nil {
		return 0, err
	}
	defer a.Body.Close()
	if hasher(a.etag) != nil && len(a.etag) == len(f.hash) && a.etag != f.hash {
		return 0, fmt.Errorf("it changed on the hub while it was fetched (etag %s, was %s): pull again", a.etag, f.hash)
	}
	switch {
	case a.StatusCode == http.StatusPartialContent && have > 0:
		if first, total, ok := contentRange(a.Header.Get("Content-Range")); !ok || first != have || total >= 0 && total != f.size {
			err := again("the hub was asked for bytes from %d of %d and gives %.80q", have, f.size, a.Header.Get("Content-Range"))
			return 0, errors.Join(err, restart())
		}
	case a.StatusCode == http.StatusOK:
		if err := restart(); err != nil { // the range was ignored, or there was none
			return 0, err
		}
	default:
		return 0, fmt.Errorf("%s answers %d %s", a.Request.URL.Host, a.StatusCode, http.StatusText(a.StatusCode))
	}
	moved, err = p.copy(ctx, f, out, a.Body, have)
	if errors.Is(err, errTooMuch) {
		err = errors.Join(err, restart())
	}
	return moved, err
}

var errTooMuch = errors.New("the hub sends more bytes than the file has")

// copy appends body to out, which holds have bytes of f.
func (p *pull) copy(ctx context.Context, f file, out *os.File, body io.Reader, have int64) (moved int64, err error) {
	limit := f.size
	if limit < 0 {
		limit = maxUnsized
	}
	buffer := make([]byte, bufferSize)
	for {
		n, readErr := body.Read(buffer)
		if have+int64(n) > limit {
			return moved, &tryAgain{err: fmt.Errorf("%w: more than %d", errTooMuch, limit)}
		}
		if _, err := out.Write(buffer[:n]); err != nil {
			return moved, err
		}
		have, moved = have+int64(n), moved+int64(n)
		if n > 0 {
			p.tell(Event{File: f.name, State: Fetching, Done: have, Size: f.size})
		}
		switch {
		case readErr == nil:
		case ctx.Err() != nil:
			return moved, context.Cause(ctx)
		case readErr != io.EOF:
			return moved, again("cut off after %d of %d bytes: %w", have, f.size, readErr)
		case have < f.size:
			return moved, again("ended after %d of %d bytes", have, f.size)
		default:
			return moved, out.Sync()
		}
	}
}

var rangeText = regexp.MustCompile(`^bytes (\d+)-\d+/(\d+|\*)$`)

// contentRange reads where a part begins and how long the whole is (-1: not said).
func contentRange(text string) (first, total int64, ok bool) {
	m := rangeText.FindStringSubmatch(text)
	if m == nil {
		return 0, 0, false
	}
	first, err := strconv.ParseInt(m[1], 10, 64)
	total = -1
	if m[2] != "*" {
		var err2 error
		total, err2 = strconv.ParseInt(m[2], 10, 64)
		err = errors.Join(err, err2)
	}
	return first, total, err == nil
}

// noteOf tells of a wait for a file.
func (p *pull) noteOf(f file) func(error, time.Duration) {
	return func(err error, wait time.Duration) {
		p.tell(Event{File: f.name, State: Retrying, Size: f.size, Note: fmt.Sprintf("%v; trying again in %v", err, wait.Round(time.Second))})
	}
}
