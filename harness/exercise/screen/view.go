package screen

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"example.com/controllers/harness/exercise"
)

// widest is the longest line of prose. Timelines may be as wide as the terminal.
const widest = 100

var (
	bold   = lipgloss.NewStyle().Bold(true)
	faint  = lipgloss.NewStyle().Faint(true)
	green  = lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Green)
	red    = lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Red)
	yellow = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
)

// style styles text, if the participant wants it.
func (m *Model) style(style lipgloss.Style, text string) string {
	if !m.Color {
		return text
	}
	return style.Render(text)
}

// View implements tea.Model.
func (m *Model) View() tea.View {
	v := tea.NewView(m.Text())
	v.AltScreen = true
	v.WindowTitle = "exercise " + m.current.Name
	return v
}

// Text returns what is on the screen.
func (m *Model) Text() string {
	if m.mode == listing {
		return strings.Join(m.clip(m.list()), "\n")
	}
	lines := m.header()
	body := m.body()
	offset := max(0, min(m.offset, len(body)-m.bodyHeight()))
	shown := body[offset:min(len(body), offset+m.bodyHeight())]
	lines = append(lines, shown...)
	for range m.bodyHeight() - len(shown) {
		lines = append(lines, "")
	}
	lines = append(lines, m.style(faint, hidden(offset, len(body)-offset-len(shown))))
	return strings.Join(m.clip(append(lines, m.footer()...)), "\n")
}

// hidden says how many lines of the body are out of sight, and which keys show them.
func hidden(above, below int) string {
	var parts []string
	if below > 0 {
		parts = append(parts, lineCount(below, " more")+": space, ↓")
	}
	if above > 0 {
		parts = append(parts, lineCount(above, "")+" above: b, ↑")
	}
	return strings.Join(parts, "   ")
}

// lineCount is a number of lines, which are more or not.
func lineCount(count int, more string) string {
	if count == 1 {
		return "1" + more + " line"
	}
	return fmt.Sprintf("%d%s lines", count, more)
}

// clip truncates the lines to the width of the terminal.
func (m *Model) clip(lines []string) []string {
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "…")
	}
	return lines
}

// bodyHeight returns how many lines are left for the body.
func (m *Model) bodyHeight() int { return max(1, m.height-len(m.header())-len(m.footer())-1) }

// columns returns the width of prose.
func (m *Model) columns() int { return max(20, min(m.width, widest)) }

func (m *Model) header() []string {
	done, all := m.Progress.Count(m.Catalogue), len(m.Catalogue.Exercises)
	left := fmt.Sprintf("%s  ", m.current.Name)
	lines := []string{
		m.style(bold, left) + m.bar(done, all, m.columns()-ansi.StringWidth(left)),
		m.style(faint, m.Path(m.current.Mine)),
	}
	return append(lines, m.state()...)
}

// bar returns a progress bar of this width.
func (m *Model) bar(done, all, width int) string {
	count := fmt.Sprintf(" %d/%d", done, all)
	room := max(1, min(40, width-len(count)))
	filled := room * done / max(1, all)
	return m.style(green, strings.Repeat("█", filled)) + strings.Repeat("░", room-filled) + count
}

// state says in a line what the last check found, or that one is running.
func (m *Model) state() []string {
	var state string
	switch {
	case m.problem != nil:
		state = m.style(red, "! "+firstLine(m.problem.Error()))
	case m.checking > 0 && m.status != "":
		state = m.style(yellow, "… "+m.status)
	case m.checking > 0:
		state = m.style(yellow, "… checking"+m.waited())
	case m.verdict == nil:
	case m.verdict.Passed():
		state = m.style(green, "✓ passed") + fmt.Sprintf(" in %.1fs", m.verdict.Seconds)
	default:
		state = m.style(red, "✗ "+string(m.verdict.Verdict)) + fmt.Sprintf(" in %.1fs", m.verdict.Seconds)
	}
	return []string{state, ""}
}

// waited says how long a check has been running, if it takes long.
func (m *Model) waited() string {
	seconds := int(time.Since(m.started).Seconds())
	switch {
	case seconds < 3:
		return ""
	case m.checks == 1 && seconds > 10:
		return fmt.Sprintf(", %ds; the first check compiles client-go, which may take minutes", seconds)
	}
	return fmt.Sprintf(", %ds", seconds)
}

func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}

// footer lists the keys. On a narrow terminal it takes two lines.
func (m *Model) footer() []string {
	if m.mode == confirmingReset {
		return m.inLines(m.style(red, "Reset "+m.current.Name+"? Your changes will be lost."), "y yes", "any other key: no")
	}
	return m.inLines("n next", "h hint", "v view", "l list", "r run", "x reset", "q quit")
}

// inLines puts texts side by side, in as many lines as they need.
func (m *Model) inLines(texts ...string) []string {
	const gap = "   "
	lines := []string{texts[0]}
	for _, text := range texts[1:] {
		last := &lines[len(lines)-1]
		if ansi.StringWidth(*last+gap+text) > m.columns() {
			lines = append(lines, text)
			continue
		}
		*last += gap + text
	}
	return lines
}

func wrapped(text string) []string { return strings.Split(text, "\n") }

// body returns everything between header and footer. The page comes first until the participant has changed something; then
// the verdict does.
func (m *Model) body() []string {
	var lines []string
	prose := func(text string) { lines = append(lines, wrap(text, m.columns())...) }
	page := func() { lines = append(lines, m.render(m.page)...) }
	line := func() { lines = append(lines, m.style(faint, strings.Repeat("─", m.columns()))) }
	output := func() {
		if m.verdict.Output == "" {
			return
		}
		for text := range strings.SplitSeq(strings.ReplaceAll(m.verdict.Output, "\t", "    "), "\n") {
			lines = append(lines, wrapped(ansi.Hardwrap(text, m.width, true))...)
		}
		lines = append(lines, "")
	}
	if m.drawing != "" {
		prose("The last check, drawn: " + m.drawing)
		if m.checking == 0 && m.verdict != nil && !m.verdict.Recorded {
			prose("This check made no request; the page shows the one before.")
		}
		lines = append(lines, "")
	}
	if !m.changed {
		page()
		if m.verdict != nil {
			line()
		}
	}
	if v := m.verdict; v != nil {
		if v.Passed() {
			lines = append(lines, m.solved(*v)...)
		} else {
			prose(m.style(bold, v.Message))
			lines = append(lines, "")
			if v.Verdict == exercise.DoesNotCompile {
				output()
			}
		}
	}
	for number, hint := range m.hints[:min(len(m.hints), m.Progress.Hints[m.current.Name])] {
		lines = append(lines, m.style(yellow, hintHeading(number+1, len(m.hints))))
		lines = append(lines, m.render(hint)...)
	}
	if v := m.verdict; v != nil && !v.Passed() {
		lines = append(lines, m.timeline(*v)...)
		if v.Verdict != exercise.Failed && v.Verdict != exercise.DoesNotCompile {
			output()
		}
	}
	if m.changed {
		line()
		page()
	}
	return lines
}

func hintHeading(number, all int) string { return fmt.Sprintf("Hint %d of %d", number, all) }

// timeline returns the lines of the timeline, with a heading.
func (m *Model) timeline(v exercise.Result) []string {
	shown := v.Shown(24)
	if len(shown) == 0 {
		return nil
	}
	lines := []string{m.style(faint, "What happened ("+v.Scene+"):")}
	for _, row := range shown {
		for _, line := range row.Lines(m.width) {
			switch {
			case row.Bad:
				line = m.style(yellow, line)
			case row.Who == "log", row.Who == "event", row.Who == "":
				line = m.style(faint, line)
			}
			lines = append(lines, line)
		}
	}
	return append(lines, "")
}
