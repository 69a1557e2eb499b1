package exercise

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// blame says whose code a stack trace speaks of.
type blame int

const (
	nobodys blame = iota // only of the Go runtime's and of libraries'
	learners
	graders // of the check's, or of the world's in which it runs
)

// judgeStack finds out who is to blame for what the first goroutine of a trace did: the first function that is the participant's
// or the grader's, from the place where it happened. dir is the directory of the participant's code.
func judgeStack(goroutine, dir string) blame {
	for _, place := range sourcePlace.FindAllStringSubmatch(goroutine, -1) {
		if who := ownerOf(place[1], dir); who != nobodys {
			return who
		}
	}
	return nobodys
}

// ownerOf returns whose a source file is.
func ownerOf(place, dir string) blame {
	file, _, _ := strings.Cut(filepath.ToSlash(place), ".go:")
	file += ".go"
	switch own := "/" + filepath.Base(dir) + "/"; {
	case plumbing.MatchString(file):
		return nobodys
	case strings.HasSuffix(file, "/"+graderFile), strings.HasSuffix(file, "/"+graderInProof), strings.Contains(file, "harness/"), strings.Contains(file, "exercises/internal/"):
		return graders
	case strings.Contains(file, own):
		return learners
	}
	return nobodys
}

// graderInProof is the name of the grader in the module in which the exercises are proved.
const graderInProof = "grader.go"

// plumbing is at the bottom of every stack of a check.
var plumbing = regexp.MustCompile(`harness/exercise/check/check\.go$`)

// goroutines returns the goroutines of a trace, each with its heading.
func goroutines(trace string) []string {
	var all []string
	for _, place := range goroutineHeading.FindAllStringIndex(trace, -1) {
		text := trace[place[0]:]
		if end := strings.Index(text, "\n\n"); end >= 0 {
			text = text[:end]
		}
		text, _, _ = strings.Cut(text, "\ncreated by ")
		all = append(all, text)
	}
	return all
}

var (
	sourcePlace      = regexp.MustCompile(`(?m)^\t(\S+:\d+)`)
	goroutineHeading = regexp.MustCompile(`(?m)^goroutine \d+ .*:$`)
	// idle is a goroutine that waits for something that only virtual time, or another goroutine of its bubble, can bring.
	idle = regexp.MustCompile(`^goroutine \d+ .*\[[^\]]*\(durable\)|^goroutine \d+ .*\[(sleep|synctest\.Wait|synctest\.Run)`)
)

// busyGoroutine returns the first goroutine of the participant's that is not idle; "" if there is none.
func busyGoroutine(trace, dir string) string {
	for _, goroutine := range goroutines(trace) {
		if !idle.MatchString(goroutine) && judgeStack(goroutine, dir) == learners {
			return goroutine
		}
	}
	return ""
}

// isGradersHang reports whether, by the stacks of all goroutines, it is the grader that keeps a check from ending.
func isGradersHang(trace, dir string) bool {
	return busyGoroutine(trace, dir) == "" && slices.ContainsFunc(goroutines(trace), func(goroutine string) bool {
		return !idle.MatchString(goroutine) && judgeStack(goroutine, dir) == graders
	})
}

// aboutLeak explains, by the stacks of the goroutines that are left, a leak that is not to be seen in the participant's code.
func aboutLeak(trace string) string {
	found := false
	for _, goroutine := range goroutines(trace) {
		if !idle.MatchString(goroutine) {
			continue
		}
		if !strings.Contains(goroutine, "workqueue.(*delayingType[...]).waitingLoop(") {
			return ""
		}
		found = true
	}
	if !found {
		return ""
	}
	return " What is left is a work queue's own goroutine: ShutDown ends it, and ShutDownWithDrain alone does not."
}
