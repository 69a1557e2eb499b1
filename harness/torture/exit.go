package torture

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// exit is how a process has ended.
type exit struct {
	state      *os.ProcessState // nil if that is not known
	output     string           // since its start
	killed     bool             // with SIGKILL, by a fault or a step
	late       bool             // it had to be killed, because it did not exit in time after SIGTERM
	started    time.Time        // zero if that is not known
	notStarted error            // why it could not be started; nil if it was
}

// exitOf returns how a process has ended for which Wait returned err.
func exitOf(err error, output string) exit {
	how := exit{output: output}
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		how.state = failed.ProcessState
	}
	return how
}

// mutation matches what client-go's detector says when an object of a cache was changed.
var mutation = regexp.MustCompile(`panic: cache \S+ modified`)

// status says in words how the process has ended.
func (e exit) status() string {
	if e.state == nil {
		return "exit status 0"
	}
	return e.state.String()
}

// byItself judges a process that has ended by itself and should not have. That another program has its port says nothing about it.
func (e exit) byItself() *Failure {
	if e.notStarted != nil {
		return &Failure{Died, "start", e.notStarted.Error()}
	}
	if line := portInUse(e.output); line != "" {
		return &Failure{Verdict: NotRun, Message: "it exited because another program has its port: " + shorten(line) +
			"; runs at the same time need different ports: put {port} in place of the port in its arguments, or use --parallel 1"}
	}
	why := lastWords(e.output)
	message := "it exited by itself, with " + e.status() + why
	if mutation.MatchString(why) {
		message += " (torture has switched on client-go's detector of that, KUBE_CACHE_MUTATION_DETECTOR: the controller has changed an object that its cache shares with others)"
	}
	return &Failure{Died, e.status() + causeOfOutput(why), message}
}

// afterSIGTERM judges a process that was told to stop. status is the exit status that is right, or -1 for any. nil means that nothing
// was wrong with it.
func (e exit) afterSIGTERM(status int) *Failure {
	switch {
	case e.late:
		return &Failure{NoStop, "too late", fmt.Sprintf("it has not exited %s after SIGTERM", grace)}
	case e.killed || e.state == nil || status < 0 || e.state.ExitCode() == status:
		return nil
	}
	if ws, ok := e.state.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGTERM {
		return &Failure{NoStop, "SIGTERM", "it does not handle SIGTERM, which ends it at once; if that may be, put \"stopsWith: -1\" into the scenario"}
	}
	return &Failure{NoStop, e.status(), fmt.Sprintf("it exits with %s after SIGTERM%s", e.status(), lastWords(e.output))}
}

// of adds the name of the program to a failure, which may be nil; "" for the only program.
func (f *Failure) of(program string) *Failure {
	if f == nil || program == "" {
		return f
	}
	return &Failure{f.Verdict, program + ": " + f.Cause, program + ": " + f.Message}
}

// portInUse returns the line among the last ones of the output that says that a port is in use, or "".
func portInUse(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	const last = 20
	for _, line := range lines[max(0, len(lines)-last):] {
		if strings.Contains(strings.ToLower(line), "address already in use") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// lastWords returns ": " and the line of the output that most likely says why the program ended, or "".
func lastWords(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	for _, begin := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE", "F"} {
		for _, line := range lines {
			if strings.HasPrefix(line, begin) && (begin != "F" || len(line) > 5 && line[1] >= '0' && line[1] <= '9') {
				return ": " + shorten(line)
			}
		}
	}
	if last := lines[len(lines)-1]; last != "" {
		return ": " + shorten(last)
	}
	return ""
}

func shorten(line string) string {
	const limit = 160
	if len(line) > limit {
		return line[:limit] + "…"
	}
	return line
}
