// Command kernelreport says what the kernels of kernels/cuda cost on a card that is not there: it writes docs/kernels.md.
//
// Each model of models/configs issues its steps, at their real shapes, on the cuda device over the PTX interpreter. Weights
// have their real sizes and no values. Of each different launch some blocks run and are counted (meter.go); a formula turns
// counts into time on a card (predict.go); ptxas gives registers and spills (ptxas.go). A spill fails the report.
//
// Nothing here is measured on a card: the page says so first.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/openinfer-go/openinfer/models/configs"
	"github.com/openinfer-go/openinfer/scripts/kernelreport/cost"
)

func main() {
	log.SetFlags(log.Ltime)
	out := flag.String("out", "docs/kernels.md", "page to write: `file`")
	toolkit := flag.String("ptxas", "", "`file` of the assembler; none: registers and spills are left out")
	budget := flag.Int("budget", 4_000_000, "lane `instructions` to run of a launch, about")
	only := flag.String("models", strings.Join(configs.Names(), ","), "`names` of configs, the matrix's among them")
	flag.Parse()
	if err := report(*out, *toolkit, strings.Split(*only, ","), uint64(*budget)); err != nil {
		log.Fatal(err)
	}
}

// matrixModel is the model of the speed-test matrix.
const matrixModel = "qwen3.8-27b"

func report(out, assembler string, names []string, budget uint64) error {
	entries, err := assemble(assembler)
	if err != nil {
		return err
	}
	p := page{entries: entries, budget: budget}
	for _, name := range names {
		log.Print(name)
		m, err := cost.Open(name, 8, false, budget)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s := section{model: name, weights: m.Model.Shape().WeightBytes}
		for _, step := range []struct {
			title string
			rows  []cost.Row
		}{
			{"one stream, 4,096 tokens before", cost.Decoding(1, 4096)},
			{"8 streams, 4,096 tokens before each", cost.Decoding(8, 4096)},
			{"2,048 tokens of a prompt, 4,096 before", []cost.Row{{Start: 4096, N: 2048}}},
		} {
			launches, err := m.Step(step.rows)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", name, step.title, err)
			}
			s.steps = append(s.steps, timed{step.title, cost.PredictAll(launches, entries)})
		}
		p.sections = append(p.sections, s)
		if name == matrixModel {
			if p.matrix, err = newMatrix(m, entries); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		m.Close()
	}
	var b bytes.Buffer
	p.write(&b)
	if err := os.WriteFile(out, b.Bytes(), 0o666); err != nil {
		return err
	}
	return p.spills()
}
