package apiproxy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"example.com/controllers/harness/history"
)

// RecordingsVariable is the name of an environment variable: a directory to which "workshop proxy" writes a recording, beside that of
// --record, so that all recordings of a lesson can be drawn as one.
const RecordingsVariable = "WORKSHOP_RECORDINGS"

// FileRecorder writes a recording to a file. Records are not buffered, so a proxy that is killed loses at most the last
// one.
type FileRecorder struct {
	mu     sync.Mutex
	file   io.WriteCloser
	err    error         // the first write error; nothing is written after it
	failed chan struct{} // closed when err is set
}

// NewFileRecorder creates a file with mode 0600, or truncates an existing one.
func NewFileRecorder(path string) (*FileRecorder, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create the recording: %w", err)
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = file.Chmod(0o600) // an existing file may have another mode
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create the recording: %w", err), file.Close())
	}
	return &FileRecorder{file: file, failed: make(chan struct{})}, nil
}

// Record writes a record. It is meant for [Options.Record].
func (f *FileRecorder) Record(r history.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return
	}
	if err := history.Write(f.file, r); err != nil {
		f.err = fmt.Errorf("write the recording: %w; it ends here", err)
		close(f.failed)
	}
}

// Failed returns a channel that is closed when a record could not be written. [FileRecorder.Close] returns why.
func (f *FileRecorder) Failed() <-chan struct{} { return f.failed }

// Close closes the file. It returns the first write error, if there was one.
func (f *FileRecorder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.err, f.file.Close())
}
