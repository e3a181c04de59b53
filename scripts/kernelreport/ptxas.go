package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/openinfer-go/openinfer/scripts/kernelreport/cost"
)

var architectures = []string{"sm_80", "sm_86", "sm_89", "sm_90"}

var (
	compiling = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	spills    = regexp.MustCompile(`(\d+) bytes spill stores, (\d+) bytes spill loads`)
	used      = regexp.MustCompile(`Used (\d+) registers`)
)

// assemble compiles all PTX of kernels/cuda for each card.
func assemble(ptxas string) (map[string]cost.Entry, error) {
	all := map[string]cost.Entry{}
	if ptxas == "" {
		return all, nil
	}
	files, err := filepath.Glob("kernels/cuda/*.ptx")
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no kernels/cuda/*.ptx here: run it in the repository's root")
	}
	for _, f := range files {
		for _, arch := range architectures {
			out, err := exec.Command(ptxas, "-arch="+arch, "-v", f, "-o", os.DevNull).CombinedOutput()
			if err != nil {
				first, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n"))
				return nil, fmt.Errorf("%s -arch=%s %s: %w: %s", ptxas, arch, f, err, first)
			}
			at := compiling.FindAllSubmatchIndex(out, -1)
			for i, m := range at {
				end := len(out)
				if i+1 < len(at) {
					end = at[i+1][0]
				}
				name, text := string(out[m[2]:m[3]]), out[m[0]:end]
				e := all[name]
				e.File = filepath.Base(f)
				if e.Spilled == nil {
					e.Spilled = map[string]int{}
				}
				if s := spills.FindSubmatch(text); s != nil {
					stores, _ := strconv.Atoi(string(s[1])) // digits
					loads, _ := strconv.Atoi(string(s[2]))
					if stores+loads > 0 {
						e.Spilled[arch] = stores + loads
					}
				}
				if u := used.FindSubmatch(text); u != nil && arch == "sm_86" {
					e.Registers, _ = strconv.Atoi(string(u[1]))
				}
				all[name] = e
			}
		}
	}
	return all, nil
}
