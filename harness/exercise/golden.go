package exercise

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// goldenColumns is the width of the text in a golden file.
const goldenColumns = 100

// Golden returns the text of the verdict for the file failure.golden.
func (v Result) Golden() string {
	v.Output = ""
	// Where a line is wrapped depends on the numbers in it, which may differ.
	truncated := func(row Row) []string { return []string{ansi.Truncate(row.Text, goldenColumns-len(margin), ellipsis)} }
	return v.text(goldenColumns, 0, truncated)
}

// UpdateGolden writes the verdict on the exercise as shipped to its file failure.golden.
func (e Exercise) UpdateGolden(v Result) error {
	return os.WriteFile(filepath.Join(e.Dir, goldenFile), []byte(v.Golden()), 0o644)
}

// CompareGolden returns an error if the verdict on the exercise as shipped is not the one in failure.golden. Numbers may
// differ, such as times that depend on a random backoff, and so may the order of the timeline's lines: several things
// may happen at the same instant. Lines that [About.MayDiffer] names may be missing or added. On a control plane, and where
// the order of goroutines decides what comes next (see [About.TimelineVaries]), only the message and the scene are compared.
func (e Exercise) CompareGolden(v Result) error {
	text, err := os.ReadFile(filepath.Join(e.Dir, goldenFile))
	if err != nil {
		return err
	}
	want, got := golden(string(text)), golden(v.Golden())
	if e.Cluster || e.TimelineVaries {
		want, got = withoutTimeline(string(text)), withoutTimeline(v.Golden())
	}
	for _, part := range e.MayDiffer {
		mayDiffer := func(line string, _ bool) bool { return strings.Contains(line, number.ReplaceAllString(part, "#")) }
		maps.DeleteFunc(want, mayDiffer)
		maps.DeleteFunc(got, mayDiffer)
	}
	for _, line := range slices.Sorted(maps.Keys(want)) {
		if !got[line] {
			return fmt.Errorf("%s: %s has the line %q, but the verdict does not:\n%s", e.Name, goldenFile, line, v.Golden())
		}
	}
	for _, line := range slices.Sorted(maps.Keys(got)) {
		if !want[line] {
			return fmt.Errorf("%s: the verdict has the line %q, but %s does not:\n%s", e.Name, line, goldenFile, v.Golden())
		}
	}
	return nil
}

var (
	number = regexp.MustCompile(`(\d+h)?(\d+m)?\d+(\.\d+)?`) // 59s, or 1m23s on a busy machine
	pod    = regexp.MustCompile(`-[a-z0-9]{8,10}-[a-z0-9]{5}\b`)
	// observation is what the check has read. Older golden files have such lines.
	observation = regexp.MustCompile(`^ *[0-9.]+s  user +(get|list) `)
	repetition  = regexp.MustCompile(`  \(\d+ times, until [0-9.]+s\)$`)
	blanks      = regexp.MustCompile(` +`)
)

// withoutTimeline is golden without the timeline's lines. The line above them, which names the scene, stays.
func withoutTimeline(text string) map[string]bool {
	const heading = "\nWhat happened"
	head, rest, found := strings.Cut(text, heading)
	if found {
		scene, _, _ := strings.Cut(rest, "\n")
		head += heading + scene
	}
	return golden(head)
}

// golden returns the lines of a golden file without what may differ.
func golden(text string) map[string]bool {
	lines := map[string]bool{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), ellipsis) || observation.MatchString(line) {
			continue
		}
		line = repetition.ReplaceAllString(pod.ReplaceAllString(strings.TrimSpace(line), "-#"), "")
		if line = blanks.ReplaceAllString(number.ReplaceAllString(line, "#"), " "); line != "" {
			lines[line] = true
		}
	}
	return lines
}
