package play

import (
	"fmt"
	"io"
	"os"
	"regexp"
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
	oneLine             *glamour.TermRenderer // of text that is wrapped afterwards
	width               int                   // of prose
	commandStyle, faint lipgloss.Style
	linked              map[string]bool // targets of links whose place has been shown

	mu     sync.Mutex // guards the fields below
	out    io.Writer
	filled int  // lines of the terminal that were written since the last prompt
	muted  bool // nothing is shown
}

func newScreen(out io.Writer, t terminal) *screen {
	s := &screen{terminal: t, out: out, linked: map[string]bool{}}
	s.commandStyle = lipgloss.NewStyle().Bold(true)
	s.faint = lipgloss.NewStyle().Faint(true)
	s.width = defaultProseWidth
	if t.columns > 0 {
		s.width = min(t.columns, maxProseWidth)
	}
	style := plainStyle()
	switch {
	case t.dark:
		style = styles.DarkStyleConfig
	case t.color:
		style = styles.LightStyleConfig
	}
	// These fail for unknown styles only.
	s.renderer, _ = glamour.NewTermRenderer(glamour.WithStyles(style), glamour.WithWordWrap(s.width))
	s.oneLine, _ = glamour.NewTermRenderer(glamour.WithStyles(style), glamour.WithWordWrap(0))
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

// prose shows Markdown of a page in the directory dir. Before what has not been read yet would scroll off the screen, it
// calls pause.
func (s *screen) prose(dir, markdown string, pause func() error) error {
	text := markdown
	if s.renderer != nil {
		if rendered, err := s.renderPage(s.simplify(dir, markdown)); err == nil {
			text = rendered
		}
	}
	if !s.color {
		text = ansi.Strip(text) // hyperlinks
	}
	text = strings.Trim(trailingSpace.ReplaceAllString(text, ""), "\n")
	for line := range strings.SplitSeq("\n"+text+"\n", "\n") {
		if s.isFull() {
			if err := pause(); err != nil {
				return err
			}
		}
		s.println(line)
	}
	return nil
}

// isFull reports whether a line more, and a prompt, would move the first line since the last prompt off the screen.
func (s *screen) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows > 0 && s.filled+2 > s.rows
}

// mute lets nothing be shown, or shows again what comes from now on.
func (s *screen) mute(muted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.muted = muted
}

// prompt shows a prompt, and leaves the cursor behind it on a terminal.
func (s *screen) prompt(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(s.out, s.style(s.faint, text))
	if s.columns == 0 {
		fmt.Fprintln(s.out)
	}
}

// clearPrompt removes the prompt, and the line break of whoever answered it, where that is possible.
func (s *screen) clearPrompt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filled = 0
	if s.color {
		fmt.Fprint(s.out, ansi.CursorUp(1)+"\r"+ansi.EraseScreenBelow)
	}
}

func (s *screen) command(step Step) {
	text := "$ " + strings.ReplaceAll(step.Command, "\n", "\n> ")
	if step.Background {
		text += " &"
	}
	s.println(s.style(s.commandStyle, s.wrap(text)))
}

func (s *screen) output(line string) { s.println(line) }

func (s *screen) log(name, line string) {
	s.println(s.style(s.faint, s.wrap(name+" | "+shortenHeader(line))))
}

// klogHeader is what klog writes before a message: severity, date and time, process ID, file and line.
var klogHeader = regexp.MustCompile(`^([IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [^ ]+:\d+\] `)

// shortenHeader leaves nothing of klog's header but the severity, and that only if it is worse than info.
func shortenHeader(line string) string {
	header := klogHeader.FindStringSubmatch(line)
	if header == nil {
		return line
	}
	severity := map[string]string{"W": "warning: ", "E": "error: ", "F": "fatal: "}[header[1]]
	return severity + line[len(header[0]):]
}

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
		if column += lipgloss.Width(word); width > columns-len(indent) {
			column %= columns // the terminal breaks a word that fits in no line
		}
	}
	return trailingSpace.ReplaceAllString(out.String(), "")
}

func (s *screen) println(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.muted {
		return
	}
	fmt.Fprintln(s.out, text)
	for line := range strings.SplitSeq(text, "\n") {
		s.filled++
		if s.columns > 0 {
			s.filled += max(0, lipgloss.Width(line)-1) / s.columns
		}
	}
}
