package api

import (
	"net/http"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// form is how an endpoint answers.
type form struct {
	id    string // what its ids begin with
	shape shape
	// byDefault is how many tokens an answer may have when nobody said; 0: the rest of the context.
	byDefault int
	// cut: an answer that may be longer than the context has room for ends where the room does; else it is refused.
	cut bool
}

// newGeneration begins a request: which model, and is it there.
func (h *Handler) newGeneration(w *reply, r *http.Request, o *object, f form) (*generation, error) {
	now := time.Now()
	m, err := h.readModel(o, false)
	if err != nil {
		return nil, err
	}
	w.model, w.simulated = m.Name, m.Simulated != ""
	stream := o.bool("stream", false)
	if err := o.failure(); err != nil {
		return nil, err
	}
	if m, err = h.await(w, r, m, stream); err != nil {
		return nil, err
	}
	return &generation{h: h, shape: f.shape, cut: f.cut, id: f.id + w.requestToken, created: now.Unix(), model: m, arrival: now}, nil
}

// probe is what is known of the request before it is tokenized: n sequences.
func (g *generation) probe(w *reply, n int) engine.Request {
	return engine.Request{Model: g.model.Name, N: n, SLA: g.sla, Priority: w.key.priority(g.priority), Key: g.caller(w.keySalt)}
}

// finishParams settles what depends on the connection.
func (g *generation) finishParams(w *reply) {
	g.key, g.account, g.priority = g.caller(w.keySalt), w.key, w.key.priority(g.priority)
	g.cacheSalt = joinSalt(w.keySalt, g.cacheSalt)
	g.spell = speller{gen: g.h.gen, model: g.model.Name, asIDs: g.tokensAsIDs}
	w.stream = g.stream
}

// joinSalt keeps one key's caches apart from another's whatever salt its requests name.
func joinSalt(key, request string) string {
	if key == "" {
		return request
	}
	return key + "/" + request
}

// setPrompts takes the prompts and settles how long their answers may get.
func (g *generation) setPrompts(prompts []prompt, byDefault int, field string) error {
	g.prompts, g.maxNew = prompts, make([]int, len(prompts))
	for i := range prompts {
		if len(prompts[i].ids) == 0 {
			return invalid(field, "the prompt has no tokens")
		}
		var err error
		if g.maxNew[i], err = g.budget(len(prompts[i].ids), g.model.MaxModelLen, byDefault, field, g.cut); err != nil {
			return err
		}
		if !g.promptOnly && g.minTokens > g.maxNew[i] {
			return invalid("min_tokens", "%d exceeds the %d tokens that the answer may have", g.minTokens, g.maxNew[i])
		}
	}
	return nil
}
