package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/openinfer-go/openinfer/bench/load"
)

// site is a fleet that is reached.
type site struct {
	Address
	config    *Config
	http      *http.Client
	routes    [][]*route // by model
	spellers  []*load.Speller
	heads     []load.Head // what the prompts of each model begin with
	nodes     []string
	holds     [][]int // by node: the models that it may serve
	simulated string
	notes     []string
}

// route is a server for one model.
type route struct {
	*load.Client
	running atomic.Int64
}

// load is what the fleet is sent.
func (s *site) load(requests []Request) iter.Seq[*load.Request] {
	return func(yield func(*load.Request) bool) {
		for _, q := range requests {
			d := s.config.Scenario.Demands[q.Demand]
			out := &load.Request{Due: q.Due, Model: d.Model, MaxTokens: q.OutputTokens}
			s.spellers[q.Demand].Prompt(out, rand.New(rand.NewPCG(q.Seed, 5)), s.heads[q.Demand], q.PromptTokens)
			if s.config.SendSLA {
				sla := map[string]float64{}
				if d.SLA.TTFT > 0 {
					sla["ttft_ms"] = millisOf(d.SLA.TTFT)
				}
				if d.SLA.TPOT > 0 {
					sla["tpot_ms"] = millisOf(d.SLA.TPOT)
				}
				if len(sla) > 0 {
					out.Extra = map[string]any{"sla": sla}
				}
			}
			if !yield(out) {
				return
			}
		}
	}
}

func millisOf(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Send implements load.Target: of several servers the one with the fewest of our requests is asked, and no other one if it
// refuses, which is a balancer's work.
func (s *site) Send(ctx context.Context, q *load.Request, r *load.Record, counter *atomic.Int64) {
	k := slices.IndexFunc(s.config.Scenario.Demands, func(d Demand) bool { return d.Model == q.Model })
	least := slices.MinFunc(s.routes[k], func(a, b *route) int { return int(a.running.Load() - b.running.Load()) })
	least.running.Add(1)
	defer least.running.Add(-1)
	least.Client.Send(ctx, q, r, counter)
}

// reach asks every server of a fleet for a token of each of its models, which also tells how prompts are spelt.
func (c *Config) reach(ctx context.Context, a Address) (*site, error) {
	s := &site{Address: a, config: c, http: &http.Client{Transport: c.Transport}, nodes: a.Nodes}
	for k, d := range c.Scenario.Demands {
		var routes []*route
		for _, server := range a.Servers {
			if server.Model != "" && server.Model != d.Model {
				continue
			}
			client, err := load.NewClient(load.ClientOptions{URL: server.URL, Endpoint: c.Endpoint, Model: d.Model, Key: c.Key, Extra: c.Extra, Transport: c.Transport})
			if err != nil {
				return nil, err
			}
			speller, err := load.Calibrate(ctx, client)
			if err != nil {
				return nil, fmt.Errorf("model %s: %w", d.Model, err)
			}
			if routes = append(routes, &route{Client: client}); len(routes) == 1 {
				s.spellers = append(s.spellers, speller)
				s.heads = append(s.heads, speller.Head(rand.New(rand.NewPCG(uint64(k), 6)), c.Scenario.SharedTokens))
			}
		}
		if routes == nil {
			return nil, fmt.Errorf("no server for model %s", d.Model)
		}
		s.routes = append(s.routes, routes)
	}
	for _, server := range a.Servers {
		if server.Model != "" && !slices.ContainsFunc(c.Scenario.Demands, func(d Demand) bool { return d.Model == server.Model }) {
			return nil, fmt.Errorf("%s@%s: nobody asks for that model", server.Model, server.URL)
		}
	}
	if s.notes = []string{fmt.Sprintf("- %s: %v", a.Name, s.spellers[0])}; s.nodes == nil {
		for _, server := range a.Servers {
			if !slices.Contains(s.nodes, server.URL) {
				s.nodes = append(s.nodes, server.URL)
			}
		}
	}
	for i, url := range s.nodes {
		url = strings.TrimSuffix(strings.TrimSuffix(url, "/"), "/v1")
		s.nodes = slices.Clone(s.nodes)
		s.nodes[i] = url
		models, err := s.models(ctx, url)
		if err != nil {
			return nil, err
		}
		s.holds = append(s.holds, models)
	}
	return s, nil
}

// models are those of the scenario that a node serves; all if it does not say, as an exporter of metrics beside one.
func (s *site) models(ctx context.Context, url string) ([]int, error) {
	var list struct{ Data []load.ServedModel }
	text, err := s.fetch(ctx, url+"/v1/models")
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if refused := new(statusError); err != nil && !errors.As(err, &refused) {
		return nil, fmt.Errorf("node %w", err)
	}
	_ = json.Unmarshal(text, &list)
	var serves []int
	for k, d := range s.config.Scenario.Demands {
		i := slices.IndexFunc(list.Data, func(m load.ServedModel) bool { return m.ID == d.Model })
		if i >= 0 {
			serves = append(serves, k)
			s.simulated = list.Data[i].Simulated
		} else if list.Data == nil {
			serves = append(serves, k)
		}
	}
	return serves, nil
}

func (s *site) close() {
	for _, routes := range s.routes {
		for _, r := range routes {
			r.Close()
		}
	}
	s.http.CloseIdleConnections()
}

// fetch gets an address.
func (s *site) fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if s.config.Key != "" {
		req.Header.Set("Authorization", "Bearer "+s.config.Key)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, &statusError{url, resp.StatusCode}
	}
	return io.ReadAll(io.LimitReader(resp.Body, 16<<20))
}

// statusError is an answer that is not 200.
type statusError struct {
	url    string
	status int
}

func (e *statusError) Error() string { return fmt.Sprintf("%s: status %d", e.url, e.status) }
