// Package skeleton writes a controller of one's own: the code of a lesson under another name, with a short unit test, a
// scenario for torture, a page that says what to change, and a file for CI.
//
//   - What is written compiles, passes its tests, and imports nothing from this repository.
//   - Nothing is written over, and after an error nothing is left.
//
// Which files of a lesson a skeleton has, and which of their words are replaced, says the lesson itself, in
// _skeleton/skeleton.yaml. The files of _skeleton/files are only in the skeleton.
package skeleton

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"example.com/controllers/harness/lesson"
)

// Options say what to write.
type Options struct {
	// Root is the root directory of this repository.
	Root string
	// From is the number of the lesson to start from. Default: the first one that has a skeleton.
	From string
	// Name is the name of the controller: of its program, and of its objects in a cluster.
	Name string
	// Module is the path of its module. Default: example.com/NAME.
	Module string
	// Dir is the directory to write, which must have nothing but .git, or not exist. Default: a new one, NAME, in the working directory.
	Dir string
}

// Result is what was written.
type Result struct {
	Dir  string // absolute
	Next []Command
}

// Command is one that a person may run next, in the new directory.
type Command struct {
	Does string `json:"does"`
	// Command is for a shell whose PATH has "workshop" and, for some, "kubectl".
	Command string `json:"command"`
}

// Write writes a controller.
func Write(ctx context.Context, o Options) (*Result, error) {
	if o.Name == "" {
		return nil, errors.New("the new controller has no name; give one, such as my-controller")
	}
	if o.Module == "" {
		o.Module = "example.com/" + o.Name
	}
	if o.Dir == "" {
		o.Dir = o.Name
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	from, err := find(o.Root, o.From)
	if err != nil {
		return nil, err
	}
	source, err := read(from.Dir)
	if err != nil {
		return nil, err
	}
	if err := checkName(o.Name, source); err != nil {
		return nil, err
	}
	if err := checkModule(o.Module, source); err != nil {
		return nil, err
	}
	if err := checkDir(dir, o.Name); err != nil {
		return nil, err
	}
	words := placeholders(o.Name, o.Module, commit(ctx, o.Root))
	files, err := source.render(words)
	if err != nil {
		return nil, err
	}
	result := &Result{Dir: dir}
	for _, next := range source.Next {
		result.Next = append(result.Next, Command{Does: next.Does, Command: words.Replace(next.Command)})
	}
	return result, writeAll(ctx, dir, files)
}

// definition is the file in which a lesson says what its skeleton is.
const definition = "_skeleton/skeleton.yaml"

// find returns the lesson with that number, or the first one that has a skeleton.
func find(root, number string) (lesson.Lesson, error) {
	all, err := lesson.All(root)
	if err != nil {
		return lesson.Lesson{}, err
	}
	var have []string
	for _, l := range all {
		if _, err := os.Stat(filepath.Join(l.Dir, definition)); err != nil {
			continue
		}
		if number == "" || number == fmt.Sprint(l.Number) {
			return l, nil
		}
		have = append(have, fmt.Sprintf("%d (%s)", l.Number, l.Name()))
	}
	if len(have) == 0 {
		return lesson.Lesson{}, fmt.Errorf("no lesson in %s has a skeleton", root)
	}
	return lesson.Lesson{}, fmt.Errorf("there is no skeleton from lesson %q; give --from the number of one that has a skeleton: %s", number, strings.Join(have, ", "))
}

// commit returns the commit of the repository in root; "" if it is not a Git repository, as in an unpacked archive.
func commit(ctx context.Context, root string) string {
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		return "" // git would look in the directories above, which are not ours
	}
	out, err := exec.CommandContext(ctx, "git", "-C", root, "rev-parse", "HEAD").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// checkDir returns an error if nothing can be written to a directory, or the go command would not build what is in it.
func checkDir(dir, name string) error {
	isGit := func(entry fs.DirEntry) bool { return entry.Name() == ".git" }
	switch entries, err := os.ReadDir(dir); {
	case err == nil && len(slices.DeleteFunc(entries, isGit)) > 0:
		return fmt.Errorf("%s is not empty, so nothing was written; choose another directory with DIR (--dir)", dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s cannot be written to: %w; choose another directory with DIR (--dir)", dir, err)
	}
	for parent := dir; ; parent = filepath.Dir(parent) {
		if _, err := os.Stat(filepath.Join(parent, "go.work")); err == nil {
			return fmt.Errorf("%s is below %s, and the go command builds only the modules that the go.work there names; choose a directory elsewhere with DIR (--dir), such as %s",
				dir, parent, filepath.Join(filepath.Dir(parent), name))
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}

// writeAll writes files, by their slash-separated paths in dir. After an error, it removes all that it has made.
func writeAll(ctx context.Context, dir string, files map[string][]byte) (err error) {
	made, err := makeAll(dir)
	defer func() {
		if err == nil {
			return
		}
		for _, path := range slices.Backward(made) {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}()
	if err != nil {
		return err
	}
	for name, text := range files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		created, err := makeAll(filepath.Dir(path))
		made = append(append(made, created...), path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// makeAll makes a directory and those above it, and returns those that it has made.
func makeAll(dir string) (made []string, err error) {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil, nil
	}
	if parent := filepath.Dir(dir); parent != dir {
		if made, err = makeAll(parent); err != nil {
			return made, err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return made, err
	}
	return append(made, dir), nil
}
