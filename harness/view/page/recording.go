package page

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/view"
)

// Suffix is how the names of the recordings in a directory end.
const Suffix = ".jsonl"

// Recording is one recording, or several of the same time, that may still grow. All methods may be called concurrently.
type Recording struct {
	title string
	dir   string // if it is all recordings in a directory, also those that are yet to come

	mu      sync.Mutex
	files   []*file
	model   *view.Model // of the first modelOf records
	modelOf int
	version int // changes with each change
}

// file is one recording.
type file struct {
	path   string
	tail   *history.Tail
	memory *history.Memory
}

// Open opens recordings. A path may be a directory: of all files in it whose names end in [Suffix].
func Open(paths ...string) (*Recording, error) {
	r := &Recording{modelOf: -1}
	var names []string
	for _, path := range paths {
		names = append(names, filepath.Base(path))
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, errors.Join(fmt.Errorf("read the recording: %w", err), r.Close())
		case info.IsDir() && len(paths) > 1:
			return nil, errors.Join(fmt.Errorf("read the recordings: %s is a directory; give it alone, or give files", path), r.Close())
		case info.IsDir():
			r.dir = path
		default:
			if err := r.add(path); err != nil {
				return nil, errors.Join(err, r.Close())
			}
		}
	}
	r.title = strings.Join(names, ", ")
	if err := r.Read(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Recording) add(path string) error {
	if slices.ContainsFunc(r.files, func(f *file) bool { return f.path == path }) {
		return fmt.Errorf("read the recordings: %s is given twice", path)
	}
	tail, err := history.OpenTail(path)
	if err != nil {
		return err
	}
	r.files = append(r.files, &file{path, tail, &history.Memory{}})
	return nil
}

// Close closes the files.
func (r *Recording) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, f := range r.files {
		errs = append(errs, f.tail.Close())
	}
	return errors.Join(errs...)
}

// Read reads what is new. If a file has been replaced, it is read anew; if it is gone, what was in it is kept, and Read returns an
// error that is [history.ErrReplaced].
func (r *Recording) Read() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	if r.dir != "" {
		errs = append(errs, r.look())
	}
	for _, f := range r.files {
		errs = append(errs, r.read(f))
	}
	return errors.Join(errs...)
}

// look finds the files in the directory that are new.
func (r *Recording) look() error {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return fmt.Errorf("read the recordings: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(r.dir, e.Name())
		if !strings.HasSuffix(e.Name(), Suffix) || slices.ContainsFunc(r.files, func(f *file) bool { return f.path == path }) {
			continue
		}
		if err := r.add(path); err != nil {
			return err
		}
	}
	slices.SortFunc(r.files, func(a, b *file) int { return cmp.Compare(a.path, b.path) })
	return nil
}

// read reads what is new in a file.
func (r *Recording) read(f *file) error {
	records, err := f.tail.Read()
	if errors.Is(err, history.ErrReplaced) {
		tail, openErr := history.OpenTail(f.path)
		if openErr != nil {
			return err
		}
		_ = f.tail.Close() // it was only read
		f.tail, f.memory = tail, &history.Memory{}
		r.version++
		records, err = f.tail.Read()
	}
	for _, record := range records {
		f.memory.Record(record)
		r.version++
	}
	return err
}

// Version returns a number that changes whenever there is something new. It is 0 while there is no record.
func (r *Recording) Version() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

// Model returns the model of the records so far.
func (r *Recording) Model() *view.Model {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.modelOf != r.version {
		var all []*history.History
		for _, f := range r.files {
			all = append(all, f.memory.History())
		}
		r.model, r.modelOf = view.Of(r.title, all...), r.version
	}
	return r.model
}
