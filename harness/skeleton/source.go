package skeleton

import (
	"bytes"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/testinput"
)

// source is what a skeleton is made of.
type source struct {
	// Copy has the lesson's files, and directories of files, that are in the skeleton, relative to the lesson.
	Copy []string `json:"copy"`
	// Replace has the words to replace, in texts and paths. Of those that match at the same place, the first counts.
	Replace []replacement `json:"replace"`
	// Taken are names that a controller must not have.
	Taken []string `json:"taken"`
	// Next are commands for the one who has written it; {name} and so on are replaced as in New.
	Next []Command `json:"next"`

	path  string            // of the definition
	files map[string][]byte // by slash-separated path, words not replaced yet
}

// replacement is a word and what is in its place. New may have {name}, {package}, {module}, {import} and {commit}.
type replacement struct {
	Old string `json:"old"`
	New string `json:"new"`
}

// read reads the skeleton of a lesson.
func read(lessonDir string) (*source, error) {
	s := &source{path: filepath.Join(lessonDir, definition), files: map[string][]byte{}}
	text, err := readFile(s.path)
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(text, s); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.path, err)
	}
	for _, name := range s.Copy {
		if err := s.add(lessonDir, name); err != nil {
			return nil, fmt.Errorf("read a file that %s names: %w", s.path, err)
		}
	}
	return s, s.add(filepath.Join(filepath.Dir(s.path), "files"), ".")
}

// add reads a file below dir, or all files in a directory and its subdirectories.
func (s *source) add(dir, name string) error {
	return filepath.WalkDir(filepath.Join(dir, name), func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		testinput.DeclareOnly(file)
		if entry.IsDir() {
			return nil
		}
		inside, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		s.files[filepath.ToSlash(inside)], err = readFile(file)
		return err
	})
}

func readFile(name string) ([]byte, error) {
	testinput.Declare(name)
	return os.ReadFile(name)
}

// packageName returns the name of the Go package of a controller with that name.
func packageName(name string) string { return strings.ReplaceAll(name, "-", "") }

// placeholders returns what replaces the placeholders of the definition.
func placeholders(name, module, commit string) *strings.Replacer {
	importSpec := fmt.Sprintf("%q", module)
	if path.Base(module) != packageName(name) {
		importSpec = packageName(name) + " " + importSpec
	}
	return strings.NewReplacer("{name}", name, "{package}", packageName(name), "{module}", module, "{import}", importSpec, "{commit}", commit)
}

// render returns the files of a skeleton. Go files are formatted. It is an error if a word to replace is nowhere.
func (s *source) render(words *strings.Replacer) (map[string][]byte, error) {
	var pairs []string
	for _, r := range s.Replace {
		pairs = append(pairs, r.Old, words.Replace(r.New))
		if !s.has(r.Old) {
			return nil, fmt.Errorf("%s replaces %q, which is in none of its files and their names; correct the entry, or remove it", s.path, r.Old)
		}
	}
	replacer := strings.NewReplacer(pairs...)
	rendered := map[string][]byte{}
	for name, text := range s.files {
		text = []byte(replacer.Replace(string(text)))
		name = replacer.Replace(name)
		if path.Ext(name) == ".go" {
			var err error
			if text, err = format.Source(text); err != nil {
				return nil, fmt.Errorf("format %s: %w", name, err)
			}
		}
		rendered[name] = text
	}
	return rendered, nil
}

// has reports whether a word is in a file.
func (s *source) has(word string) bool {
	for name, text := range s.files {
		if bytes.Contains(text, []byte(word)) || strings.Contains(name, word) {
			return true
		}
	}
	return false
}
