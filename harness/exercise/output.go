package exercise

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"example.com/controllers/harness/exercise/verdict"
)

// mostOutput is how many lines of a program's output are in a verdict.
const mostOutput = 40

// excerpt returns what the program has printed: the stack of the goroutine that panicked, or else the last lines.
func (f finished) excerpt(dir string) string {
	text := f.output.String()
	before, trace, hasTrace := strings.Cut(text, verdict.Quit)
	if f.timedOut && hasTrace {
		text = before
		if busy := busyGoroutine(trace, dir); busy != "" {
			text = "panic: \n" + busy
		}
	}
	// With -trimpath, a path begins with the name of the module.
	own := regexp.MustCompile(`[^\s"]*/` + regexp.QuoteMeta(filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir)+"/"))
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if !testOutput.MatchString(line) {
			lines = append(lines, own.ReplaceAllLiteralString(line, ""))
		}
	}
	if first := slices.IndexFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
	}); first >= 0 {
		if strings.Contains(lines[first], asleep) {
			first += max(0, slices.IndexFunc(lines[first:], mutexWait.MatchString)-1)
		}
		return stack(lines[first+1:])
	}
	return strings.TrimSpace(strings.Join(lines[max(0, len(lines)-mostOutput):], "\n"))
}

var (
	frameArguments = regexp.MustCompile(`\([^()]*(\([^()]*\)[^()]*)*\)$`)
	framePlace     = regexp.MustCompile(`^\t(\S+:\d+)`)
	modulePlace    = regexp.MustCompile(`^(?:[^/@]*/)*([^/@]+)@[^/]+/`)
	// toolPlace matches the places of the Go runtime, of package testing, of the grader and of the world in which it runs.
	toolPlace = regexp.MustCompile(`^(.*/src/)?(runtime|testing|internal)/|^(.*/)?harness/|^` + graderFile + `:`)
)

// stack makes the first goroutine of a stack trace readable: a line for each function of the participant and of the libraries,
// with its place.
func stack(trace []string) string {
	type frame struct{ place, function string }
	var frames []frame
	var function string
	width := 0
	for _, line := range trace {
		place := framePlace.FindStringSubmatch(line)
		if line == "" && len(frames) > 0 {
			break
		}
		switch {
		case place != nil && function != "":
			at := modulePlace.ReplaceAllString(place[1], "$1/")
			if !toolPlace.MatchString(at) && len(frames) < mostOutput {
				if !strings.Contains(at, "/") { // in the participant's own package
					_, function, _ = strings.Cut(function, ".")
				}
				frames = append(frames, frame{at, function})
				width = max(width, len(at))
			}
			function = ""
		case strings.HasPrefix(line, "goroutine "), strings.HasPrefix(line, "created by "):
			function = ""
		default:
			function = frameArguments.ReplaceAllString(line, "")
			function = function[strings.LastIndex(function, "/")+1:]
		}
	}
	var text strings.Builder
	for _, f := range frames {
		fmt.Fprintf(&text, "%-*s  %s\n", width, f.place, f.function)
	}
	return strings.TrimSpace(text.String())
}

// testOutput matches the lines that package testing prints about a test, without what the test itself has to say.
var testOutput = regexp.MustCompile(`^(=== |\s*--- |FAIL|PASS|ok )`)

// output keeps the beginning and the end of what is written to it.
type output struct {
	head, tail bytes.Buffer
	dropped    int
}

// Write implements io.Writer.
func (o *output) Write(text []byte) (int, error) {
	n := len(text)
	if room := outputLimit - o.head.Len(); room > 0 {
		part := text[:min(room, len(text))]
		o.head.Write(part)
		text = text[len(part):]
	}
	o.tail.Write(text)
	if excess := o.tail.Len() - outputLimit; excess > outputLimit {
		o.dropped += excess
		o.tail.Next(excess)
	}
	return n, nil
}

// String implements fmt.Stringer.
func (o *output) String() string {
	if o.dropped == 0 {
		return o.head.String() + o.tail.String()
	}
	return fmt.Sprintf("%s\n... %d bytes ...\n%s", o.head.String(), o.dropped, o.tail.String())
}
