// Command ptxrun runs one kernel of a PTX file in the interpreter and reports what it does wrong.
//
//	ptxrun --ptx F --entry E --grid x,y,z --block x,y,z --shared N --args args.json [--counters] [--seed S]
//
// args.json is a list with one element a parameter: {"type":"ptr","in":"file","size":N,"out":"file"}
// (memory that starts with the file's bytes, is N bytes long, and is written to out afterwards),
// {"type":"s32|u32|s64|u64|f32","value":V}, or {"type":"bytes","in":"file"} for a struct. A file that
// is not in the working directory is looked for beside args.json.
//
// Exit status: 0; 3 when the kernel is at fault, one line a fault on standard error that begins with
// its kind; 2 for PTX that cannot be parsed or is not supported, with the line; 1 for anything else.
package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/openinfer-go/openinfer/kernels/cuda/ptx"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

type argument struct {
	Type  string      `json:"type"`
	In    string      `json:"in"`
	Out   string      `json:"out"`
	Size  int         `json:"size"`
	Value json.Number `json:"value"`
}

func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("ptxrun", flag.ContinueOnError)
	fs.SetOutput(stderr)
	file := fs.String("ptx", "", "PTX `file`")
	entry := fs.String("entry", "", "`name` of the kernel; may be left out when the file has one")
	grid := fs.String("grid", "1,1,1", "blocks, `x,y,z`")
	block := fs.String("block", "1,1,1", "threads of a block, `x,y,z`")
	shared := fs.Int("shared", 0, "dynamic shared memory in `bytes`")
	argFile := fs.String("args", "", "JSON `file` with the arguments")
	seed := fs.Uint64("seed", 0, "`seed` of the order of blocks and warps")
	workers := fs.Int("workers", 0, "blocks run in parallel; 0: one a processor")
	counters := fs.Bool("counters", false, "print the counters as JSON")
	if err := fs.Parse(args); err != nil {
		return 1
	}
	res, err := launch(*file, *entry, *grid, *block, *argFile, *shared, *seed, *workers)
	if err != nil {
		fmt.Fprintln(stderr, "ptxrun:", err)
		var bad *ptx.Error
		if errors.As(err, &bad) {
			return 2
		}
		return 1
	}
	if *counters {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(res.Counters); err != nil {
			fmt.Fprintln(stderr, "ptxrun:", err)
			return 1
		}
	}
	for _, f := range res.Faults {
		fmt.Fprintln(stderr, strings.ReplaceAll(f.String(), "\n", " "))
	}
	if len(res.Faults) > 0 {
		return 3
	}
	return 0
}

func launch(file, entry, grid, block, argFile string, shared int, seed uint64, workers int) (*ptx.Result, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	src, err := ptx.Parse(text)
	if err != nil {
		return nil, err
	}
	mem := ptx.NewMemory()
	in, err := ptx.Load(mem, src)
	if err != nil {
		return nil, err
	}
	if names := src.Entries(); entry == "" && len(names) == 1 {
		entry = names[0]
	}
	k, err := in.Kernel(entry)
	if err != nil {
		return nil, err
	}
	l := ptx.Launch{SharedBytes: shared, Seed: seed, Workers: workers}
	if l.Grid, err = dims("grid", grid); err != nil {
		return nil, err
	}
	if l.Block, err = dims("block", block); err != nil {
		return nil, err
	}
	var list []argument
	if argFile != "" {
		text, err := os.ReadFile(argFile)
		if err != nil {
			return nil, err
		}
		dec := json.NewDecoder(strings.NewReader(string(text)))
		dec.UseNumber()
		dec.DisallowUnknownFields()
		if err := dec.Decode(&list); err != nil {
			return nil, fmt.Errorf("%s: %w", argFile, err)
		}
	}
	addrs := make([]uint64, len(list))
	sizes := make([]int, len(list))
	for i, a := range list {
		b, err := a.bytes(mem, filepath.Dir(argFile), &addrs[i], &sizes[i])
		if err != nil {
			return nil, fmt.Errorf("%s: argument %d: %w", argFile, i, err)
		}
		l.Args = append(l.Args, b)
	}
	res, err := k.Launch(l)
	if err != nil {
		return nil, err
	}
	for i, a := range list {
		if a.Out == "" {
			continue
		}
		b := make([]byte, sizes[i])
		if err := mem.Read(addrs[i], b); err != nil {
			return nil, err
		}
		if err := os.WriteFile(a.Out, b, 0o644); err != nil {
			return nil, err
		}
	}
	return res, nil
}

func dims(flag, s string) ([3]int, error) {
	d := [3]int{1, 1, 1}
	parts := strings.Split(s, ",")
	if len(parts) > 3 {
		return d, fmt.Errorf("--%s %q: more than three sizes", flag, s)
	}
	for i, p := range parts {
		n, err := strconv.Atoi(strings.TrimSpace(p))
		if err != nil || n < 1 {
			return d, fmt.Errorf("--%s %q: %q is not a size", flag, s, p)
		}
		d[i] = n
	}
	return d, nil
}

// bytes makes the argument's value, and its memory when it is a pointer.
func (a *argument) bytes(mem *ptx.Memory, dir string, addr *uint64, size *int) ([]byte, error) {
	var content []byte
	if a.In != "" {
		var err error
		content, err = os.ReadFile(a.In)
		if errors.Is(err, os.ErrNotExist) && !filepath.IsAbs(a.In) {
			content, err = os.ReadFile(filepath.Join(dir, a.In))
		}
		if err != nil {
			return nil, err
		}
	}
	if a.Out != "" && a.Type != "ptr" {
		return nil, fmt.Errorf("type %q has no out", a.Type)
	}
	v := a.Value.String()
	var b []byte
	switch a.Type {
	case "ptr":
		*size = max(a.Size, len(content))
		if a.Size != 0 && a.Size < len(content) {
			return nil, fmt.Errorf("size %d is less than the %d bytes of %s", a.Size, len(content), a.In)
		}
		var err error
		if *addr, err = mem.Alloc(*size); err != nil {
			return nil, err
		}
		if len(content) > 0 {
			if err := mem.Write(*addr, content); err != nil {
				return nil, err
			}
		}
		return binary.LittleEndian.AppendUint64(nil, *addr), nil
	case "bytes":
		if a.In == "" {
			return nil, errors.New("type bytes needs in")
		}
		return content, nil
	case "f32":
		f, err := strconv.ParseFloat(v, 32)
		if err != nil {
			return nil, fmt.Errorf("value %q is not an f32", v)
		}
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(f))), nil
	case "s32", "s64":
		bits, _ := strconv.Atoi(a.Type[1:])
		n, err := strconv.ParseInt(v, 0, bits)
		if err != nil {
			return nil, fmt.Errorf("value %q is not an %s", v, a.Type)
		}
		return binary.LittleEndian.AppendUint64(b, uint64(n))[:bits/8], nil
	case "u32", "u64":
		bits, _ := strconv.Atoi(a.Type[1:])
		n, err := strconv.ParseUint(v, 0, bits)
		if err != nil {
			return nil, fmt.Errorf("value %q is not a %s", v, a.Type)
		}
		return binary.LittleEndian.AppendUint64(b, n)[:bits/8], nil
	}
	return nil, fmt.Errorf("unknown type %q", a.Type)
}
