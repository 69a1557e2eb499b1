package torture

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// identify returns what the outcomes of a scenario and its programs belong to.
func identify(s *Scenario, commands Commands) (id identity, err error) {
	hash, arguments := sha256.New(), sha256.New()
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		command, err := lookUp(commands[name])
		if err != nil {
			return id, err
		}
		if err := hashFile(hash, command[0]); err != nil {
			return id, fmt.Errorf("program %s: %w", name, err)
		}
		for _, argument := range command[1:] {
			// Where the program is an interpreter, the controller is a file among its arguments. A flag names one after a =.
			file := strings.ReplaceAll(argument, dirVariable, filepath.Dir(s.path))
			if _, value, isFlag := strings.Cut(file, "="); isFlag && strings.HasPrefix(file, "-") {
				file = value
			}
			if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
				continue
			}
			if err := hashFile(hash, file); err != nil {
				return id, fmt.Errorf("program %s: %w", name, err)
			}
		}
		fmt.Fprintf(arguments, "%q\n", append([]string{name}, command[1:]...))
	}
	id.Program, id.Arguments = fmt.Sprintf("%x", hash.Sum(nil)), fmt.Sprintf("%x", arguments.Sum(nil))
	hash.Reset()
	for _, file := range append([]string{s.path}, s.manifestPaths()...) {
		if err := hashTree(hash, file, map[string]bool{}); err != nil {
			return id, fmt.Errorf("the scenario: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Outside)) {
		if err := hashSources(hash, s.file(s.Outside[name].Module)); err != nil {
			return id, fmt.Errorf("outside %s: %w", name, err)
		}
	}
	id.Scenario = fmt.Sprintf("%x", hash.Sum(nil))
	return id, nil
}

func (s *Scenario) manifestPaths() (paths []string) {
	for _, name := range s.Manifests {
		paths = append(paths, s.file(name))
	}
	return paths
}

// hashTree adds a file, or all files below a directory, to a hash. Like kustomize, it follows symbolic links. seen are the
// directories that it has been to; it does not enter them again, because a link may lead upwards.
func hashTree(hash io.Writer, path string, seen map[string]bool) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil || seen[path] {
		return err
	}
	if !info.IsDir() {
		return hashFile(hash, path)
	}
	seen[path] = true
	entries, err := os.ReadDir(path)
	for _, entry := range entries {
		err = errors.Join(err, hashTree(hash, filepath.Join(path, entry.Name()), seen))
	}
	return err
}

// hashSources adds the Go files of a module, and the versions of what it requires, to a hash. The go command follows a
// symbolic link to the module, but none in it.
func hashSources(hash io.Writer, dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		isSource := filepath.Ext(path) == ".go" || entry != nil && (entry.Name() == "go.mod" || entry.Name() == "go.sum")
		if err != nil || entry.IsDir() || !isSource {
			return err
		}
		return hashFile(hash, path)
	})
}

// hashFile adds the size and the content of a file to a hash. If path is a symbolic link, it follows it.
func hashFile(hash io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.IsDir() {
		return err
	}
	fmt.Fprintf(hash, "%d\n", info.Size())
	_, err = io.Copy(hash, file)
	return err
}
