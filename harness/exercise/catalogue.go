// Package exercise keeps the exercises: it gives the participant copies of them, checks the copies, and remembers which
// have passed.
//
//   - An exercise as shipped is never edited. The participant works on a copy, and a reset makes a new one.
//   - A check runs the participant's code against the grader as shipped, in a process of its own that cannot harm the
//     tool: it may panic, hang, start processes, write without end or delete its own directory.
//   - Each check ends with a [Result].
package exercise

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Exercise is an exercise as shipped, and where the participant's copy is.
type Exercise struct {
	Name   string // such as "03-tombstone", the name of its directory
	Number int    // exercises are done in the order of their numbers
	About
	Dir  string // as shipped
	Mine string // the participant's copy; it need not exist
}

// About is the file exercise.yaml.
type About struct {
	Title   string `json:"title"`
	Lesson  int    `json:"lesson"`            // the lesson that it belongs to, from 1
	Cluster bool   `json:"cluster,omitempty"` // true if the check needs a control plane
	Write   bool   `json:"write,omitempty"`   // true if the participant writes a part that is missing, instead of fixing a bug
	// Vet has the analyzers of go vet that must find nothing in the participant's code, such as "waitgroup"; "" for none. They
	// make each check slower, and the first one by many seconds. So it is for mistakes that no scene can show.
	Vet string `json:"vet,omitempty"`
	// TimelineVaries is true if the order of goroutines decides what the exercise as shipped does after its mistake.
	TimelineVaries bool `json:"timelineVaries,omitempty"`
	// MayDiffer has parts of the lines of the timeline that may be missing or added, as the order of goroutines decides.
	MayDiffer []string `json:"mayDiffer,omitempty"`
	Fails     string   `json:"fails"` // why the exercise fails as shipped; for authors, since it gives the bug away
}

// Names of files and directories.
const (
	graderFile   = "check_test.go"
	aboutFile    = "exercise.yaml"
	pageFile     = "README.md"
	hintsFile    = "hints.md"
	goldenFile   = "failure.golden"
	solutionDir  = ".solution"
	mineDir      = "my"
	shownDir     = "solution"
	progressFile = "progress.yaml"
)

// Catalogue is the exercises of a repository.
type Catalogue struct {
	Root      string // of the repository
	Dir       string // the module with the exercises
	Exercises []Exercise
}

var directoryName = regexp.MustCompile(`^(\d\d)-[a-z0-9-]+$`)

// Open reads the exercises of the repository at root.
func Open(root string) (*Catalogue, error) {
	c := &Catalogue{Root: root, Dir: filepath.Join(root, "exercises")}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("read the exercises: %w", err)
	}
	for _, entry := range entries {
		match := directoryName.FindStringSubmatch(entry.Name())
		if match == nil || !entry.IsDir() {
			continue
		}
		e := Exercise{Name: entry.Name(), Dir: filepath.Join(c.Dir, entry.Name()), Mine: filepath.Join(c.Dir, mineDir, entry.Name())}
		e.Number, _ = strconv.Atoi(match[1])
		text, err := os.ReadFile(filepath.Join(e.Dir, aboutFile))
		if err != nil {
			return nil, fmt.Errorf("read exercise %s: %w", e.Name, err)
		}
		if err := yaml.UnmarshalStrict(text, &e.About); err != nil {
			return nil, fmt.Errorf("read exercise %s: %s: %w", e.Name, aboutFile, err)
		}
		c.Exercises = append(c.Exercises, e)
	}
	if len(c.Exercises) == 0 {
		return nil, fmt.Errorf("there are no exercises in %s", c.Dir)
	}
	return c, nil
}

// Find returns the exercise with a name, which may be given as its number or as a part that only it has.
func (c *Catalogue) Find(name string) (Exercise, error) {
	name = strings.Trim(strings.TrimPrefix(filepath.ToSlash(filepath.Clean(name)), "exercises/"), "/")
	name = strings.TrimPrefix(name, mineDir+"/")
	var found []Exercise
	for _, e := range c.Exercises {
		if e.Name == name || strconv.Itoa(e.Number) == strings.TrimLeft(name, "0") {
			return e, nil
		}
		if strings.Contains(e.Name, name) {
			found = append(found, e)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Exercise{}, fmt.Errorf("there is no exercise %q; make exercise list (workshop exercises list) lists them", name)
	}
	var names []string
	for _, e := range found {
		names = append(names, e.Name)
	}
	return Exercise{}, fmt.Errorf("%q may be any of %s", name, strings.Join(names, ", "))
}

// HasCopy says whether the participant has a copy.
func (e Exercise) HasCopy() bool {
	entries, err := os.ReadDir(e.Mine)
	return err == nil && len(entries) > 0
}

// Copy makes the participant's copy if there is none. It returns true if it has made one.
func (e Exercise) Copy() (bool, error) {
	if e.HasCopy() {
		return false, nil
	}
	files, err := e.copied()
	if err != nil {
		return false, err
	}
	return true, files.writeTo(e.Mine)
}

// Reset replaces the participant's copy by a new one. Everything in it is lost.
func (e Exercise) Reset() error {
	files, err := e.copied()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(e.Mine); err != nil {
		return fmt.Errorf("reset %s: %w", e.Name, err)
	}
	return files.writeTo(e.Mine)
}

// IsChanged says whether the participant's copy differs from the exercise as shipped.
func (e Exercise) IsChanged() bool {
	shipped, err := e.copied()
	if err != nil || !e.HasCopy() {
		return false
	}
	for name, text := range shipped {
		mine, err := os.ReadFile(filepath.Join(e.Mine, name))
		if err != nil || string(mine) != string(text) {
			return true
		}
	}
	return false
}

// missing returns the names of the exercise's Go files that are not among the participant's.
func (e Exercise) missing(mine files) ([]string, error) {
	shipped, err := readFiles(e.Dir, isCode)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(shipped)) {
		if _, there := mine[name]; !there {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// files are the contents of files by name.
type files map[string][]byte

// writeTo writes the files to a directory, which it creates.
func (f files) writeTo(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range f {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// readFiles reads the files of a directory that keep accepts.
func readFiles(dir string, keep func(name string) bool) (files, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	read := files{}
	for _, entry := range entries {
		if entry.IsDir() || !keep(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		read[entry.Name()] = text
	}
	return read, nil
}

func isCode(name string) bool {
	return filepath.Ext(name) == ".go" && !isTest(name) && !isIgnored(name)
}

func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") && !isIgnored(name) }

// isIgnored reports whether the go command leaves a file out. Editors keep such files beside those that they edit, and
// delete them at any time.
func isIgnored(name string) bool { return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") }

// isKept reports whether a file of a participant's copy is one that a check restores.
func isKept(name string) bool { return isCode(name) || isTest(name) || name == pageFile }

// copied returns the files that the participant gets. The links of the page are adapted to their new place.
func (e Exercise) copied() (files, error) {
	copied, err := readFiles(e.Dir, func(name string) bool { return isCode(name) || name == pageFile })
	if err != nil {
		return nil, fmt.Errorf("copy %s: %w", e.Name, err)
	}
	copied[pageFile] = []byte(strings.ReplaceAll(string(copied[pageFile]), "](../", "](../../"))
	return copied, nil
}

// solved returns the code of the solution: the files of .solution, and the exercise's other files.
func (e Exercise) solved() (files, error) {
	code, err := readFiles(e.Dir, isCode)
	if err != nil {
		return nil, err
	}
	solution, err := e.solution()
	for name, text := range solution {
		code[name] = text
	}
	return code, err
}

func (e Exercise) solution() (files, error) {
	solution, err := readFiles(filepath.Join(e.Dir, solutionDir), isCode)
	if err != nil {
		return nil, fmt.Errorf("read the solution of %s: %w", e.Name, err)
	}
	return solution, nil
}

// ShowSolution writes the solution to a directory next to the participant's copy, and returns its path. The directory is a
// package of its own, so that both compile.
func (e Exercise) ShowSolution() (string, error) {
	solved, err := e.solved()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(e.Mine, shownDir)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dir, solved.writeTo(dir)
}

// Page returns the text of the exercise's page.
func (e Exercise) Page() (string, error) {
	text, err := os.ReadFile(filepath.Join(e.Dir, pageFile))
	return string(text), err
}

var hintHeading = regexp.MustCompile(`(?m)^## \d+\s*$`)

// Hints returns the exercise's hints, from where to look to what to do.
func (e Exercise) Hints() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(e.Dir, hintsFile))
	if err != nil {
		return nil, fmt.Errorf("read the hints of %s: %w", e.Name, err)
	}
	var hints []string
	for _, hint := range hintHeading.Split(string(text), -1)[1:] {
		hints = append(hints, strings.TrimSpace(hint))
	}
	if slices.Contains(hints, "") {
		return hints, errors.New("a hint of " + e.Name + " is empty")
	}
	return hints, nil
}

// exists says whether there is a file or directory.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// Fingerprint identifies the contents of the participant's code, its subdirectories included: it differs after every change.
func (e Exercise) Fingerprint() string {
	sum := sha256.New()
	err := filepath.WalkDir(e.Mine, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if path != e.Mine && isIgnored(entry.Name()) || path == filepath.Join(e.Mine, shownDir) {
				return fs.SkipDir
			}
			return nil
		case !isCode(entry.Name()):
			return nil
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n", path, len(text))
		sum.Write(text)
		return err
	})
	if err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Sources are the files of an exercise that its proof compiles, by name.
type Sources struct {
	Shipped  map[string][]byte // the code with the bug
	Solution map[string][]byte // the code without it: all files
	Grader   []byte
}

// Sources reads the files of the exercise.
func (e Exercise) Sources() (Sources, error) {
	var s Sources
	var err error
	if s.Shipped, err = readFiles(e.Dir, isCode); err != nil {
		return s, err
	}
	if s.Solution, err = e.solved(); err != nil {
		return s, err
	}
	s.Grader, err = os.ReadFile(filepath.Join(e.Dir, graderFile))
	return s, err
}

// Problems returns what is wrong with the files of the exercise: files that are missing or that nothing uses, a page that does
// not begin with the title, hints that are not three or that give a line of the solution away.
func (e Exercise) Problems() []error {
	var problems []error
	report := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: "+format, append([]any{e.Name}, args...)...))
	}
	known := []string{graderFile, aboutFile, pageFile, hintsFile, whyFile, goldenFile, solutionDir}
	present := map[string]bool{}
	entries, err := os.ReadDir(e.Dir)
	if err != nil {
		report("%v", err)
	}
	for _, entry := range entries {
		present[entry.Name()] = true
		if !slices.Contains(append(known, attemptsDir), entry.Name()) && !isCode(entry.Name()) {
			report("nothing uses the file %s", entry.Name())
		}
	}
	for _, name := range known {
		if !present[name] {
			report("there is no %s", name)
		}
	}
	if e.Title == "" || e.Fails == "" || e.Lesson < 1 || e.Lesson > 6 {
		report("%s needs a title, a lesson from 1 to 6, and why the exercise fails", aboutFile)
	}
	if page, err := e.Page(); err == nil && !strings.HasPrefix(page, "# "+e.Title+"\n") {
		report("%s must begin with %q", pageFile, "# "+e.Title)
	}
	sources, err := e.Sources()
	if err != nil {
		report("%v", err)
		return problems
	}
	hints, err := e.Hints()
	if err != nil || len(hints) != 3 {
		report("%d hints instead of 3 (%v)", len(hints), err)
	}
	solution, err := e.solution()
	if err != nil {
		report("%v", err)
	}
	for name, text := range solution {
		if string(text) == string(sources.Shipped[name]) {
			report("%s/%s is the same as %s", solutionDir, name, name)
		}
	}
	for _, line := range newLines(sources) {
		for number, hint := range hints {
			if strings.Contains(squeeze(hint), line) {
				report("hint %d gives away the line %q", number+1, line)
			}
		}
	}
	return problems
}

// newLines returns the lines of the solution that are not in the exercise as shipped, without those that say little.
func newLines(s Sources) []string {
	shipped := map[string]bool{}
	for _, text := range s.Shipped {
		for line := range strings.Lines(string(text)) {
			shipped[squeeze(line)] = true
		}
	}
	var lines []string
	for _, text := range s.Solution {
		for line := range strings.Lines(string(text)) {
			const telling = 15
			if line = squeeze(line); len(line) >= telling && !shipped[line] && !strings.HasPrefix(line, "//") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// squeeze replaces each run of white space by a space.
func squeeze(text string) string { return strings.Join(strings.Fields(text), " ") }
