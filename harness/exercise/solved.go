package exercise

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

const whyFile = "why.md"

// Why returns why a solution is right, and what the tempting alternative would cost, as Markdown. It gives the solution away.
func (e Exercise) Why() (string, error) {
	text, err := os.ReadFile(filepath.Join(e.Dir, whyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// Difference returns the solution as a unified diff to the participant's code; "" if they are the same.
func (e Exercise) Difference() (string, error) {
	mine, err := readFiles(e.Mine, isCode)
	if err != nil {
		return "", err
	}
	solved, err := e.solved()
	if err != nil {
		return "", err
	}
	all := maps.Clone(mine)
	maps.Copy(all, solved)
	var diff strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if bytes.Equal(mine[name], solved[name]) {
			continue
		}
		diff.WriteString(udiff.Unified("yours/"+name, shownDir+"/"+name, string(mine[name]), string(solved[name])))
	}
	return strings.TrimSpace(diff.String()), nil
}

// Before returns the scene in which the exercise fails as shipped, and the lines of its timeline.
func (e Exercise) Before() (scene string, timeline []string) {
	text, err := os.ReadFile(filepath.Join(e.Dir, goldenFile))
	if err != nil {
		return "", nil
	}
	_, after, _ := strings.Cut(string(text), "\nWhat happened (")
	scene, after, _ = strings.Cut(after, "):\n")
	for line := range strings.Lines(after) {
		if line = strings.TrimPrefix(strings.TrimRight(line, "\n"), margin); line != "" {
			timeline = append(timeline, line)
		}
	}
	return scene, timeline
}
