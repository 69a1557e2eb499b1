package torture

import (
	"bytes"
	"cmp"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.com/controllers/harness/history"
)

// process is the controller under test. It can be started again after it has ended. It says how it ended; whether that is a
// failure is for others.
type process struct {
	command []string
	env     []string
	ended   func(exit) // is told how the process ended by itself, without being allowed to; must not wait
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
		return fmt.Errorf("start the program: %w", err)
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
		how := exitOf(err, p.log.String()[p.logStart:])
		how.started = started
		p.ended(how)
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
		p.ended(exit{notStarted: err})
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

// stop sends SIGTERM, waits until the program has exited, and returns how it did. ran is false if it did not run.
func (p *process) stop() (how exit, ran bool) {
	cmd, exited := p.signal(syscall.SIGTERM)
	if exited == nil {
		return exit{}, false
	}
	select {
	case <-exited:
	case <-time.After(grace):
		p.kill()
		return exit{late: true}, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	how = exit{state: cmd.ProcessState, output: p.log.String()[p.logStart:], killed: p.killed == cmd}
	return how, true
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

// pid returns the process ID of the program, or 0 if it does not run.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
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
