package exercise

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"example.com/controllers/harness/exercise/verdict"
)

// Text returns the verdict as plain text of at most this many columns. showing limits the lines of the timeline; 0 means
// all.
func (v Verdict) Text(columns, showing int) string {
	var text strings.Builder
	if v.Passed() {
		fmt.Fprintf(&text, "%s: passed\n", v.Exercise)
		return text.String()
	}
	fmt.Fprintf(&text, "%s: %s\n\n%s\n", v.Exercise, v.Outcome, ansi.Wordwrap(v.Message, columns, ""))
	if timeline := v.Shown(showing); len(timeline) > 0 {
		fmt.Fprintf(&text, "\nWhat happened (%s):\n\n", v.Scene)
		for _, line := range timeline {
			fmt.Fprintln(&text, "  "+ansi.Truncate(line, columns-2, "…"))
		}
	}
	if v.Output != "" && v.Outcome != Failed {
		fmt.Fprintf(&text, "\n%s\n", indent(v.Output))
	}
	return text.String()
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// Shown returns the lines of the timeline as text, without those in the middle if there are more than limit. Repetitions
// of the same line are shown once, with their number.
func (v Verdict) Shown(limit int) []string {
	var lines []string
	var last verdict.Line
	repeated := 0
	for _, line := range v.Timeline {
		same := repeated > 0 && line.Who == last.Who && line.What == last.What && line.Note == last.Note
		if same {
			repeated++
			lines[len(lines)-1] = fmt.Sprintf("%s  (%d times, until %s)", last, repeated, verdict.FormatTime(line.At))
			continue
		}
		last, repeated = line, 1
		lines = append(lines, line.String())
	}
	if limit <= 0 || len(lines) <= limit {
		return lines
	}
	head := limit / 3
	tail := limit - head - 1
	hidden := len(lines) - head - tail
	return append(append(append([]string{}, lines[:head]...), fmt.Sprintf("%7s  %d more lines", "…", hidden)), lines[len(lines)-tail:]...)
}
