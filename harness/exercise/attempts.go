package exercise

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

	"example.com/controllers/harness/proc"
)

const attemptsDir = ".attempts"

// Attempt is code that a participant might write: another solution, which must pass, or a wrong one, which must fail. It is a
// patch of the solution, in the directory .attempts. Before the patch is a line "Passes: WHY", or a line "Fails: WHY" and one
// "Says: PART OF THE VERDICT". Where the order of goroutines decides what goes wrong first, there are several such lines, and
// the verdict must have one of these parts.
type Attempt struct {
	Name   string
	Passes bool
	Why    string   // what is right, or wrong, about it
	Says   []string // what a participant must be told; one of them is enough

	exercise Exercise
	path     string // of the patch
}

// Attempts reads the exercise's attempts, in the order of their names. There may be none.
func (e Exercise) Attempts() ([]Attempt, error) {
	entries, err := os.ReadDir(filepath.Join(e.Dir, attemptsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the attempts of %s: %w", e.Name, err)
	}
	var attempts []Attempt
	for _, entry := range entries {
		a := Attempt{exercise: e, path: filepath.Join(e.Dir, attemptsDir, entry.Name())}
		if err := a.read(); err != nil {
			return nil, fmt.Errorf("%s: %w", a.path, err)
		}
		attempts = append(attempts, a)
	}
	return attempts, nil
}

func (a *Attempt) read() error {
	name, isPatch := strings.CutSuffix(filepath.Base(a.path), ".patch")
	if !isPatch {
		return errors.New("an attempt is a file NAME.patch")
	}
	a.Name = name
	text, err := os.ReadFile(a.path)
	if err != nil {
		return err
	}
	head, _, _ := strings.Cut(string(text), "\n\n")
	fails := ""
	for line := range strings.SplitSeq(head, "\n") {
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "Passes":
			a.Passes, a.Why = true, value
		case "Fails":
			fails = value
		case "Says":
			a.Says = append(a.Says, value)
		default:
			return fmt.Errorf("the line %q in its header is none of Passes, Fails and Says", line)
		}
	}
	if a.Passes == (fails != "") || a.Passes == (len(a.Says) > 0) {
		return errors.New("its header needs the line \"Passes: WHY\", or the lines \"Fails: WHY\" and \"Says: PART OF THE VERDICT\", and then an empty line")
	}
	a.Why += fails
	return nil
}

// Code returns the files of the attempt by name.
func (a Attempt) Code(ctx context.Context) (map[string][]byte, error) {
	code, err := a.exercise.solved()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "workshop-attempt-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := code.writeTo(dir); err != nil {
		return nil, err
	}
	path, err := filepath.Abs(a.path)
	if err != nil {
		return nil, err
	}
	apply := exec.CommandContext(ctx, "git", "apply", path)
	apply.Dir, apply.Env = dir, append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	proc.Group(apply)
	if out, err := apply.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s is no patch of the solution any more: %w\n%s", a.path, err, out)
	}
	return readFiles(dir, isCode)
}

// Judge returns an error if the verdict is not the one that the attempt must get.
func (a Attempt) Judge(v Result) error {
	switch {
	case a.Passes && !v.Passed():
		return fmt.Errorf("%s: a right solution is rejected (%s):\n%s", a.path, a.Why, v.Golden())
	case !a.Passes && v.Passed():
		return fmt.Errorf("%s: a wrong solution passes (%s)", a.path, a.Why)
	case !a.Passes && !slices.ContainsFunc(a.Says, func(part string) bool { return strings.Contains(v.Message, part) }):
		return fmt.Errorf("%s: a wrong solution is rejected, but the verdict does not say %q:\n%s", a.path, a.Says, v.Golden())
	}
	return nil
}

// CheckAttempt checks an attempt of the exercise with this name.
func (g *Grader) CheckAttempt(ctx context.Context, e Exercise, name string) (Result, error) {
	attempts, err := e.Attempts()
	if err != nil {
		return Result{}, err
	}
	var names []string
	for _, a := range attempts {
		if a.Name == name {
			return g.checkCode(ctx, e, func() (files, error) { return a.Code(ctx) })
		}
		names = append(names, a.Name)
	}
	return Result{}, fmt.Errorf("%s has no attempt %q; in %s are: %s", e.Name, name, attemptsDir, strings.Join(names, ", "))
}
