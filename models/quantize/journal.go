package quantize

import (
	"bufio"
	"bytes"
	"encoding/json/v2"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/openinfer-go/openinfer/models/checkpoint"
)

// journal is the file that says what of a folder is done: a line for the plan, and one for each job, written after its
// bytes were.
type journal struct {
	file *os.File
	done map[string]entry
}

// entry is a line of the journal.
type entry struct {
	Plan    string  `json:"plan,omitzero"` // of the first line
	Job     string  `json:"job,omitzero"`
	Sum     uint32  `json:"crc32"` // of the job's tensors
	Weights float64 `json:"weights,omitzero"`
	Outputs float64 `json:"outputs,omitzero"`
}

// openJournal reads the journal of a folder and continues it, or begins one. A folder with tensors of another plan is an
// error: what is in it may have taken a day.
func openJournal(dir, plan string) (*journal, error) {
	path := filepath.Join(dir, checkpoint.Unfinished)
	j := &journal{done: map[string]entry{}}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	kept := 0
	scanner := bufio.NewScanner(bytes.NewReader(old))
	for scanner.Scan() {
		var e entry
		// A line that was cut short, and what follows it, is as if never written.
		if json.Unmarshal(scanner.Bytes(), &e) != nil || kept+len(scanner.Bytes()) >= len(old) {
			break
		}
		if kept == 0 && e.Plan != plan {
			return nil, fmt.Errorf("%s: is the unfinished work of another source or of other settings: finish that, or remove it", dir)
		}
		kept += len(scanner.Bytes()) + 1
		if e.Job != "" {
			j.done[e.Job] = e
		}
	}
	if j.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	if err = j.file.Truncate(int64(kept)); err == nil {
		_, err = j.file.Seek(int64(kept), 0)
	}
	if err == nil && kept == 0 {
		err = j.write(entry{Plan: plan})
	}
	if err != nil {
		return nil, errors.Join(err, j.file.Close())
	}
	return j, nil
}

func (j *journal) write(e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = j.file.Write(append(b, '\n'))
	return err
}

// checksum is the CRC-32C of what is in the files of a job's tensors.
func checksum(w *checkpoint.Writer, tensors []checkpoint.NewTensor) (uint32, error) {
	sum := uint32(0)
	table := crc32.MakeTable(crc32.Castagnoli)
	b := make([]byte, 1<<20)
	for _, t := range tensors {
		for at := int64(0); at < t.Bytes(); at += int64(len(b)) {
			part := b[:min(int64(len(b)), t.Bytes()-at)]
			if err := w.ReadAt(t.Name, at, part); err != nil {
				return 0, err
			}
			sum = crc32.Update(sum, table, part)
		}
	}
	return sum, nil
}
