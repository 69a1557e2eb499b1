package play

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"charm.land/glamour/v2"
	glamourstyle "charm.land/glamour/v2/ansi"
	"charm.land/glamour/v2/styles"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

const (
	maxProseWidth     = 100 // columns; longer lines are hard to read
	defaultProseWidth = 80  // where the output is not a terminal
)

// terminal is what is known of where a page is shown. The zero value is a file.
type terminal struct {
	columns, rows int
	color         bool // escape sequences may be written
	dark          bool // the background
}

func terminalOf(out io.Writer) terminal {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return terminal{}
	}
	t := terminal{color: mayColor()}
	if columns, rows, err := term.GetSize(int(file.Fd())); err == nil {
		t.columns, t.rows = columns, rows
	}
	t.dark = t.color && lipgloss.HasDarkBackground(os.Stdin, file)
	return t
}

// screen shows a page as it is played. Lines of commands and of logs come from several goroutines.
type screen struct {
	terminal
	renderer            *glamour.TermRenderer // nil: prose is shown as Markdown
	commandStyle, faint lipgloss.Style
	linked              map[string]bool // targets of links whose place has been shown

	mu  sync.Mutex // guards out
	out io.Writer
}

func newScreen(out io.Writer, t terminal) *screen {
	s := &screen{terminal: t, out: out, linked: map[string]bool{}}
	s.commandStyle = lipgloss.NewStyle().Bold(true)
	s.faint = lipgloss.NewStyle().Faint(true)
	width := defaultProseWidth
	if t.columns > 0 {
		width = min(t.columns, maxProseWidth)
	}
	style := plainStyle()
	switch {
	case t.dark:
		style = styles.DarkStyleConfig
	case t.color:
		style = styles.LightStyleConfig
	}
	// This fails for unknown styles only.
	s.renderer, _ = glamour.NewTermRenderer(glamour.WithStyles(style), glamour.WithWordWrap(width))
	return s
}

// mayColor reports whether a terminal understands escape sequences, and its owner wants them.
func mayColor() bool {
	terminal := os.Getenv("TERM")
	return terminal != "" && terminal != "dumb" && os.Getenv("NO_COLOR") == ""
}

// plainStyle shows prose without escape sequences: emphasis and code as Markdown has them.
func plainStyle() glamourstyle.StyleConfig {
	style := styles.NoTTYStyleConfig
	style.Code = glamourstyle.StyleBlock{StylePrimitive: glamourstyle.StylePrimitive{Prefix: "`", Suffix: "`"}}
	return style
}

// prose shows Markdown of a page in the directory dir.
func (s *screen) prose(dir, markdown string) {
	text := markdown
	if s.renderer != nil {
		if rendered, err := s.renderer.Render(s.simplify(dir, markdown)); err == nil {
			text = rendered
		}
	}
	if !s.color {
		text = ansi.Strip(text) // hyperlinks
	}
	text = strings.Trim(trailingSpace.ReplaceAllString(text, ""), "\n")
	s.println("\n" + text + "\n")
}

func (s *screen) command(step Step) {
	text := "$ " + strings.ReplaceAll(step.Command, "\n", "\n> ")
	if step.Background {
		text += " &"
	}
	s.println(s.style(s.commandStyle, s.wrap(text)))
}

func (s *screen) output(line string) { s.println(line) }

func (s *screen) log(name, line string) { s.println(s.style(s.faint, s.wrap(name+" | "+line))) }

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

// wrap breaks lines that are too long for the terminal between words, and indents the rest. In a file, lines stay whole.
func (s *screen) wrap(text string) string {
	if s.columns == 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = wrapWords(lines[i], s.columns)
	}
	return strings.Join(lines, "\n")
}

// wrapWords breaks a line at spaces only, so that a flag or a path stays whole where it fits.
func wrapWords(line string, columns int) string {
	const indent = "    "
	var out strings.Builder
	column := 0
	for i, word := range strings.SplitAfter(line, " ") {
		width := lipgloss.Width(strings.TrimSuffix(word, " "))
		if i > 0 && column+width > columns {
			out.WriteString("\n" + indent)
			column = len(indent)
		}
		out.WriteString(word)
		column += lipgloss.Width(word)
	}
	return trailingSpace.ReplaceAllString(out.String(), "")
}

func (s *screen) println(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.out, text)
}
