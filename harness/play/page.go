// Package play plays a Markdown page: it shows the prose, runs the commands, and compares what they
// print with what the page says they print.
//
// # Pages
//
// A code block of language console is run. In it
//
//   - a line that starts with "$ " is a command, given to bash in the page's directory. Lines that
//     start with "> " continue it. All commands of a page share one shell: variables, functions and
//     the working directory stay.
//   - The lines that follow are the output that the command must have, standard error included. In
//     a line, "..." stands for any text; a line that is only "..." stands for any number of lines.
//     A word such as "~60" or "~1.5s" stands for a number between half of it and twice it; in a line
//     that has one, the width of white space does not count. At the end of a line it never does.
//   - A command that fails fails the page, unless the page says so: its last line is then
//     "(exit status 1)".
//   - A command that ends in "&" runs in the background until the end of the page, or until the page
//     kills it. What it prints is its log, shown with its name in front: "naive-loop | ...".
//   - A line of the form "NAME | TEXT", where NAME is a command in the background, is not output but
//     waits for that line in its log. Such lines must come in the page's order; others may come
//     between them. A command in the background that ends by itself fails the page.
//
// A code block whose info string is a language and a file name ("go controller.go") must stand in
// that file, word for word; a line that is only "..." stands for lines left out. In one whose info string
// is "diff OLD NEW", lines that start with "+" must stand in NEW, those that start with "-" in OLD, and
// those that start with a space in both.
//
// A line "<!-- env: NAME NAME -->" names variables of the caller's environment that the page's commands get. They
// get no others, so that a page cannot reach a cluster or an account that it was not told of.
//
// All else is prose.
package play

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"example.com/controllers/harness/testinput"
)

// Page is a page that can be played.
type Page struct {
	// Path is the file that it was read from.
	Path string
	// Parts are the page from top to bottom.
	Parts []Part
	// Env names the variables of the caller's environment that the page's commands get.
	Env []string
}

// Part is either prose or the commands of one console block.
type Part struct {
	Prose string // Markdown
	Steps []Step
}

// Step is a command and what the page says of it.
type Step struct {
	Line       int      // where the command stands, from 1
	Command    string   // without the "$ "; may have several lines; without a last "&"
	Background bool     // it ended in "&"
	Expect     []string // the lines below the command
}

// Commands returns the number of commands on the page.
func (p *Page) Commands() int {
	count := 0
	for _, part := range p.Parts {
		count += len(part.Steps)
	}
	return count
}

// Dir returns the directory that the page's commands run in.
func (p *Page) Dir() string { return filepath.Dir(p.Path) }

// Read reads a page and checks the code that it quotes.
func Read(path string) (*Page, error) {
	testinput.Declare(path)
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	return parse(path, source)
}

func parse(path string, source []byte) (*Page, error) {
	page := &Page{Path: path}
	document := goldmark.DefaultParser().Parse(text.NewReader(source))
	prose := 0 // where the prose that is not in a part yet begins
	flush := func(end int) {
		text := envLine.ReplaceAllStringFunc(string(source[prose:end]), func(line string) string {
			page.Env = append(page.Env, strings.Fields(envLine.FindStringSubmatch(line)[1])...)
			return ""
		})
		if text = strings.TrimSpace(text); text != "" {
			page.Parts = append(page.Parts, Part{Prose: text})
		}
	}
	err := ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		block, isFence := node.(*ast.FencedCodeBlock)
		if !entering || !isFence {
			return ast.WalkContinue, nil
		}
		info := ""
		if block.Info != nil {
			info = string(block.Info.Segment.Value(source))
		}
		lines := segments(block.Lines(), source)
		words := strings.Fields(info)
		if len(words) == 0 {
			return ast.WalkSkipChildren, nil
		}
		if words[0] != "console" {
			var err error
			switch {
			case len(words) == 2:
				err = quoted(page.Dir(), words[1], lines)
			case len(words) == 3 && words[0] == "diff":
				err = errors.Join(quoted(page.Dir(), words[1], side(lines, "-")), quoted(page.Dir(), words[2], side(lines, "+")))
			}
			if err != nil {
				return ast.WalkStop, fmt.Errorf("%s:%d: %w", path, lineOf(source, block.Info.Segment.Start), err)
			}
			return ast.WalkSkipChildren, nil
		}
		infoStart := block.Info.Segment.Start
		begin := strings.LastIndexByte(string(source[:infoStart]), '\n') + 1
		end := infoStart + len(info)
		if count := block.Lines().Len(); count > 0 {
			end = block.Lines().At(count - 1).Stop
		}
		if newline := strings.IndexByte(string(source[end:]), '\n'); newline >= 0 && block.Lines().Len() == 0 {
			end += newline + 1
		}
		// The line of the closing fence.
		if newline := strings.IndexByte(string(source[end:]), '\n'); newline >= 0 {
			end += newline + 1
		} else {
			end = len(source)
		}
		steps, err := parseSteps(lines, lineOf(source, infoStart)+1)
		if err != nil {
			return ast.WalkStop, fmt.Errorf("%s:%w", path, err)
		}
		flush(begin)
		prose = end
		page.Parts = append(page.Parts, Part{Steps: steps})
		return ast.WalkSkipChildren, nil
	})
	if err != nil {
		return nil, err
	}
	flush(len(source))
	return page, nil
}

var envLine = regexp.MustCompile(`(?m)^<!-- env: ([A-Za-z0-9_ ]+) -->$`)

func segments(segments *text.Segments, source []byte) []string {
	var lines []string
	for _, segment := range segments.Sliced(0, segments.Len()) {
		lines = append(lines, strings.TrimRight(string(segment.Value(source)), "\r\n"))
	}
	return lines
}

func lineOf(source []byte, offset int) int {
	return 1 + strings.Count(string(source[:offset]), "\n")
}

func parseSteps(lines []string, first int) ([]Step, error) {
	var steps []Step
	for i, line := range lines {
		command, isCommand := strings.CutPrefix(line, "$ ")
		more, isMore := strings.CutPrefix(line, "> ")
		switch last := len(steps) - 1; {
		case isCommand:
			steps = append(steps, Step{Line: first + i, Command: command})
		case last < 0:
			return nil, fmt.Errorf("%d: a console block must begin with a command, a line that starts with \"$ \"", first+i)
		case isMore && len(steps[last].Expect) == 0:
			steps[last].Command += "\n" + more
		default:
			steps[last].Expect = append(steps[last].Expect, strings.TrimRight(line, " \t"))
		}
	}
	for i := range steps {
		command := strings.TrimSpace(steps[i].Command)
		if strings.HasSuffix(command, "&") && !strings.HasSuffix(command, "&&") {
			steps[i].Background = true
			command = strings.TrimSpace(strings.TrimSuffix(command, "&"))
		}
		steps[i].Command = command
	}
	return steps, nil
}

// side returns one side of a diff: the lines that start with sign, and those that both sides have.
func side(diff []string, sign string) []string {
	var lines []string
	for _, line := range diff {
		text, ours := strings.CutPrefix(line, sign)
		if ours || strings.HasPrefix(line, " ") || line == "" || line == anything {
			lines = append(lines, text)
		}
	}
	return lines
}

// quoted checks that lines stand in the file, in order and without gaps but those that "..." stands
// for.
func quoted(dir, file string, lines []string) error {
	testinput.Declare(filepath.Join(dir, file))
	source, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return fmt.Errorf("the page quotes %s: %w", file, err)
	}
	trim := func(lines []string) []string {
		out := slices.Clone(lines)
		for i := range out {
			out[i] = strings.TrimSpace(out[i])
		}
		return out
	}
	rest := trim(strings.Split(string(source), "\n"))
	var piece []string
	take := func() error {
		at := indexLines(rest, piece)
		if at < 0 {
			return fmt.Errorf("the page quotes what is not in %s:\n  %s", file, strings.Join(piece, "\n  "))
		}
		rest, piece = rest[at+len(piece):], nil
		return nil
	}
	for _, line := range trim(lines) {
		if line != "..." && line != "// ..." {
			piece = append(piece, line)
			continue
		}
		if err := take(); err != nil {
			return err
		}
	}
	return take()
}

// indexLines returns where piece stands in lines, or -1.
func indexLines(lines, piece []string) int {
	for at := 0; at+len(piece) <= len(lines); at++ {
		if slices.Equal(lines[at:at+len(piece)], piece) {
			return at
		}
	}
	return -1
}
