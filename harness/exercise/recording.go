package exercise

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"example.com/controllers/harness/history"
)

// keep replaces the file Recording by the recording in a file. It returns false, and leaves what was there, if there is none or if it
// has no request.
func (g *Grader) keep(path string) (kept bool, err error) {
	if g.Recording == "" {
		return false, nil
	}
	recorded, err := history.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || len(recorded.Requests) == 0 {
		return false, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep the recording of the check: %w", err)
		}
	}()
	temporary, err := os.CreateTemp(filepath.Dir(g.Recording), ".recording-")
	if err != nil {
		return false, err
	}
	defer os.Remove(temporary.Name()) // there is none any more if it has become the recording
	out := bufio.NewWriter(temporary)
	for _, r := range recorded.Records() {
		err = errors.Join(err, history.Write(out, r))
	}
	if err := errors.Join(err, out.Flush(), temporary.Close()); err != nil {
		return false, err
	}
	return true, os.Rename(temporary.Name(), g.Recording)
}
