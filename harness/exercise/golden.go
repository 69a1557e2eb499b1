package exercise

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// goldenColumns is the width of the text in a golden file.
const goldenColumns = 100

// Golden returns the text of the verdict for the file failure.golden.
func (v Verdict) Golden() string {
	v.Output = ""
	return v.Text(goldenColumns, 0)
}

// UpdateGolden writes the verdict on the exercise as shipped to its file failure.golden.
func (e Exercise) UpdateGolden(v Verdict) error {
	return os.WriteFile(filepath.Join(e.Dir, goldenFile), []byte(v.Golden()), 0o644)
}

// CompareGolden returns an error if the verdict on the exercise as shipped is not the one in failure.golden: the message and
// the scene. Numbers may differ, such as times that depend on a random backoff. The timeline is not compared, as several
// things may happen at the same instant, and their order decides what comes next; but there must be one.
func (e Exercise) CompareGolden(v Verdict) error {
	text, err := os.ReadFile(filepath.Join(e.Dir, goldenFile))
	if err != nil {
		return err
	}
	want, wantTimeline := golden(string(text))
	got, gotTimeline := golden(v.Golden())
	if want != got {
		return fmt.Errorf("%s: %s has %q, and the verdict %q:\n%s", e.Name, goldenFile, want, got, v.Golden())
	}
	if wantTimeline && !gotTimeline {
		return fmt.Errorf("%s: %s has a timeline, and the verdict has none:\n%s", e.Name, goldenFile, v.Golden())
	}
	return nil
}

var (
	number = regexp.MustCompile(`\d+(\.\d+)?`)
	pod    = regexp.MustCompile(`-[a-z0-9]{8,10}-[a-z0-9]{5}\b`)
	// whatHappened is the line above the timeline, which names the scene.
	whatHappened = regexp.MustCompile(`(?m)^What happened.*\n`)
	blanks       = regexp.MustCompile(`\s+`)
)

// golden returns the message and the scene of a golden file, without what may differ, and whether a timeline follows.
func golden(text string) (head string, hasTimeline bool) {
	if at := whatHappened.FindStringIndex(text); at != nil {
		hasTimeline = strings.TrimSpace(text[at[1]:]) != ""
		text = text[:at[1]]
	}
	return blanks.ReplaceAllString(number.ReplaceAllString(pod.ReplaceAllString(text, "-#"), "#"), " "), hasTimeline
}
