package api

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// ollama is the dialect of Ollama's API.
var ollama = &dialect{
	lines:      true,
	errorBody:  func(_ *reply, e *apiError) any { return ollamaError{e.message} },
	errorEvent: func(_ *reply, e *apiError) any { return ollamaError{e.message} },
}

// ollamaError is Ollama's error object.
type ollamaError struct {
	Error string `json:"error"`
}

// ollamaVersion is the version of Ollama whose API this follows: clients refuse to talk to older ones.
const ollamaVersion = "0.13.0"

// latest is the tag that a name without one has.
const latest = ":latest"

// Objects of Ollama's lists.
type (
	ollamaModel struct {
		Name       string        `json:"name"`
		Model      string        `json:"model"`
		ModifiedAt string        `json:"modified_at"`
		Size       int64         `json:"size"`
		Digest     string        `json:"digest"`
		Details    ollamaDetails `json:"details"`
	}
	ollamaRunning struct {
		Name      string        `json:"name"`
		Model     string        `json:"model"`
		Size      int64         `json:"size"`
		Digest    string        `json:"digest"`
		Details   ollamaDetails `json:"details"`
		ExpiresAt string        `json:"expires_at"`
		SizeVRAM  int64         `json:"size_vram"`
		Context   int           `json:"context_length"`
	}
	ollamaDetails struct {
		Parent       string   `json:"parent_model"`
		Format       string   `json:"format"`
		Family       string   `json:"family"`
		Families     []string `json:"families"`
		Parameters   string   `json:"parameter_size"`
		Quantization string   `json:"quantization_level"`
	}
	ollamaShown struct {
		License      string        `json:"license"`
		Modelfile    string        `json:"modelfile"`
		Parameters   string        `json:"parameters"`
		Template     string        `json:"template"`
		Details      ollamaDetails `json:"details"`
		Info         pairs         `json:"model_info"`
		Capabilities []string      `json:"capabilities"`
		ModifiedAt   string        `json:"modified_at"`
	}
)

// ollamaName is a model's name with a tag, which Ollama's clients expect.
func ollamaName(name string) string {
	if strings.Contains(name[strings.LastIndexByte(name, '/')+1:], ":") {
		return name
	}
	return name + latest
}

func newOllamaDetails(m engine.ModelInfo) ollamaDetails {
	d := ollamaDetails{Format: "safetensors", Family: m.Architecture, Families: []string{m.Architecture}, Quantization: "unknown", Parameters: "unknown"}
	if strings.HasSuffix(strings.ToLower(m.Path), ".gguf") {
		d.Format = "gguf"
	}
	return d
}

// ollamaDigest tells models apart; it is none of their files.
func ollamaDigest(m engine.ModelInfo) string {
	h := sha256.Sum256([]byte(m.Name + "\x00" + m.Architecture + "\x00" + m.Created.UTC().Format(time.RFC3339)))
	return hex.EncodeToString(h[:])
}

// ollamaTags answers GET /api/tags.
func (h *Handler) ollamaTags(w *reply, r *http.Request) error {
	out := struct {
		Models []ollamaModel `json:"models"`
	}{[]ollamaModel{}}
	for _, m := range h.gen.Models() {
		name := ollamaName(m.Name)
		out.Models = append(out.Models, ollamaModel{name, name, m.Created.UTC().Format(time.RFC3339Nano), m.WeightBytes, ollamaDigest(m), newOllamaDetails(m)})
	}
	return w.json(http.StatusOK, out)
}

// ollamaPS answers GET /api/ps: the models whose weights are on the device. One that stays expires when Ollama says of such
// models that they do.
func (h *Handler) ollamaPS(w *reply, r *http.Request) error {
	out := struct {
		Models []ollamaRunning `json:"models"`
	}{[]ollamaRunning{}}
	stays := time.Now().AddDate(292, 0, 0).UTC().Format(time.RFC3339Nano)
	for _, m := range h.gen.Models() {
		if m.State != "resident" {
			continue
		}
		name, expires := ollamaName(m.Name), stays
		if !m.ParkAt.IsZero() {
			expires = m.ParkAt.UTC().Format(time.RFC3339Nano)
		}
		out.Models = append(out.Models, ollamaRunning{name, name, m.WeightBytes, ollamaDigest(m), newOllamaDetails(m), expires, m.WeightBytes, m.MaxModelLen})
	}
	return w.json(http.StatusOK, out)
}

// ollamaShow answers POST /api/show.
func (h *Handler) ollamaShow(w *reply, r *http.Request) error {
	in, release, err := h.readRequest(w, r)
	if err != nil {
		return err
	}
	defer release()
	if !in.has("model") {
		if v := in.fields["name"]; v != nil { // as it was called once
			in.fields["model"] = v
		}
	}
	in.bool("verbose", false)
	m, err := h.ollamaReadModel(in)
	if err != nil {
		return err
	}
	arch := m.Architecture
	out := ollamaShown{
		Details: newOllamaDetails(m), ModifiedAt: m.Created.UTC().Format(time.RFC3339Nano),
		Modelfile: "# served by OpenInfer\nFROM " + m.Name + "\n", Capabilities: ollamaCapabilities(m),
		Info: pairs{{"general.architecture", arch}, {"general.basename", m.Name}, {arch + ".context_length", m.MaxModelLen}, {arch + ".vocab_size", m.Vocab}},
	}
	return w.json(http.StatusOK, out)
}

func ollamaCapabilities(m engine.ModelInfo) []string {
	out := []string{"completion"}
	if m.Reasoning.Parser != "" {
		out = append(out, "thinking")
	}
	if m.Tools.Parser != "" {
		out = append(out, "tools")
	}
	return out
}

// ollamaReadModel reads the field model, in which a tag of latest may follow a name that has none.
func (h *Handler) ollamaReadModel(in *object) (engine.ModelInfo, error) {
	name := in.string("model")
	if err := in.failure(); err != nil {
		return engine.ModelInfo{}, err
	}
	if name == "" {
		return engine.ModelInfo{}, invalid("model", "is missing")
	}
	m, err := h.model(name)
	if short, ok := strings.CutSuffix(name, latest); err != nil && ok {
		m, err = h.model(short)
	}
	if err != nil {
		e := *asError(err)
		e.message = "model '" + shorten(name, 100) + "' not found; GET /api/tags lists those that are served"
		return m, &e
	}
	return m, nil
}

// ollamaVersionBody answers GET /api/version.
func (h *Handler) ollamaVersion(w *reply, r *http.Request) error {
	return w.json(http.StatusOK, struct {
		Version   string `json:"version"`
		OpenInfer string `json:"openinfer"`
	}{ollamaVersion, h.Version})
}

// ollamaMove answers a request of no messages or no prompt: it loads the model, or with keep_alive 0 parks it.
func (h *Handler) ollamaMove(w *reply, r *http.Request, t *translation, m engine.ModelInfo, s *ollamaShape) error {
	w.model = m.Name
	reason := "load"
	o := t.object()
	_ = readParams(o, m, 1) // nothing is generated, and yet what is wrong is wrong
	keep := readService(o, r.Header).keepAlive
	err := o.failure()
	if err != nil {
		return t.blame(err)
	}
	if keep != nil && *keep == 0 {
		reason = "unload"
		err = h.gen.UnloadModel(r.Context(), m.Name, false)
	} else {
		if keep != nil {
			err = h.gen.KeepAlive(m.Name, *keep)
		}
		if err == nil {
			err = h.gen.LoadModel(r.Context(), m.Name)
		}
	}
	if err != nil {
		return err
	}
	return w.json(http.StatusOK, s.answer(time.Now(), "", "", pair{"done_reason", reason}, pair{"done", true}))
}

// ollamaChat answers POST /api/chat.
func (h *Handler) ollamaChat(w *reply, r *http.Request) error {
	return h.ollamaAnswer(w, r, &ollamaShape{chat: true}, func(t *translation) bool {
		v := t.in.take("messages", "an array", '[')
		if v == nil || len(v) <= len("[]") {
			return false
		}
		t.ollamaMessages()
		return true
	})
}

// ollamaGenerate answers POST /api/generate.
func (h *Handler) ollamaGenerate(w *reply, r *http.Request) error {
	return h.ollamaAnswer(w, r, &ollamaShape{}, func(t *translation) bool {
		refuse(t.in, ollamaGenerateRefusals)
		if t.in.string("prompt") == "" {
			return false
		}
		t.ollamaPrompt()
		return true
	})
}

// ollamaAnswer answers a request that prompt makes the conversation or the text of; false: it has none.
func (h *Handler) ollamaAnswer(w *reply, r *http.Request, s *ollamaShape, prompt func(*translation) bool) error {
	in, release, err := h.readRequest(w, r)
	if err != nil {
		return err
	}
	defer release()
	m, err := h.ollamaReadModel(in)
	if err != nil {
		return err
	}
	s.model = in.string("model")
	t := newTranslation(in)
	t.paths = strings.NewReplacer(".json_schema.schema", "")
	t.set("model", m.Name, "model")
	t.ollamaFields(m, s)
	some := prompt(t)
	if err := in.failure(); err != nil {
		return err
	}
	if !some {
		return h.ollamaMove(w, r, t, m, s)
	}
	f := form{id: "ollama-", shape: s, cut: true}
	if s.raw {
		return t.blame(h.complete(w, r, t.object(), release, f))
	}
	return t.blame(h.converse(w, r, t.object(), release, f))
}
