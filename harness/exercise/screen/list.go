package screen

import (
	"fmt"
	"strings"
)

// list returns the list of all exercises by lesson, with the cursor in sight. It does not show the names of their directories,
// which say what is wrong.
func (m *Model) list() []string {
	const number = "Exercises  "
	lines := []string{m.style(bold, number) + m.bar(m.Progress.Count(m.Catalogue), len(m.Catalogue.Exercises), m.columns()-len(number)), ""}
	var rows []string
	lesson, selected := 0, 0
	for i, e := range m.Catalogue.Exercises {
		if e.Lesson != lesson {
			lesson = e.Lesson
			rows = append(rows, m.style(bold, fmt.Sprintf("Lesson %d", lesson)))
		}
		if i == m.cursor {
			selected = len(rows)
		}
		rows = append(rows, m.row(i))
	}
	room := max(1, m.height-len(lines)-2)
	first := max(0, min(selected-room/2, len(rows)-room))
	lines = append(lines, rows[first:min(len(rows), first+room)]...)
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return append(lines, "↑ ↓ or number select   enter open   l back")
}

// row returns the line of an exercise.
func (m *Model) row(i int) string {
	e := m.Catalogue.Exercises[i]
	solved, about := m.Progress.Marks(e)
	mark, pointer := " ", "  "
	if solved {
		mark = m.style(green, "✓")
	}
	line := fmt.Sprintf("%2d  %s", e.Number, e.Title)
	if i == m.cursor {
		pointer, line = "> ", m.style(bold, line)
	}
	if len(about) > 0 {
		line += "  " + m.style(faint, strings.Join(about, ", "))
	}
	return pointer + mark + " " + line
}
