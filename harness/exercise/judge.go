package exercise

import (
	"fmt"
	"regexp"
	"strings"

	"example.com/controllers/harness/exercise/verdict"
)

// asleep is the fatal error if no goroutine can run and none waits for a timer.
const asleep = "all goroutines are asleep"

// notYours ends a message about a mistake of the check.
const notYours = " This is a mistake in the exercise, and says nothing about your code."

// judge combines what the check of the code in dir has written with how its process has ended.
func judge(found verdict.Found, run finished, dir string) (Verdict, string) {
	if found.Failure != "" {
		return Failed, found.Failure
	}
	if found.Passed && run.status == 0 && !run.timedOut {
		return Passed, "" // whatever it has printed
	}
	text := run.output.String()
	if run.timedOut {
		message := fmt.Sprintf("The check did not end within %s.", run.allowed)
		if _, trace, _ := strings.Cut(text, verdict.Quit); isGradersHang(trace, dir) {
			return Broken, message + notYours
		}
		return Hung, message + " Something in the controller never returns, or never waits."
	}
	if match := panicLine.FindStringSubmatchIndex(text); match != nil {
		cause := panicSuffix.ReplaceAllString(text[match[2]:match[3]], "")
		switch {
		case strings.Contains(cause, "blocked goroutines remain"):
			return Failed, "The controller has stopped, but goroutines that it started are still blocked: it leaks them." + aboutLeak(text[match[0]:])
		case strings.Contains(cause, "all goroutines in bubble are blocked"):
			return Hung, "Nothing can happen any more: all goroutines wait for each other."
		}
		if stacks := goroutines(text[match[0]:]); len(stacks) > 0 && judgeStack(stacks[0], dir) == graders {
			return Broken, "The check panicked: " + cause + "." + notYours
		}
		return Panicked, "The controller panicked: " + cause + "."
	}
	if match := fatalLine.FindStringSubmatch(text); match != nil {
		if strings.HasPrefix(match[1], asleep) && mutexWait.MatchString(text) {
			// In synctest, time does not pass while a goroutine waits for a mutex. So this need not be a deadlock in a cluster.
			return Hung, "A goroutine waits for a mutex, and the one that holds it waits too, as during a call. That may work in a cluster, but the check's virtual time stands still meanwhile. Don't hold a mutex during a call."
		}
		if isGradersHang(text, dir) {
			return Broken, "The Go runtime stopped the check: " + match[1] + "." + notYours
		}
		return Panicked, "The Go runtime stopped the controller: " + match[1] + "."
	}
	switch {
	case found.Passed:
		return Failed, fmt.Sprintf("The check passed, but then its program exited with status %d.", run.status)
	case strings.Contains(text, "--- FAIL: TestExercise"):
		return Broken, "The check could not go on: something that it works with is not there, or is not as it was. Either the controller has changed that, or the check has a mistake. Its output says what it was."
	}
	return Exited, fmt.Sprintf("The program exited with status %d before the check was over.", run.status)
}

var (
	panicLine   = regexp.MustCompile(`(?m)^panic: (.*)$`)
	fatalLine   = regexp.MustCompile(`(?m)^fatal error: (.*)$`)
	panicSuffix = regexp.MustCompile(`( \[recovered[^\]]*\])+$`)
	// mutexWait is a goroutine that waits for a mutex, in a stack trace.
	mutexWait = regexp.MustCompile(`(?m)^goroutine \d+ \[sync\.(RW)?Mutex\.`)
)
