// Package verdict carries the outcome of an exercise's check from the program that runs it to the one that shows it.
//
//   - A check writes each line of its timeline as it happens, so that a program that panics, hangs or exits still shows
//     what led to it.
//   - A check has passed only if it has written so. A program that exits early has not passed.
package verdict

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// FileVariable is the name of an environment variable with the path of the file that a check writes to. Without it, the
// check prints to its test's log only.
const FileVariable = "WORKSHOP_VERDICT"

// Line is one thing that happened while the check ran.
type Line struct {
	At   time.Duration `json:"at"`             // since the start of the scene, in its own time, which may be virtual; in JSON, nanoseconds
	Who  string        `json:"who"`            // the program that did it: "controller", "user", "event", "log", ...
	What string        `json:"what"`           // such as "delete pod shop/web-0"
	Note string        `json:"note,omitempty"` // the answer, or what is remarkable about it
	Bad  bool          `json:"bad,omitempty"`  // a line that shows what went wrong
}

// TextColumn is the column, from 0, in which a formatted line says what happened. Before it are the time and the program.
const TextColumn = 21

// String formats the line as one of a timeline: aligned with others.
func (l Line) String() string {
	text := fmt.Sprintf("%7s  %-10s  %s", FormatTime(l.At), l.Who, l.What)
	if l.Note != "" {
		text += ": " + l.Note
	}
	return text
}

// FormatTime formats the time of a line in seven columns at most, as long as a scene is shorter than a month: "5.0s", "61m10s",
// "23h44m". What is left out is cut off.
func FormatTime(at time.Duration) string {
	const inMinutes, inHours = 1000 * time.Second, 1000 * time.Minute
	switch {
	case at < inMinutes:
		return fmt.Sprintf("%.1fs", at.Seconds())
	case at < inHours:
		return fmt.Sprintf("%dm%02ds", int(at.Minutes()), int(at.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(at.Hours()), int(at.Minutes())%60)
}

// record is one line of the file. Exactly one field is set.
type record struct {
	Scene   string `json:"scene,omitempty"` // a new scene begins: the timeline starts anew
	Line    *Line  `json:"line,omitempty"`
	Failure string `json:"failure,omitempty"`
	Passed  bool   `json:"passed,omitempty"`
}

// Writer writes what a check finds. Its methods may be called concurrently.
type Writer struct {
	mu    sync.Mutex
	file  *os.File // nil if FileVariable is not set
	print func(string)
	// recording is that of the scene; nil if there is none.
	recording *os.File
}

// NewWriter returns a Writer to the file that FileVariable names. Without one, it calls print with each record as text.
func NewWriter(print func(string)) (*Writer, error) {
	w := &Writer{print: print}
	if path := os.Getenv(FileVariable); path != "" {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return nil, fmt.Errorf("write the verdict: %w", err)
		}
		w.file = file
		answerQuit()
	}
	return w, nil
}

// Quit begins the stacks of all goroutines that a check prints on SIGQUIT, before it exits.
const Quit = "SIGQUIT: quit\n"

// answerQuit answers SIGQUIT as the Go runtime does, and in addition with the stacks of goroutines that are running.
func answerQuit() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGQUIT)
	go func() {
		<-asked
		stacks := make([]byte, 4<<20)
		fmt.Fprintf(os.Stderr, "%s\n%s\n", Quit, stacks[:runtime.Stack(stacks, true)])
		os.Exit(2)
	}()
}

// Scene begins a new timeline, and a new recording.
func (w *Writer) Scene(name string) {
	w.write(record{Scene: name}, "--- "+name)
	w.record(name)
}

// Line adds a line to the timeline.
func (w *Writer) Line(l Line) { w.write(record{Line: &l}, l.String()) }

// Fail records why the check has failed. Only the first failure counts.
func (w *Writer) Fail(message string) { w.write(record{Failure: message}, "FAILED: "+message) }

// Pass records that the check has passed.
func (w *Writer) Pass() { w.write(record{Passed: true}, "passed") }

func (w *Writer) write(r record, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file != nil {
		line, err := json.Marshal(r)
		if err != nil {
			panic(err) // a record always has a JSON form
		}
		_, _ = w.file.Write(append(line, '\n')) // the reader takes an incomplete file for a check that did not end
		return
	}
	w.print(text)
}

// Found is what a check has written.
type Found struct {
	Passed   bool
	Failure  string // why it has failed; "" if it has passed or did not come to an end
	Scene    string
	Timeline []Line // of the scene that failed, or of the last one; of a very long one, the beginning and the end
	// Earlier has the timelines of the scenes before that, by name.
	Earlier map[string][]Line
}

// maxLine is more than a record needs. Longer lines are not ours.
const maxLine = 1 << 20

// maxLines is how many lines of a timeline are kept from its beginning, and at least as many from its end.
const maxLines = 5000

// ReadFile reads what a check has written to a file. A file that does not exist is like an empty one: the check has not
// begun.
func ReadFile(path string) (Found, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Found{}, nil
	}
	if err != nil {
		return Found{}, err
	}
	defer file.Close()
	return Read(file)
}

// Read reads what a check has written. Lines that are incomplete are skipped.
func Read(r io.Reader) (Found, error) {
	found := Found{Earlier: map[string][]Line{}}
	dropped := 0 // lines of the timeline
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var r record
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue
		}
		switch {
		case found.Failure != "":
			// What happens after the failure is not part of it.
		case r.Scene != "":
			if found.Scene != "" {
				found.Earlier[found.Scene] = found.Timeline
			}
			found.Scene, found.Timeline, dropped = r.Scene, nil, 0
		case r.Line != nil:
			found.Timeline = append(found.Timeline, *r.Line)
			if len(found.Timeline) >= 3*maxLines {
				found.Timeline = slices.Delete(found.Timeline, maxLines, 2*maxLines)
				dropped += maxLines
			}
		case r.Failure != "":
			found.Failure = strings.TrimSpace(r.Failure)
		case r.Passed:
			found.Passed = true
		}
	}
	if found.Failure != "" {
		found.Passed = false
	}
	if dropped > 0 {
		left := Line{At: found.Timeline[maxLines].At, Who: "world", What: fmt.Sprintf("%d lines are left out here", dropped)}
		found.Timeline = slices.Insert(found.Timeline, maxLines, left)
	}
	return found, lines.Err()
}
