package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Ref names a model of a hub: NAME[@REVISION][:FILE], or NAME/FILE for a file.
type Ref struct {
	Repo     string // org/name, or name alone for the oldest repositories
	Revision string // a branch, tag or commit; "" is the branch main
	File     string // which GGUF file: its path, its name, or its quantisation such as Q4_K_M; "" where there is no choice
}

var (
	repoPart     = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?$`)
	commitShape  = regexp.MustCompile(`^[0-9a-f]{7,64}$`)
	revisionText = regexp.MustCompile(`^[A-Za-z0-9._/+#@=-]+$`)
)

// maxRepo is the longest name that hubs give.
const maxRepo = 96

// ParseRef reads a model's name. The error says which part is wrong.
func ParseRef(text string) (Ref, error) {
	refuse := func(format string, args ...any) (Ref, error) {
		return Ref{}, fmt.Errorf("%.200q is not a model of a hub: %s", text, fmt.Sprintf(format, args...))
	}
	name, file, hasFile := strings.Cut(text, ":")
	name, revision, hasRevision := strings.Cut(name, "@")
	parts := strings.Split(name, "/")
	if len(parts) > 2 {
		if hasFile {
			return refuse("it names a file twice; write org/name:FILE or org/name/FILE")
		}
		file, hasFile = strings.Join(parts[2:], "/"), true
		parts = parts[:2]
	}
	r := Ref{Repo: strings.Join(parts, "/"), Revision: revision, File: file}
	switch {
	case len(r.Repo) > maxRepo:
		return refuse("its name is longer than %d characters", maxRepo)
	case hasRevision && revision == "":
		return refuse("the revision after @ is missing")
	case hasFile && file == "":
		return refuse("the file or quantisation after its name is missing")
	case strings.HasSuffix(r.Repo, ".git"):
		return refuse("a name does not end in .git")
	}
	for _, p := range parts {
		if !repoPart.MatchString(p) || strings.Contains(p, "..") || strings.Contains(p, "--") {
			return refuse("write org/name, of letters, digits, -, _ and . (no -- or ..)")
		}
	}
	if err := checkRevision(revision); err != nil {
		return refuse("%v", err)
	}
	if hasFile {
		if err := checkFile(file); err != nil {
			return refuse("%v", err)
		}
	}
	return r, nil
}

// checkRevision refuses what could not be a file's name under refs/.
func checkRevision(s string) error {
	switch {
	case s == "":
		return nil
	case len(s) > 200:
		return errors.New("a revision of more than 200 characters")
	case !fs.ValidPath(s) || !revisionText.MatchString(s) || strings.Contains(s, ".."):
		return fmt.Errorf("%q cannot be a revision: want a branch, a tag or a commit", s)
	}
	return nil
}

// checkFile refuses a name that leaves its folder, that terminals would act on, or that no disk takes.
func checkFile(s string) error {
	switch {
	case !fs.ValidPath(s) || s == ".":
		return fmt.Errorf("file %.200q: its path leaves the repository", s)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) || strings.Contains(s, `\`):
		return fmt.Errorf("file %.200q: its name has characters that file names do not have", s)
	case len(s) > 1024:
		return fmt.Errorf("file %.80q...: its path of %d bytes is longer than 1024", s, len(s))
	}
	for part := range strings.SplitSeq(s, "/") {
		if len(part) > 255 {
			return fmt.Errorf("file %.80q...: its name of %d bytes is longer than 255", part, len(part))
		}
	}
	return nil
}

// String writes a Ref as ParseRef reads it.
func (r Ref) String() string {
	s := r.Repo
	if r.Revision != "" {
		s += "@" + r.Revision
	}
	if r.File != "" {
		s += ":" + r.File
	}
	return s
}

// with is r with another file.
func (r Ref) with(file string) Ref { r.File = file; return r }

// revision is the revision with its default.
func (r Ref) revision() string {
	if r.Revision == "" {
		return "main"
	}
	return r.Revision
}

// folder is the repository's folder in a cache.
func (r Ref) folder() string { return "models--" + strings.ReplaceAll(r.Repo, "/", "--") }

// refOfFolder is the reverse of folder.
func refOfFolder(name string) (Ref, bool) {
	repo, ok := strings.CutPrefix(path.Base(name), "models--")
	if !ok {
		return Ref{}, false
	}
	r, err := ParseRef(strings.Replace(repo, "--", "/", 1))
	return r, err == nil && r.File == "" && r.Revision == ""
}
