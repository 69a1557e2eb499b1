// Package play plays a Markdown page: it shows the prose, runs the commands, and compares their output with the output
// on the page.
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
//     A word such as "~60" or "~1.5s" stands for a number between half of it and twice it, and one such as "≥1.5s"
//     for a number that is not less: a time, which a slow machine makes longer. "≤40" stands for a number that is
//     not greater: a size, which a slow machine makes smaller if what has gathered is compressed together. In a line
//     that has one, the width of white space does not count. At the end of a line it never does.
//   - A command that fails, fails the page, unless the last line of its output on the page is
//     "(exit status 1)", with that status. No "..." stands for an exit status.
//   - A command that ends in "&" runs in the background until the end of the page, or until the page
//     kills it. Its output is its log, shown with the command's name in front: "naive-loop | ...". Of a log that
//     goes on and on, only a few lines are shown for each command of the page.
//   - A line of the form "NAME | TEXT", where NAME is a background command, is not output: the player
//     waits until that line is in the command's log. Such lines must come in the page's order; the log may have
//     others between them. A background command that exits by itself fails the page.
//
// A code block whose info string is a language and a file name ("go controller.go") quotes that file:
// its lines must be in the file, in order and without gaps; a line that is only "..." stands for lines left
// out. In one whose info string is "diff OLD NEW", the lines that start with "+" must be in NEW, those that
// start with "-" in OLD, and those that start with a space in both. [Read] insists on that;
// [ReadEdited] shows the reader's own code instead.
//
// A line "<!-- env: NAME NAME -->" names variables of the caller's environment that the page's commands get. They
// get no others, so a page cannot reach a cluster or an account that it was not told of.
//
// Everything else is prose.
package play

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"example.com/controllers/harness/testinput"
)

// Page is a page that has been parsed.
type Page struct {
	// Path is the file that it was read from.
	Path string
	// Parts are the page from top to bottom.
	Parts []Part
	// Env names the variables of the caller's environment that the page's commands get.
	Env []string
	// Nodes is how many simulated nodes the page needs; 0 if it does not say.
	Nodes int
	// OwnCluster says that the page changes more than the lesson's namespace and what its manifests name, so that it must not be
	// played on a cluster that is used for anything else, nor on one where it was played before.
	OwnCluster bool
	// Edited holds an error for each quote that differs from the file it quotes.
	Edited []error

	begin int // Parts[:begin] are run without being shown
}

// Part is either prose or the commands of one console block.
type Part struct {
	Prose string // Markdown
	Steps []Step
}

// Step is a command, and the output that the page expects of it.
type Step struct {
	Line       int      // of the page, from 1
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

// Read reads a page. A quote that differs from the file it quotes is an error.
func Read(path string) (*Page, error) {
	page, err := ReadEdited(path)
	if err != nil {
		return nil, err
	}
	return page, errors.Join(page.Edited...)
}

// Parse is Read for a page whose text is given. path, which is absolute, says where its commands run, and which files its
// quotes name.
func Parse(path string, source []byte) (*Page, error) {
	page, err := parse(path, source)
	if err != nil {
		return nil, err
	}
	return page, errors.Join(page.Edited...)
}

// ReadEdited reads a page for somebody who may have edited the code that it quotes. In place of a quote that differs
// from its file, the page has the file's own declarations of the same names, and a line that says so.
func ReadEdited(path string) (*Page, error) {
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
	var edited strings.Builder // prose that is not in a part yet, up to offset prose of the source
	prose := 0
	flush := func(end int) {
		edited.Write(source[prose:end])
		text := envLine.ReplaceAllStringFunc(edited.String(), func(line string) string {
			page.Env = append(page.Env, strings.Fields(envLine.FindStringSubmatch(line)[1])...)
			return ""
		})
		text = nodesLine.ReplaceAllStringFunc(text, func(line string) string {
			page.Nodes, _ = strconv.Atoi(nodesLine.FindStringSubmatch(line)[1]) // at most three digits
			return ""
		})
		text = clusterLine.ReplaceAllStringFunc(text, func(string) string {
			page.OwnCluster = true
			return ""
		})
		edited.Reset()
		if text = strings.TrimSpace(text); text != "" {
			page.Parts = append(page.Parts, Part{Prose: text})
		}
	}
	err := ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		block, isFence := node.(*ast.FencedCodeBlock)
		if !entering || !isFence || block.Info == nil {
			return ast.WalkContinue, nil
		}
		info := strings.Fields(string(block.Info.Segment.Value(source)))
		if len(info) == 0 {
			return ast.WalkSkipChildren, nil
		}
		line := lineOf(source, block.Info.Segment.Start)
		begin, end := extent(block, source)
		if info[0] != "console" {
			own, err := checkQuote(page.Dir(), info, segments(block.Lines(), source))
			if err == nil {
				return ast.WalkSkipChildren, nil
			}
			page.Edited = append(page.Edited, fmt.Errorf("%s:%d: %w", path, line, err))
			edited.Write(source[prose:begin])
			indent := source[begin : begin+bytes.IndexFunc(source[begin:], func(r rune) bool { return r != ' ' && r != '\t' })]
			edited.WriteString(string(indent) + strings.ReplaceAll(own, "\n", "\n"+string(indent)) + "\n")
			prose = end
			return ast.WalkSkipChildren, nil
		}
		steps, err := parseSteps(segments(block.Lines(), source), line+1)
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

// extent returns where the lines of a code block begin and end in the source, its fences included.
func extent(block *ast.FencedCodeBlock, source []byte) (begin, end int) {
	nextLine := func(offset int) int {
		if newline := bytes.IndexByte(source[offset:], '\n'); newline >= 0 {
			return offset + newline + 1
		}
		return len(source)
	}
	info := block.Info.Segment
	begin = bytes.LastIndexByte(source[:info.Start], '\n') + 1
	end = nextLine(info.Stop)
	if count := block.Lines().Len(); count > 0 {
		end = block.Lines().At(count - 1).Stop
	}
	return begin, nextLine(end) // the closing fence
}

var (
	envLine     = regexp.MustCompile(`(?m)^<!-- env: ([A-Za-z0-9_ ]+) -->$`)
	nodesLine   = regexp.MustCompile(`(?m)^<!-- nodes: ([0-9]{1,3}) -->$`)
	clusterLine = regexp.MustCompile(`(?m)^<!-- cluster: own -->$`)
)

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
