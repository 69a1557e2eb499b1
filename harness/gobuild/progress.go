package gobuild

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// progressLine shows the progress of a build. On a terminal it overwrites one line; elsewhere it writes a line every
// 15 seconds.
type progressLine struct {
	out      io.Writer
	name     string    // the program's
	terminal bool      // out is a terminal
	columns  int       // of the terminal
	start    time.Time // of the build
	printed  time.Time // the last time that something was printed
	open     bool      // there is a progress line that done or close has not ended
	compiled int       // packages whose compilation has started
	total    int       // packages to compile
}

func newProgressLine(out io.Writer, name string) *progressLine {
	line := &progressLine{out: out, name: name, start: time.Now(), columns: 80}
	if file, isFile := out.(*os.File); isFile && os.Getenv("TERM") != "dumb" {
		line.terminal = term.IsTerminal(int(file.Fd()))
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			line.columns = columns
		}
	}
	return line
}

// show prints how many packages have been compiled and, on a terminal, the current one.
func (l *progressLine) show(current string) {
	text := "linking"
	if l.compiled < l.total {
		text = fmt.Sprintf("%d of %d packages", l.compiled, l.total)
		if l.terminal {
			text += "  " + current
		}
	}
	l.print(text)
}

// print prints text with the program's name and the elapsed time. It does nothing if the last call was too recent.
func (l *progressLine) print(text string) {
	interval := 15 * time.Second
	if l.terminal {
		interval = 100 * time.Millisecond
	}
	if time.Since(l.printed) < interval {
		return
	}
	l.printed, l.open = time.Now(), true
	text = fmt.Sprintf("building %s: %s, %s", l.name, text, time.Since(l.start).Round(time.Second))
	if l.terminal {
		// A line that is wrapped could not be overwritten.
		if runes, most := []rune(text), min(l.columns, 80)-1; len(runes) > most {
			text = string(runes[:most])
		}
		fmt.Fprintf(l.out, "\r\x1b[K%s", text)
		return
	}
	fmt.Fprintln(l.out, text)
}

// done replaces the progress line with a summary of the build.
func (l *progressLine) done() {
	if l.terminal && l.open {
		fmt.Fprint(l.out, "\r\x1b[K")
	}
	fmt.Fprintf(l.out, "built %s in %s (%d compiled)\n", l.name, time.Since(l.start).Round(100*time.Millisecond), l.total)
	l.open = false
}

// close ends the progress line of a build that failed, so that the cursor is at the start of a line.
func (l *progressLine) close() {
	if l.terminal && l.open {
		fmt.Fprintln(l.out)
	}
}
