package gobuild

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// progressLine shows how far a build is: on a terminal one line that moves, elsewhere a line now and
// then.
type progressLine struct {
	out      io.Writer
	name     string
	terminal bool
	start    time.Time
	shown    time.Time
	said     bool // something was written
	count    int  // packages that were begun
	total    int  // packages that there are to compile
}

func newProgressLine(out io.Writer, name string) *progressLine {
	file, isFile := out.(*os.File)
	return &progressLine{
		out: out, name: name, start: time.Now(),
		terminal: isFile && term.IsTerminal(int(file.Fd())),
	}
}

// show says how many packages are done, and which one was begun last.
func (l *progressLine) show(current string) {
	text := "linking"
	if l.count < l.total {
		text = fmt.Sprintf("%d of %d packages", l.count, l.total)
		if l.terminal {
			text += "  " + current
		}
	}
	l.say(text)
}

// say shows text, unless the last was a moment ago.
func (l *progressLine) say(text string) {
	pause := 15 * time.Second
	if l.terminal {
		pause = 100 * time.Millisecond
	}
	if time.Since(l.shown) < pause {
		return
	}
	l.shown, l.said = time.Now(), true
	text = fmt.Sprintf("building %s: %s, %s", l.name, text, time.Since(l.start).Round(time.Second))
	if l.terminal {
		if runes := []rune(text); len(runes) > 79 {
			text = string(runes[:79])
		}
		fmt.Fprintf(l.out, "\r\x1b[K%s", text)
		return
	}
	fmt.Fprintln(l.out, text)
}

func (l *progressLine) done() {
	if l.terminal && l.said {
		fmt.Fprint(l.out, "\r\x1b[K")
	}
	fmt.Fprintf(l.out, "built %s in %s (%d compiled)\n", l.name, time.Since(l.start).Round(100*time.Millisecond), l.total)
	l.said = false
}

// close leaves the cursor at the start of a line.
func (l *progressLine) close() {
	if l.terminal && l.said {
		fmt.Fprintln(l.out)
	}
}
