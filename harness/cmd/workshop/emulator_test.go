package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/charmbracelet/x/ansi"
)

// emulator is a terminal emulator of the kind of xterm: it turns what a program writes into what a person sees. It knows the
// escape sequences that our terminal program writes, and lists those that it does not know. Each character takes one column.
type emulator struct {
	mu            sync.Mutex // guards the fields below
	parser        *ansi.Parser
	columns, rows int
	shown, hidden [][]rune // the screen, and the one that is not shown: the main screen or the alternate one
	x, y          int
	wrapNext      bool // the last column has been written to: the next character goes to the next line
	top, bottom   int  // the rows that scroll
	alternate     bool // the alternate screen is shown
	cursorHidden  bool
	unknown       []string // sequences
}

func newEmulator(columns, rows int) *emulator {
	e := &emulator{parser: ansi.NewParser()}
	e.parser.SetHandler(ansi.Handler{Print: e.print, Execute: e.execute, HandleCsi: e.csi, HandleEsc: e.esc})
	e.resize(columns, rows)
	return e
}

// resize clears both screens. A program writes its screen again when the size has changed.
func (e *emulator) resize(columns, rows int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.columns, e.rows, e.top, e.bottom = columns, rows, 0, rows-1
	e.x, e.y, e.wrapNext = 0, 0, false
	e.shown, e.hidden = blank(columns, rows), blank(columns, rows)
}

func blank(columns, rows int) [][]rune {
	screen := make([][]rune, rows)
	for y := range screen {
		screen[y] = slices.Repeat([]rune{' '}, columns)
	}
	return screen
}

// Write implements io.Writer.
func (e *emulator) Write(text []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range text {
		e.parser.Advance(b)
	}
	return len(text), nil
}

// text returns the screen without the blanks at the ends of lines.
func (e *emulator) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var lines []string
	for _, line := range e.shown {
		lines = append(lines, strings.TrimRight(string(line), " "))
	}
	return strings.Join(lines, "\n")
}

func (e *emulator) print(r rune) {
	if e.wrapNext {
		e.x = 0
		e.lineFeed()
	}
	e.shown[e.y][e.x] = r
	if e.wrapNext = e.x == e.columns-1; !e.wrapNext {
		e.x++
	}
}

func (e *emulator) execute(b byte) {
	switch b {
	case '\b':
		e.move(e.x-1, e.y)
	case '\t':
		e.move((e.x/8+1)*8, e.y)
	case '\n':
		e.lineFeed()
	case '\r':
		e.move(0, e.y)
	case '\a':
	default:
		e.unknown = append(e.unknown, fmt.Sprintf("%q", b))
	}
}

func (e *emulator) move(x, y int) {
	e.x, e.y, e.wrapNext = max(0, min(x, e.columns-1)), max(0, min(y, e.rows-1)), false
}

func (e *emulator) lineFeed() {
	if e.y == e.bottom {
		e.scroll(e.top, 1)
		e.wrapNext = false
		return
	}
	e.move(e.x, e.y+1)
}

// scroll moves the lines from a row to the end of the scrolling region up, or down if lines is negative.
func (e *emulator) scroll(from, lines int) {
	region := e.shown[from : e.bottom+1]
	if lines = max(-len(region), min(lines, len(region))); lines >= 0 {
		copy(region, append(slices.Clone(region[lines:]), blank(e.columns, lines)...))
		return
	}
	copy(region, append(blank(e.columns, -lines), region[:len(region)+lines]...))
}

func (e *emulator) erase(y, from, to int) {
	for x := max(0, from); x < min(to, e.columns); x++ {
		e.shown[y][x] = ' '
	}
}

func (e *emulator) esc(cmd ansi.Cmd) {
	switch cmd.Final() {
	case 'M': // reverse index
		if e.y == e.top {
			e.scroll(e.top, -1)
			return
		}
		e.move(e.x, e.y-1)
	case '\\', '=', '>', 'B': // the end of a string, the keypad, the character set
	default:
		e.unknown = append(e.unknown, fmt.Sprintf("ESC %c", cmd.Final()))
	}
}

func (e *emulator) csi(cmd ansi.Cmd, params ansi.Params) {
	if cmd.Prefix() != 0 || cmd.Intermediate() != 0 {
		e.private(cmd, params)
		return
	}
	n, _, _ := params.Param(0, 1)
	second, _, _ := params.Param(1, 1)
	line := e.shown[e.y]
	switch cmd.Final() {
	case 'A':
		e.move(e.x, e.y-n)
	case 'B', 'e':
		e.move(e.x, e.y+n)
	case 'C', 'a':
		e.move(e.x+n, e.y)
	case 'D':
		e.move(e.x-n, e.y)
	case 'G', '`':
		e.move(n-1, e.y)
	case 'd':
		e.move(e.x, n-1)
	case 'H', 'f':
		e.move(second-1, n-1)
	case 'I':
		e.move((e.x/8+n)*8, e.y)
	case 'Z':
		e.move(((e.x+7)/8-n)*8, e.y)
	case 'J':
		which, _, _ := params.Param(0, 0)
		for y := range e.shown {
			switch {
			case which == 2, which == 0 && y > e.y, which == 1 && y < e.y:
				e.erase(y, 0, e.columns)
			}
		}
		e.eraseInLine(which)
	case 'K':
		which, _, _ := params.Param(0, 0)
		e.eraseInLine(which)
	case 'X':
		e.erase(e.y, e.x, e.x+n)
	case 'P':
		copy(line[e.x:], append(slices.Clone(line[min(e.x+n, e.columns):]), slices.Repeat([]rune{' '}, min(n, e.columns-e.x))...))
	case '@':
		copy(line[e.x:], append(slices.Repeat([]rune{' '}, n), line[e.x:]...))
	case 'L':
		e.scroll(e.y, -n)
	case 'M':
		e.scroll(e.y, n)
	case 'S':
		e.scroll(e.top, n)
	case 'T':
		e.scroll(e.top, -n)
	case 'r':
		last, _, _ := params.Param(1, e.rows)
		e.top, e.bottom = n-1, last-1
		e.move(0, 0)
	case 'm', 'c', 'n', 't': // colors; questions, which this terminal does not answer
	default:
		e.unknown = append(e.unknown, fmt.Sprintf("CSI %v %c", params, cmd.Final()))
	}
}

func (e *emulator) eraseInLine(which int) {
	switch which {
	case 0:
		e.erase(e.y, e.x, e.columns)
	case 1:
		e.erase(e.y, 0, e.x+1)
	case 2:
		e.erase(e.y, 0, e.columns)
	}
}

// private handles sequences that switch something on or off. Questions, and what has no effect on the text, are ignored.
func (e *emulator) private(cmd ansi.Cmd, params ansi.Params) {
	on := cmd.Final() == 'h'
	if cmd.Prefix() != '?' || !on && cmd.Final() != 'l' {
		return
	}
	params.ForEach(0, func(_, mode int, _ bool) {
		switch mode {
		case 25:
			e.cursorHidden = !on
		case 1049:
			if on != e.alternate {
				e.alternate, e.shown, e.hidden = on, e.hidden, e.shown
			}
			if on {
				e.shown = blank(e.columns, e.rows)
			}
		}
	})
}
