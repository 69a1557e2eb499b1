package torture

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.com/controllers/harness/history"
)

// process is the controller under test. It can be started again after it has ended.
type process struct {
	label   string // names the program if there are several; else ""
	command []string
	env     []string
	died    chan<- *Failure // is sent, without waiting, how the process ended by itself
	// mayExit reports whether a process that was started at this time may have ended by itself with this status. If so,
	// it is started again.
	mayExit  func(status int, started time.Time) bool
	starting func()                              // is called before each start; may be nil
	unslowed func(since time.Time) time.Duration // how long it would be since then with enough processors; may be nil
	downtime time.Duration                       // after an exit, before it is started again; 0 for restartDelay
	note     func(history.ProcessState)          // is told what the process does from now on; may be nil

	off atomic.Bool // the machine that it runs on is off, so it must not be started

	mu       sync.Mutex
	cmd      *exec.Cmd     // what runs; nil for nothing
	exited   chan struct{} // closed when cmd has exited
	stopping bool          // cmd has been sent a signal that should end it
	killed   *exec.Cmd     // the last one that was sent SIGKILL
	starts   []time.Time   // when it was started
	kills    []time.Time   // when SIGKILL was sent
	frozen   chan struct{} // closed when cmd runs again or has exited; nil if cmd is not stopped by freeze
	freezes  []time.Time   // when freeze stopped it
	log      bytes.Buffer  // output of all starts, or the end of it
	left     int           // bytes of output that are not in log any more
	logStart int           // where the output of the last start begins
}

// start starts the program, unless it runs or its machine is off.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.startLocked()
}

func (p *process) startLocked() error {
	if p.cmd != nil || p.off.Load() {
		return nil
	}
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.Env = p.env
	cmd.Stdout, cmd.Stderr = p, p
	cmd.SysProcAttr = childAttributes()
	cmd.WaitDelay = time.Second // its children may hold its output open
	if p.starting != nil {
		p.starting()
	}
	started := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the %s: %w", cmp.Or(p.label, onlyProgram), err)
	}
	exited := make(chan struct{})
	p.cmd, p.exited, p.stopping, p.logStart = cmd, exited, false, p.log.Len()
	p.starts = append(p.starts, started)
	p.noteState(history.Running)
	go p.wait(cmd, exited, started)
	return nil
}

// wait waits until a process has exited, and starts another one if it was allowed to.
func (p *process) wait(cmd *exec.Cmd, exited chan<- struct{}, started time.Time) {
	err := cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its children
	allowed := !p.isStopping() && p.mayExit(cmd.ProcessState.ExitCode(), started)
	p.mu.Lock()
	if !p.stopping && !allowed {
		p.reportDeath(deathOf(err, p.log.String()[p.logStart:]))
	}
	restart := allowed && !p.stopping
	if p.killed != cmd {
		p.noteState(history.Ended)
	}
	p.cmd = nil
	p.thawLocked()
	close(exited)
	p.mu.Unlock()
	if !restart {
		return
	}
	time.Sleep(cmp.Or(p.downtime, restartDelay))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping { // meanwhile
		return
	}
	if err := p.startLocked(); err != nil {
		p.reportDeath(&Failure{Died, "start", err.Error()})
	}
}

// restartDelay is how long a controller that has exited is down. A kubelet takes longer.
const restartDelay = 200 * time.Millisecond

// noteState says what the process does from now on.
func (p *process) noteState(state history.ProcessState) {
	if p.note != nil {
		p.note(state)
	}
}

// stopNoting says nothing any more of what the process does.
func (p *process) stopNoting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note = nil
}

func (p *process) isStopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopping
}

func (p *process) reportDeath(failure *Failure) {
	failure = p.named(failure)
	select {
	case p.died <- failure:
	default: // one is enough
	}
}

// named adds the program's name to a failure.
func (p *process) named(failure *Failure) *Failure {
	if p.label == "" {
		return failure
	}
	return &Failure{failure.Verdict, p.label + ": " + failure.Cause, p.label + ": " + failure.Message}
}

// Write appends the program's output to the log.
func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	const limit = 1 << 20
	if p.log.Len() > limit {
		before := p.log.Len()
		tail := bytes.Clone(p.log.Bytes()[p.log.Len()-limit/2:])
		p.log.Reset()
		p.left += before - len(tail)
		p.logStart = max(0, p.logStart-(before-len(tail)))
		p.log.Write(tail)
	}
	return p.log.Write(text)
}

// signal sends a signal that should end the program. It returns what it was sent to, and a channel that is closed when
// that has exited, or nil if the program does not run.
func (p *process) signal(signal syscall.Signal) (*exec.Cmd, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopping = true // also if it is about to be started again
	if p.cmd == nil {
		return nil, nil
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, signal) // it may have exited just now
	p.thawLocked()                               // a frozen program would not receive SIGTERM
	if signal == syscall.SIGKILL {
		p.killed = p.cmd
		p.kills = append(p.kills, time.Now())
		p.noteState(history.Killed)
	} else {
		p.noteState(history.Stopping)
	}
	return p.cmd, p.exited
}

// kill ends the program with SIGKILL and waits until it has exited.
func (p *process) kill() {
	if _, exited := p.signal(syscall.SIGKILL); exited != nil {
		<-exited
	}
}

// switchOff kills the program with its machine, and keeps it from being started.
func (p *process) switchOff() {
	p.off.Store(true)
	p.kill()
}

// isSwitchedOff reports whether the program's machine is off.
func (p *process) isSwitchedOff() bool { return p.off.Load() }

// switchOn lets the program be started again.
func (p *process) switchOn() { p.off.Store(false) }

// killedSince reports whether what ran at a time was killed until another. A request that was on its way when the program was
// killed may begin, for the proxy, only afterwards.
func (p *process) killedSince(ran, to time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var started time.Time
	for _, at := range p.starts {
		if !at.After(ran) {
			started = at
		}
	}
	return slices.ContainsFunc(p.kills, func(at time.Time) bool { return !at.Before(started) && !at.After(to) })
}

// grace is how long a program has to exit after SIGTERM: a Pod's default terminationGracePeriodSeconds.
const grace = 30 * time.Second

// stop sends SIGTERM, waits until the program has exited, and says what was wrong with that. status is the exit status
// that is right, or -1 for any.
func (p *process) stop(status int) *Failure {
	cmd, exited := p.signal(syscall.SIGTERM)
	if exited == nil {
		return nil
	}
	select {
	case <-exited:
	case <-time.After(grace):
		p.kill()
		return p.named(&Failure{NoStop, "too late", fmt.Sprintf("it has not exited %s after SIGTERM", grace)})
	}
	p.mu.Lock()
	killed, output := p.killed == cmd, p.log.String()[p.logStart:]
	p.mu.Unlock()
	if killed { // by a fault
		return nil
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status >= 0 && ws.Signaled() && ws.Signal() == syscall.SIGTERM {
		return p.named(&Failure{NoStop, "SIGTERM", "it does not handle SIGTERM, which ends it at once; if that may be, put \"stopsWith: -1\" into the scenario"})
	}
	if code := cmd.ProcessState.ExitCode(); status >= 0 && code != status {
		return p.named(&Failure{NoStop, cmd.ProcessState.String(), fmt.Sprintf("it exits with %s after SIGTERM%s", cmd.ProcessState, lastWords(output))})
	}
	return nil
}

// Log returns the program's output, of all its starts.
func (p *process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left > 0 {
		return fmt.Sprintf("… the first %d bytes of the output are left out\n", p.left) + p.log.String()
	}
	return p.log.String()
}

// deathOf says how a program ended by itself. That another program has its port says nothing about it.
func deathOf(err error, output string) *Failure {
	if line := portInUse(output); line != "" {
		return &Failure{Verdict: NotRun, Message: "it exited because another program has its port: " + shorten(line) +
			"; runs at the same time need different ports: put {port} in place of the port in its arguments, or use --parallel 1"}
	}
	status := "exit status 0"
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status = exit.String()
	}
	why := lastWords(output)
	return &Failure{Died, status + causeOfOutput(why), "it exited by itself, with " + status + why}
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

// isRunning reports whether the program runs and has not been told to end.
func (p *process) isRunning() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil && !p.stopping
}

// awaitStopping waits until the program has been told to end, or does not run.
func (p *process) awaitStopping() {
	for {
		p.mu.Lock()
		stopping := p.stopping || p.cmd == nil
		p.mu.Unlock()
		if stopping {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
