// Package testinput makes Go's test cache notice changes of files outside a test's own module, such as a lesson's
// page, manifests, or the source of a program that the test builds.
//
//   - The go command runs a test again when a file that the test has declared is changed, added or removed.
//   - It still uses the cached result when nothing has changed.
//
// The go command caches the result of a test that passed, together with the files that the test has opened, but
// ignores those outside the test's module. A test that depends on such a file calls [Declare].
package testinput

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Declare tells the go command that the result of the running test depends on these files and directories, including
// everything in the directories except what is in hidden subdirectories. Relative paths are relative to the working
// directory. A path need not exist: the test runs again once it does. Outside of tests, Declare does nothing.
func Declare(paths ...string) {
	for _, path := range paths {
		if name := cacheName(path); name != "" {
			declareTree(name)
		}
	}
}

// DeclareOnly is like Declare but not recursive: a test that declares a directory depends on the names of its
// entries, not on their contents.
func DeclareOnly(paths ...string) {
	for _, path := range paths {
		if name := cacheName(path); name != "" {
			_, _ = os.Stat(name) // the go command also records that a file does not exist
		}
	}
}

// cacheName returns a name for path that the go command accepts as one inside the test's module, or "" outside of
// tests. The go command only compares prefixes: a name that begins with the module's directory and continues with "../"
// is accepted, so the name must not be cleaned.
func cacheName(path string) string {
	if !testing.Testing() {
		return ""
	}
	root, err := moduleRoot()
	if err != nil {
		return ""
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	inside, err := filepath.Rel(root, absolute)
	if err != nil {
		return ""
	}
	return root + string(filepath.Separator) + inside
}

// declareTree calls stat on a file, or reads a directory and its subdirectories. The go command records these calls
// with the names, sizes and modification times. The files are not opened: the go command caches no test that has
// opened a file which was modified in the last seconds.
func declareTree(name string) {
	if info, err := os.Stat(name); err != nil || !info.IsDir() {
		return
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") {
			declareTree(name + string(filepath.Separator) + entry.Name())
		}
	}
}

// moduleRoot returns the root directory of the module of the running test. The working directory of a test is the
// directory of its package.
var moduleRoot = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("no go.mod in the working directory or above it")
		}
	}
	return "", err
})
