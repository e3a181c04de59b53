package api

import (
	"embed"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"net/http"
)

// fragments describe the API: each file has the paths and the components of one part of it. A new endpoint, or a
// field of one, goes into the file of its part; a test compares the paths with the routes and real answers with the schemas.
//
//go:embed openapi/*.json
var fragments embed.FS

// openAPI is the fragments as one OpenAPI document. Two of them that describe one thing are an error.
func openAPI(version string) (jsontext.Value, error) {
	type tree = map[string]jsontext.Value
	paths, components := tree{}, map[string]tree{}
	add := func(into, from tree, file string) error {
		for name, v := range from {
			if into[name] != nil {
				return fmt.Errorf("api: %s: %s is described twice", file, name)
			}
			into[name] = v
		}
		return nil
	}
	files, err := fragments.ReadDir("openapi")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		b, err := fragments.ReadFile("openapi/" + f.Name())
		if err != nil {
			return nil, err
		}
		var part struct {
			Paths      tree            `json:"paths"`
			Components map[string]tree `json:"components"`
		}
		if err := json.Unmarshal(b, &part, json.RejectUnknownMembers(true)); err != nil {
			return nil, fmt.Errorf("api: %s: %w", f.Name(), err)
		}
		if err := add(paths, part.Paths, f.Name()); err != nil {
			return nil, err
		}
		for kind, all := range part.Components {
			if components[kind] == nil {
				components[kind] = tree{}
			}
			if err := add(components[kind], all, f.Name()); err != nil {
				return nil, err
			}
		}
	}
	return json.Marshal(pairs{
		{"openapi", "3.1.0"},
		{"info", pairs{{"title", "OpenInfer"}, {"version", version}, {"license", pairs{{"name", "see LICENSE"}}},
			{"description", "Several language models served from one device. Fields that are not described here are ignored, or refused by name where leaving them out would change the answer; null means the default."}}},
		{"servers", []pairs{{{"url", "/"}}}},
		{"paths", paths},
		{"components", components},
	}, json.Deterministic(true))
}

// describe answers GET /openapi.json.
func (h *Handler) describe(w *reply, r *http.Request) error {
	doc, err := openAPI(h.Version)
	if err != nil {
		return err
	}
	return w.json(http.StatusOK, doc)
}
