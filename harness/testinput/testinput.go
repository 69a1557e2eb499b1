// Package testinput keeps Go's test cache honest for tests that read or run what is outside of their own module:
// a lesson's page, manifests, the source of a program that they build.
//
// The go command does not run a test again whose packages, environment variables and files are as they were. Of the
// files that a test opens, however, it looks only at those that are in the module of the test; of all others it
// takes for granted that they do not change. A test that depends on such a file therefore calls [Declare].
package testinput

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Declare tells the go command that the result of the running test depends on these files, and on all files below
// these directories but for hidden ones. Relative paths are relative to the working directory. What does not exist is
// declared too: the test is run again when it does. Outside of tests, Declare does nothing.
func Declare(paths ...string) {
	for _, path := range paths {
		if name := noted(path); name != "" {
			read(name)
		}
	}
}

// DeclareOnly is Declare for these files and directories alone. Of a directory, it notes which entries it has, and not
// whether they change.
func DeclareOnly(paths ...string) {
	for _, path := range paths {
		if name := noted(path); name != "" {
			_, _ = os.Stat(name) // that it is not there is noted as well
		}
	}
}

// noted returns the name by which the go command takes note of what is at path, or "" outside of tests. It compares
// names, not places. So this one begins with the directory of the module, and must not be cleaned.
func noted(path string) string {
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

// read lists a directory and those below it, or looks at a file, which the go command notes: names, sizes and times
// of change. Files are not opened, because the go command caches nothing that has opened a file of the last seconds.
func read(name string) {
	if info, err := os.Stat(name); err != nil || !info.IsDir() {
		return
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") {
			read(name + string(filepath.Separator) + entry.Name())
		}
	}
}

// moduleRoot returns the directory of the module whose test runs: a test starts in the directory of its package.
var moduleRoot = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("there is no go.mod above the working directory")
		}
	}
	return "", err
})
