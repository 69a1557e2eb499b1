package history

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ErrReplaced is the error of a [Tail] whose file has become shorter, or is another one by now.
var ErrReplaced = errors.New("the recording has been replaced")

// Tail reads a recording that grows, each time from where it has got to.
type Tail struct {
	path string
	file *os.File
	in   *bufio.Reader
	read int64
	part []byte // the beginning of a line
	line int    // how many lines were complete
	bad  error  // about a line that is not a record, and after which nothing is read
}

// OpenTail opens a recording, to which the recorder may still be writing.
func OpenTail(path string) (*Tail, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the recording: %w", err)
	}
	return &Tail{path: path, file: file, in: bufio.NewReaderSize(file, 1<<16)}, nil
}

// Read returns the records that are complete and have not been returned before. It returns those before a line that is not a
// record together with an error, which further calls return again, and [ErrReplaced] if the file is no longer the one that was opened.
func (t *Tail) Read() ([]Record, error) {
	var records []Record
	for {
		if t.bad != nil {
			return records, cmp.Or(t.changed(), t.bad)
		}
		part, err := t.in.ReadBytes('\n')
		t.read += int64(len(part))
		t.part = append(t.part, part...)
		if errors.Is(err, io.EOF) {
			return records, t.changed()
		}
		if err != nil {
			return records, fmt.Errorf("read the recording %s: %w", t.path, err)
		}
		t.line++
		line := bytes.TrimSpace(t.part)
		t.part = t.part[:0]
		if len(line) == 0 {
			continue
		}
		record, err := parse(line)
		if err != nil {
			t.bad = fmt.Errorf("read the recording %s: line %d: %w", t.path, t.line, err)
			continue
		}
		records = append(records, record)
	}
}

// Incomplete says whether the file ends in a line that is not complete.
func (t *Tail) Incomplete() bool { return len(t.part) > 0 }

// changed returns an error if the file is no longer the one that was opened.
func (t *Tail) changed() error {
	now, err := os.Stat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is gone", ErrReplaced, t.path)
	}
	if err != nil {
		return fmt.Errorf("read the recording: %w", err)
	}
	opened, err := t.file.Stat()
	if err != nil {
		return fmt.Errorf("read the recording: %w", err)
	}
	if !os.SameFile(now, opened) || now.Size() < t.read {
		return fmt.Errorf("%w: %s", ErrReplaced, t.path)
	}
	return nil
}

// Close closes the file.
func (t *Tail) Close() error { return t.file.Close() }
