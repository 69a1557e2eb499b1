package screen

import (
	"errors"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"example.com/controllers/harness/exercise"
)

// solved returns what the participant sees after an exercise has passed: why that is right, what happens now in the scene that
// failed before, and the solution.
func (m *Model) solved(v exercise.Result) []string {
	next := "n opens the next exercise."
	if m.Progress.Count(m.Catalogue) == len(m.Catalogue.Exercises) {
		next = "That was the last one: you have solved all exercises."
	}
	lines := append(wrap("The controller passes. "+next, m.columns()), "")
	why, err := m.current.Why()
	lines = append(lines, m.render(why)...)
	scene, before := m.current.Before()
	if now := v.Shown(mostRows); len(before) > 0 && len(now) > 0 && v.Scene == scene {
		lines = append(lines, m.style(faint, "What happened in the exercise as shipped ("+scene+"):"))
		if len(before) > mostRows {
			before = append(before[:mostRows/3:mostRows/3], append([]string{"     …"}, before[len(before)-2*mostRows/3+1:]...)...)
		}
		for _, line := range before {
			lines = append(lines, m.style(faint, line))
		}
		lines = append(lines, "", m.style(faint, "What happens now:"))
		for _, row := range now {
			lines = append(lines, row.Lines(m.width)...)
		}
		lines = append(lines, "")
	}
	diff, differs := m.current.Difference()
	if m.problem == nil {
		m.problem = errors.Join(err, differs)
	}
	if diff == "" {
		return append(append(lines, wrap("The solution in "+m.Path(m.solution)+" is the same as your code.", m.columns())...), "")
	}
	lines = append(lines, wrap("The solution is in "+m.Path(m.solution)+". Compared with your code:", m.columns())...)
	for line := range strings.SplitSeq(strings.ReplaceAll(diff, "\t", "    "), "\n") {
		line = ansi.Truncate(line, m.width, "…")
		switch {
		case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "@@"):
			line = m.style(faint, line)
		case strings.HasPrefix(line, "+"):
			line = m.style(green, line)
		case strings.HasPrefix(line, "-"):
			line = m.style(red, line)
		}
		lines = append(lines, line)
	}
	return append(lines, "")
}

// mostRows is how many rows of a timeline are shown once an exercise is solved.
const mostRows = 15
