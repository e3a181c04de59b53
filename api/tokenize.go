package api

import (
	"net/http"
)

// tokenize answers POST /tokenize: of a text, or of a conversation as its template renders it.
func (h *Handler) tokenize(w *reply, r *http.Request) error {
	o, release, err := h.readRequest(w, r)
	if err != nil {
		return err
	}
	defer release()
	m, err := h.loadedModel(w, r, o)
	if err != nil {
		return err
	}
	w.model = m.Name
	var ids []int32
	withText := o.bool("return_token_strs", false)
	if o.has("messages") {
		refuse(o, chatRefusals)
		conversation, _ := readChatPrompt(o)
		if err := o.failure(); err != nil {
			return err
		}
		rendered, err := h.gen.RenderChat(m.Name, conversation)
		if err != nil {
			return err
		}
		ids = rendered.IDs
	} else {
		prompt := o.string("prompt")
		if !o.has("prompt") {
			o.fail("prompt", "is missing, and so is messages")
		}
		addSpecial := o.bool("add_special_tokens", true)
		if err := o.failure(); err != nil {
			return err
		}
		if ids, err = h.gen.Tokenize(m.Name, prompt, addSpecial); err != nil {
			return err
		}
	}
	out := struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []int32  `json:"tokens"`
		Strings     []string `json:"token_strs,omitzero"`
	}{len(ids), m.MaxModelLen, ids, nil}
	if withText {
		out.Strings = make([]string, len(ids))
		for i, id := range ids {
			out.Strings[i], _ = speller{gen: h.gen, model: m.Name}.spell(id, false)
		}
	}
	return w.json(http.StatusOK, out)
}

// detokenize answers POST /detokenize.
func (h *Handler) detokenize(w *reply, r *http.Request) error {
	o, release, err := h.readRequest(w, r)
	if err != nil {
		return err
	}
	defer release()
	m, err := h.loadedModel(w, r, o)
	if err != nil {
		return err
	}
	w.model = m.Name
	var ids []int32
	if v := o.take("tokens", "an array of token ids", '['); v != nil {
		ids = o.tokenIDs("tokens", v, m.Vocab)
	} else {
		o.fail("tokens", "is missing")
	}
	if err := o.failure(); err != nil {
		return err
	}
	text, err := h.gen.Detokenize(m.Name, ids)
	if err != nil {
		return err
	}
	return w.json(http.StatusOK, struct {
		Prompt string `json:"prompt"`
	}{text})
}
