package exercise

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"example.com/controllers/harness/exercise/verdict"
)

// Text returns the verdict as plain text of at most this many columns. showing limits the rows of the timeline; 0 means all.
func (v Result) Text(columns, showing int) string {
	return v.text(columns, showing, func(row Row) []string { return row.Lines(columns - len(margin)) })
}

// Wrap breaks text into lines of at most this many columns: between words, and within a word that is longer, but not at a
// hyphen: names such as node-1 stay whole.
func Wrap(text string, columns int) string {
	const nonBreaking = "\u2011"
	return strings.ReplaceAll(ansi.Wrap(strings.ReplaceAll(text, "-", nonBreaking), columns, ""), nonBreaking, "-")
}

// margin is what the lines of a timeline and of a program's output begin with.
const margin = "  "

// text returns the verdict as plain text. lines returns the lines for a row of the timeline.
func (v Result) text(columns, showing int, lines func(Row) []string) string {
	var text strings.Builder
	if v.Passed() {
		fmt.Fprintf(&text, "%s: passed\n", v.Exercise)
		return text.String()
	}
	fmt.Fprintf(&text, "%s: %s\n\n%s\n", v.Exercise, v.Verdict, Wrap(v.Message, columns))
	if timeline := v.Shown(showing); len(timeline) > 0 {
		fmt.Fprintf(&text, "\nWhat happened (%s):\n\n", v.Scene)
		for _, row := range timeline {
			for _, line := range lines(row) {
				fmt.Fprintln(&text, margin+line)
			}
		}
	}
	if v.Output != "" && v.Verdict != Failed {
		fmt.Fprintf(&text, "\n%s\n", indent(v.Output))
	}
	return text.String()
}

func indent(text string) string { return margin + strings.ReplaceAll(text, "\n", "\n"+margin) }

// Row is a row of a timeline that is shown: one line, or what stands for several.
type Row struct {
	Text string
	Who  string // the program that did it; "" for a row that stands for several lines
	Bad  bool   // it shows what went wrong
}

// Lines returns the row as lines of at most this many columns. Lines after the first begin where the first says what happened.
// Of a long row, such as a log line with an object in it, only the beginning is returned.
func (r Row) Lines(columns int) []string {
	const most = 4
	indent := strings.Repeat(" ", verdict.TextColumn)
	if r.Who == "" || columns < 2*len(indent) || ansi.StringWidth(r.Text) <= columns {
		return []string{ansi.Truncate(r.Text, columns, ellipsis)}
	}
	lines := strings.Split(Wrap(r.Text[len(indent):], columns-len(indent)), "\n")
	if len(lines) > most {
		lines = lines[:most]
		lines[most-1] = ansi.Truncate(lines[most-1]+" "+ellipsis, columns-len(indent), ellipsis)
	}
	for i := range lines {
		first := indent
		if i == 0 {
			first = r.Text[:len(indent)]
		}
		lines[i] = first + strings.TrimSpace(lines[i])
	}
	return lines
}

// longestCycle is the most lines whose repetition Shown recognizes.
const longestCycle = 6

// Shown returns the rows of the timeline. Lines that repeat, alone or several in turn, are shown once, and then how
// often. Of more lines than limit, those in the middle are left out; 0 means no limit.
func (v Result) Shown(limit int) []Row {
	var rows []Row
	for first := 0; first < len(v.Timeline); {
		length, times := cycle(v.Timeline[first:])
		for _, line := range v.Timeline[first : first+length] {
			rows = append(rows, Row{line.String(), line.Who, line.Bad})
		}
		last := v.Timeline[first+length*times-1]
		switch {
		case times > 1 && length == 1:
			rows[len(rows)-1].Text += fmt.Sprintf("  (%d times, until %s)", times, verdict.FormatTime(last.At))
		case times > 1:
			text := fmt.Sprintf("%7s  these %d lines %s, until %s", ellipsis, length, counted(times-1, "more time"), verdict.FormatTime(last.At))
			rows = append(rows, Row{Text: text})
		}
		first += length * times
	}
	if limit <= 0 || len(rows) <= limit {
		return rows
	}
	head := limit / 3
	tail := limit - head - 1
	hidden := Row{Text: fmt.Sprintf("%7s  %s", ellipsis, counted(len(rows)-head-tail, "more line"))}
	return slices.Concat(rows[:head], []Row{hidden}, rows[len(rows)-tail:])
}

// counted is a number with its noun.
func counted(count int, noun string) string {
	if count == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", count, noun)
}

// ellipsis stands in the place of the time in lines that stand for others.
const ellipsis = "…"

// cycle returns how many lines at the beginning repeat at once, and how many times they are there. One line that does not
// repeat is there once.
func cycle(timeline []verdict.Line) (length, times int) {
	same := func(a, b verdict.Line) bool { return a.Who == b.Who && a.What == b.What && a.Note == b.Note }
	for length = 1; length <= min(longestCycle, len(timeline)/2); length++ {
		times = 1
		for next := length; next+length <= len(timeline); next += length {
			if !slices.EqualFunc(timeline[:length], timeline[next:next+length], same) {
				break
			}
			times++
		}
		if times > 1 {
			return length, times
		}
	}
	return 1, 1
}
