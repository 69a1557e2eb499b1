package apiproxy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"example.com/controllers/harness/history"
)

// FileRecorder writes a recording to a file. Each line is written at once, so that a killed proxy leaves
// all but the last.
type FileRecorder struct {
	mu     sync.Mutex
	file   io.WriteCloser
	err    error         // of the first line that could not be written; none is written after it
	failed chan struct{} // closed when there is one
}

// NewFileRecorder makes a file with mode 0600, or empties the one that is there.
func NewFileRecorder(path string) (*FileRecorder, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the recording: %w", err)
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = file.Chmod(0o600) // of one that was there
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the recording: %w", err), file.Close())
	}
	return &FileRecorder{file: file, failed: make(chan struct{})}, nil
}

// Record writes a record. It is for Options.Record.
func (f *FileRecorder) Record(r history.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return
	}
	if err := history.Write(f.file, r); err != nil {
		f.err = fmt.Errorf("the recording cannot be written any further: %w", err)
		close(f.failed)
	}
}

// Failed returns a channel that is closed when a record could not be written. Close says why.
func (f *FileRecorder) Failed() <-chan struct{} { return f.failed }

// Close closes the file. Its error is the first of all that were written.
func (f *FileRecorder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.err, f.file.Close())
}
