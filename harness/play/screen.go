package play

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"

	"charm.land/glamour/v2"
	"charm.land/lipgloss/v2"
	"golang.org/x/term"
)

// screen shows a page as it is played. Lines of commands and of logs come from several goroutines.
type screen struct {
	mu                  sync.Mutex
	out                 io.Writer
	markdown            *glamour.TermRenderer
	commandStyle, faint lipgloss.Style
	color               bool
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	width, style := 80, "notty"
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == "" {
		s.color = true
		style = "light"
		if lipgloss.HasDarkBackground(os.Stdin, file) {
			style = "dark"
		}
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil {
			width = min(columns, 100)
		}
	}
	s.commandStyle = lipgloss.NewStyle().Bold(true)
	s.faint = lipgloss.NewStyle().Faint(true)
	// It fails for unknown styles only; then prose is shown as it is written.
	s.markdown, _ = glamour.NewTermRenderer(glamour.WithStandardStyle(style), glamour.WithWordWrap(width))
	return s
}

func (s *screen) prose(markdown string) {
	text := markdown
	if s.markdown != nil {
		if rendered, err := s.markdown.Render(joinItems(markdown)); err == nil {
			text = strings.Trim(trailingSpace.ReplaceAllString(rendered, ""), "\n")
		}
	}
	s.println("\n" + text + "\n")
}

// The renderer pads lines to its width.
var trailingSpace = regexp.MustCompile(`(?m)[ \t]+$`)

var item = regexp.MustCompile(`^\s*([-*]|\d+\.) `)

// joinItems makes one line of each list item, because the renderer keeps the line breaks in them.
func joinItems(markdown string) string {
	var out []string
	inItem, inFence := false, false
	for line := range strings.SplitSeq(markdown, "\n") {
		text := strings.TrimSpace(line)
		if strings.HasPrefix(text, "```") {
			inFence = !inFence
		}
		if inItem && !inFence && text != "" && !item.MatchString(line) && strings.HasPrefix(line, "  ") {
			out[len(out)-1] += " " + text
			continue
		}
		inItem = !inFence && item.MatchString(line)
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func (s *screen) command(step Step) {
	text := "$ " + strings.ReplaceAll(step.Command, "\n", "\n> ")
	if step.Background {
		text += " &"
	}
	s.println(s.style(s.commandStyle, text))
}

func (s *screen) output(line string) { s.println(line) }

func (s *screen) log(name, line string) { s.println(s.style(s.faint, name+" | "+line)) }

func (s *screen) style(style lipgloss.Style, text string) string {
	if !s.color {
		return text
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = style.Render(lines[i])
	}
	return strings.Join(lines, "\n")
}

func (s *screen) println(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.out, text)
}
