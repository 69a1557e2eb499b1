// Package statefile keeps a small YAML file that a person may edit, and that several processes may change at a time.
//
//   - A reader sees the old file or the new one, and on a full disk the old one stays.
//   - A change is made to what the file has at that moment, so nobody's change is lost.
//   - A file that cannot be read is never overwritten.
package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
	"sigs.k8s.io/yaml"
)

// Read reads the file at path into a value. If there is no file, the value stays as it is.
func Read(path string, into any, options ...yaml.JSONOpt) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := yaml.Unmarshal(text, into, options...); err != nil {
		return fmt.Errorf("%s: %w; repair it, or delete it to start over", path, err)
	}
	return nil
}

// Update calls change while no other process updates the file, and writes the value that it returns. change reads the file itself.
// head is a comment at the top of the file.
func Update(path, head string, change func() (any, error)) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock := flock.New(filepath.Join(dir, ".progress.lock"))
	if err := lock.Lock(); err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }() // it ends with the process at the latest
	value, err := change()
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(dir, ".progress-")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(append([]byte("# "+head+"\n"), text...))
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}
