package hub

import (
	"cmp"
	"encoding/json/v2"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	configFile  = "config.json"
	singleFile  = "model.safetensors"
	indexFile   = "model.safetensors.index.json"
	tensorsEnd  = ".safetensors"
	ggufEnd     = ".gguf"
	maxIndex    = 128 << 20 // bytes of an index
	maxConfig   = 8 << 20   // bytes of a config.json
	listedNames = 40        // choices that an error lists
)

// beside are the files that belong to a safetensors checkpoint when a repository has them: what this program
// reads, and what other tools need to make the same tokenizer from the same cache.
var beside = []string{
	"generation_config.json", "quantize_config.json", "quant_config.json",
	"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
	"vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json",
}

// selection is the files of a repository that make one checkpoint.
type selection struct {
	files []string
	open  string // the GGUF file to open; "" when the folder is the checkpoint
	index bool   // files has the index; the shards that it names are still to be added
}

// choose selects a checkpoint among a repository's files: safetensors, unless file says which GGUF or there is
// nothing else. sizes, which may be nil, are for the list of choices.
func choose(r Ref, names []string, sizes map[string]int64) (selection, error) {
	var refused error
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		err := checkFile(n)
		refused = cmp.Or(refused, err)
		return err != nil
	})
	s, err := chooseAmong(r, names, sizes)
	if err != nil && refused != nil {
		err = fmt.Errorf("%w (not counting %v)", err, refused)
	}
	return s, err
}

func chooseAmong(r Ref, names []string, sizes map[string]int64) (selection, error) {
	ggufs := ggufModels(names)
	tensors := slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return strings.Contains(n, "/") || !strings.HasSuffix(n, tensorsEnd)
	})
	if r.File != "" {
		return chooseGGUF(r, ggufs, sizes)
	}
	hasIndex := slices.Contains(names, indexFile)
	switch {
	case len(tensors) == 0 && !hasIndex && len(ggufs) > 0:
		return chooseGGUF(r, ggufs, sizes)
	case len(tensors) == 0 && !hasIndex:
		return selection{}, errors.New("has neither safetensors nor GGUF files in it" + othersOf(names))
	case !slices.Contains(names, configFile):
		return selection{}, fmt.Errorf("%s is missing: safetensors without it are no checkpoint", configFile)
	}
	s := selection{files: []string{configFile}}
	for _, n := range beside {
		if slices.Contains(names, n) {
			s.files = append(s.files, n)
		}
	}
	switch {
	case slices.Contains(tensors, singleFile):
		s.files = append(s.files, singleFile)
	case hasIndex:
		s.files, s.index = append(s.files, indexFile), true
	case len(tensors) > 1 || splitPart.MatchString(strings.TrimSuffix(tensors[0], tensorsEnd)):
		return selection{}, fmt.Errorf("%s is missing: it says which of the .safetensors files (%s, ...) belong together", indexFile, tensors[0])
	default:
		s.files = append(s.files, tensors[0])
	}
	return s, nil
}

// othersOf says what weights there are in formats that nobody here reads.
func othersOf(names []string) string {
	for _, n := range names {
		if e := path.Ext(n); e == ".bin" || e == ".pt" || e == ".pth" || e == ".onnx" || e == ".h5" || e == ".msgpack" {
			return fmt.Sprintf(" (%s is not read: look for a repository with safetensors or GGUF)", n)
		}
	}
	return ""
}

// shards are the files that an index names, in order.
func shards(raw []byte) ([]string, error) {
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, err
	}
	names := slices.Compact(slices.Sorted(maps.Values(index.Map)))
	if len(names) == 0 {
		return nil, errors.New("weight_map is missing or empty")
	}
	for _, n := range names {
		if err := checkFile(n); err != nil {
			return nil, fmt.Errorf("weight_map: %w", err)
		}
		if strings.Contains(n, "/") || !strings.HasSuffix(n, tensorsEnd) {
			return nil, fmt.Errorf("weight_map: file %.200q is no .safetensors file beside the index", n)
		}
	}
	return names, nil
}

// ggufModel is one model of a repository: a file, or all parts of a split one.
type ggufModel struct {
	stem  string // the path without -00001-of-0000N and .gguf
	label string // the quantisation as the name has it, such as Q4_K_M; "" when it has none
	parts int    // that there should be
	files []string
}

var (
	splitPart = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})$`)
	quantName = regexp.MustCompile(`(?i)(?:^|[-._])((?:UD-)?(?:I?Q\d+(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|F16|FP16|F32|MXFP4(?:_MOE)?))$`)
)

// ggufModels are the models among names, sorted. Projectors of images and importance matrices come as .gguf
// beside models, and are none.
func ggufModels(names []string) []*ggufModel {
	models := map[string]*ggufModel{}
	for _, n := range slices.Sorted(slices.Values(names)) {
		stem, ok := strings.CutSuffix(n, ggufEnd)
		base := strings.ToLower(path.Base(stem))
		if !ok || strings.Contains(base, "mmproj") || strings.HasPrefix(base, "imatrix") || strings.HasSuffix(base, "imatrix") {
			continue
		}
		key, parts := stem, 1
		if m := splitPart.FindStringSubmatch(stem); m != nil {
			parts, _ = strconv.Atoi(m[3])
			stem, key = m[1], m[1]+"/"+m[3] // two splits of one model are two models
		}
		g := models[key]
		if g == nil {
			g = &ggufModel{stem: stem, parts: parts}
			if m := quantName.FindStringSubmatch(path.Base(stem)); m != nil {
				g.label = m[1]
			}
			models[key] = g
		}
		g.files = append(g.files, n)
	}
	return slices.SortedFunc(maps.Values(models), func(a, b *ggufModel) int { return strings.Compare(a.files[0], b.files[0]) })
}

// named says whether s means this model: its quantisation, or a file with or without folder and ending.
func (g *ggufModel) named(s string) bool {
	if strings.EqualFold(s, g.label) || s == g.stem || s == path.Base(g.stem) {
		return s != ""
	}
	for _, f := range g.files {
		if s == f || s == path.Base(f) || s+ggufEnd == f || s+ggufEnd == path.Base(f) {
			return true
		}
	}
	return false
}

// choiceError says that a name means several models, and lists them.
type choiceError struct{ text string }

func (e choiceError) Error() string { return e.text }

// chooseGGUF selects the model that r.File means, or the only one.
func chooseGGUF(r Ref, all []*ggufModel, sizes map[string]int64) (selection, error) {
	found := all
	if r.File != "" {
		found = slices.DeleteFunc(slices.Clone(all), func(g *ggufModel) bool { return !g.named(r.File) })
	}
	// A full path means itself, whatever else ends alike.
	if i := slices.IndexFunc(found, func(g *ggufModel) bool { return slices.Contains(g.files, r.File) }); i >= 0 {
		found = found[i : i+1]
	}
	switch {
	case len(all) == 0:
		return selection{}, fmt.Errorf("has no .gguf file, so none that is %q: leave it out for the whole model", r.File)
	case len(found) == 0:
		return selection{}, fmt.Errorf("no GGUF file of it is %q; there are\n%s", r.File, choices(r, all, all, sizes))
	case len(found) > 1 && r.File != "":
		return selection{}, choiceError{fmt.Sprintf("%q is more than one of its GGUF files; choose one:\n%s", r.File, choices(r, found, all, sizes))}
	case len(found) > 1:
		return selection{}, choiceError{fmt.Sprintf("has %d GGUF models; choose one:\n%s", len(found), choices(r, found, all, sizes))}
	}
	g := found[0]
	if g.files[0] == g.stem+ggufEnd {
		return selection{files: g.files, open: g.files[0]}, nil
	}
	for i := 1; i <= min(g.parts, len(g.files)+1); i++ {
		if name := fmt.Sprintf("%s-%05d-of-%05d%s", g.stem, i, g.parts, ggufEnd); !slices.Contains(g.files, name) {
			return selection{}, fmt.Errorf("%s is missing: a model in %d parts, of which %d are there", name, g.parts, len(g.files))
		}
	}
	if len(g.files) != g.parts {
		return selection{}, fmt.Errorf("%s: numbered beyond its %d parts", g.files[len(g.files)-1], g.parts)
	}
	return selection{files: g.files, open: g.files[0]}, nil
}

// choices lists models as a person would write them.
func choices(r Ref, models, all []*ggufModel, sizes map[string]int64) string {
	var b strings.Builder
	for i, g := range models {
		if i == listedNames {
			fmt.Fprintf(&b, "  ... and %d more", len(models)-i)
			break
		}
		size := int64(0)
		for _, f := range g.files {
			size += sizes[f]
		}
		fmt.Fprintf(&b, "  %s", g.ref(r, all))
		if size > 0 {
			fmt.Fprintf(&b, "  (%.1f GB)", float64(size)/1e9)
		}
		b.WriteByte('\n')
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// ref is the shortest name that means this model and no other: r's with the quantisation or the path.
func (g *ggufModel) ref(r Ref, all []*ggufModel) Ref {
	same := 0
	for _, other := range all {
		if strings.EqualFold(other.label, g.label) {
			same++
		}
	}
	if g.label == "" || same > 1 {
		return r.with(g.files[0])
	}
	return r.with(g.label)
}
