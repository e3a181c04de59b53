package top

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/openinfer-go/openinfer/api/state"
)

// Client asks one server.
type Client struct {
	url, key string
	http     *http.Client
}

// NewClient returns a client of the server at an address such as http://127.0.0.1:8080; with or without /v1.
func NewClient(address, key string) (*Client, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is not the address of a server, such as http://127.0.0.1:8080", address)
	}
	base := strings.TrimSuffix(strings.TrimRight(u.Scheme+"://"+u.Host+u.Path, "/"), "/v1")
	return &Client{url: base, key: key, http: &http.Client{}}, nil
}

// maxAnswer is more bytes than a snapshot has.
const maxAnswer = 16 << 20

// ask sends a request and reads the answer into out. An answer that is an error is one that says what the server said.
func (c *Client) ask(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return err
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if inner := new(url.Error); errors.As(err, &inner) {
			err = inner.Err
		}
		return fmt.Errorf("%s: %w", c.url, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s: %w", c.url, err)
	}
	if resp.StatusCode != http.StatusOK {
		var said struct {
			Error struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if json.Unmarshal(b, &said) == nil && said.Error.Message != "" {
			return fmt.Errorf("%s: %s (%d)", c.url, printable(said.Error.Message), resp.StatusCode)
		}
		return fmt.Errorf("%s%s: status %d: is it an OpenInfer server?", c.url, path, resp.StatusCode)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s%s: no snapshot of an OpenInfer server: %w", c.url, path, err)
	}
	return nil
}

// Snapshot asks for the server's state.
func (c *Client) Snapshot(ctx context.Context) (*state.State, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s := &state.State{}
	if err := c.ask(ctx, "GET", "/v1/state", nil, s); err != nil {
		return nil, err
	}
	return s, nil
}

// move loads a model's weights, or parks it once its running answers have ended.
func (c *Client) move(ctx context.Context, what, model string) error {
	return c.ask(ctx, "POST", "/v1/models/"+what, map[string]string{"model": model}, &struct{}{})
}

// cancel ends a request.
func (c *Client) cancel(ctx context.Context, id string) error {
	return c.ask(ctx, "POST", "/v1/requests/cancel", map[string]string{"id": id}, &struct{}{})
}
