package api

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"

	"github.com/openinfer-go/openinfer/internal/uplot"
)

// The page at / is the files of web, as they are: HTML, a style sheet and JavaScript modules. It needs no key; what it asks
// of the API does.
//
//go:embed web
var web embed.FS

const (
	pageFolder = "/ui/" // of the page's files
	// pagePolicy lets the page run its own files and ask its own server, and nothing else. No text can become markup or
	// script, as no script may turn one into that.
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)

// addPage adds the page's files to the routes.
func (h *Handler) addPage() {
	add := func(at, name string, body []byte) {
		h.routes[at] = route{method: "GET", open: true, quiet: true, serve: newPageFile(name, body).serve}
	}
	files, err := fs.ReadDir(web, "web")
	if err != nil {
		panic(err) // it is in the program
	}
	for _, f := range files {
		body, err := web.ReadFile(path.Join("web", f.Name()))
		if err != nil {
			panic(err)
		}
		switch f.Name() {
		case "index.html":
			add("/", f.Name(), body)
		case "icon.svg":
			add("/favicon.ico", f.Name(), body)
		}
		add(pageFolder+f.Name(), f.Name(), body)
	}
	add(pageFolder+"uplot.js", "uplot.js", []byte(uplot.Script()))
	add(pageFolder+"uplot.css", "uplot.css", []byte(uplot.Style()))
}

// pageFile is a file of the page.
type pageFile struct {
	kind, tag string
	body      []byte
}

func newPageFile(name string, body []byte) *pageFile {
	kind := mime.TypeByExtension(path.Ext(name))
	if path.Ext(name) == ".js" { // whatever the system's table says
		kind = "text/javascript; charset=utf-8"
	}
	sum := sha256.Sum256(body)
	return &pageFile{kind: kind, tag: `"` + hex.EncodeToString(sum[:8]) + `"`, body: body}
}

func (f *pageFile) serve(w *reply, r *http.Request) error {
	head := w.Header()
	head.Set("Content-Security-Policy", pagePolicy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Cache-Control", "no-cache") // asked again each time: another version may have come
	head.Set("ETag", f.tag)
	w.deadline()
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	head.Set("Content-Type", f.kind)
	head.Set("Content-Length", strconv.Itoa(len(f.body)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := w.Write(f.body); err != nil {
		return w.gone(err)
	}
	return nil
}
