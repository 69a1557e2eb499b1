package play

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"
)

var assignment = regexp.MustCompile(`^\w+=`)

// jobName returns the name of a background command: that of its program, of the program that "go run" runs, or of the
// workshop's subcommand.
func jobName(command string) string {
	words := strings.Fields(command)
	for len(words) > 1 && assignment.MatchString(words[0]) {
		words = words[1:]
	}
	if len(words) > 2 && words[0] == "go" && words[1] == "run" {
		for _, word := range words[2:] {
			if !strings.HasPrefix(word, "-") {
				return path.Base(word)
			}
		}
	}
	if len(words) > 1 && path.Base(words[0]) == "workshop" {
		return words[1]
	}
	return path.Base(words[0])
}

// How much of a log is shown, besides the lines that a page awaits.
const (
	logAllowance = 12 // lines from one command of the page to the next
	heldLines    = 6  // lines that came during a pause
	lastWords    = 3  // lines at the end of a background command
)

// job is a command in the background. Its log only grows.
type job struct {
	name string
	show func(name, line string)

	mu        sync.Mutex
	lines     []string
	read      int           // lines[:read] have been compared with lines that the page awaits
	shown     int           // lines[:shown] have been shown or summed up
	allowance int           // so many more lines are shown as they come
	held      bool          // nothing is shown
	done      bool          // there will be no more lines
	status    int           // once done: of a command that ended by itself; -1 for one that was killed
	changed   chan struct{} // closed, and replaced, when lines or done change
}

// hold keeps the screen as it is until release.
func (j *job) hold() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held = true
}

// release shows what came since hold.
func (j *job) release() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held = false
	j.showUpTo(len(j.lines), heldLines)
	j.allowance = logAllowance
}

// sumUp says how many lines were not shown, and renews the allowance.
func (j *job) sumUp() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.showUpTo(len(j.lines), 0)
	j.allowance = logAllowance
}

// showUpTo shows the last lines of lines[shown:end], and says how many came before them.
func (j *job) showUpTo(end, last int) {
	if skipped := end - last - j.shown; skipped > 0 {
		lines := "lines"
		if skipped == 1 {
			lines = "line"
		}
		j.show(j.name, fmt.Sprintf("(%d more %s)", skipped, lines))
		j.shown += skipped
	}
	for ; j.shown < end; j.shown++ {
		j.show(j.name, j.lines[j.shown])
	}
}

type jobEndedError struct{ job *job }

func (e *jobEndedError) Error() string {
	if e.job.status < 0 {
		return e.job.name + " was ended before it logged what the page says"
	}
	return fmt.Sprintf("%s ended by itself, with exit status %d", e.job.name, e.job.status)
}

func (j *job) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
	if j.allowance > 0 && !j.held {
		j.allowance--
		j.showUpTo(len(j.lines), 1)
	}
	j.notify()
}

func (j *job) end(status int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done, j.status = true, status
	if !j.held {
		j.showUpTo(len(j.lines), lastWords)
	}
	j.notify()
}

func (j *job) notify() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// awaitEnd waits until the command and its children have ended, but no longer than limit.
func (j *job) awaitEnd(ctx context.Context, limit time.Duration) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		j.mu.Lock()
		done, changed := j.done, j.changed
		j.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return fmt.Errorf("%s is still running after %s", j.name, limit)
		}
	}
}

// await waits for a line that matches pattern, after those that were awaited before.
func (j *job) await(ctx context.Context, pattern string) error {
	for {
		j.mu.Lock()
		for j.read < len(j.lines) {
			line := j.lines[j.read]
			j.read++
			if matchLine(pattern, line) {
				j.showUpTo(j.read, 1)
				j.mu.Unlock()
				return nil
			}
		}
		done, changed := j.done, j.changed
		j.mu.Unlock()
		if done {
			return &jobEndedError{j}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (j *job) lastLines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return last(j.lines)
}
