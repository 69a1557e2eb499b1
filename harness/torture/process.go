package torture

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// controller is the program under test, while it runs and after.
type controller struct {
	command []string
	env     []string
	fail    chan<- string                            // is told that it ended by itself
	excuse  func(status int, started time.Time) bool // says whether it may have, and is to be started again
	started func()                                   // is called before each start; may be nil

	mu      sync.Mutex
	cmd     *exec.Cmd
	ended   chan struct{} // closed when it has
	killed  *exec.Cmd     // the last that we have killed
	leaving bool          // we have asked it to end, or killed it
	log     bytes.Buffer  // of all that were started
	from    int           // where in it the last begins
}

// start starts the program.
func (c *controller) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.startLocked()
}

func (c *controller) startLocked() error {
	if c.cmd != nil {
		return nil
	}
	cmd := exec.Command(c.command[0], c.command[1:]...)
	cmd.Env = c.env
	cmd.Stdout, cmd.Stderr = c, c
	cmd.SysProcAttr = ofOurs()
	cmd.WaitDelay = time.Second // for what it has started, which may have its output
	if c.started != nil {
		c.started()
	}
	started := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the controller: %w", err)
	}
	ended := make(chan struct{})
	c.cmd, c.ended, c.leaving, c.from = cmd, ended, false, c.log.Len()
	go func() {
		err := cmd.Wait()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it may have started
		excused := !c.isLeaving() && c.excuse(cmd.ProcessState.ExitCode(), started)
		c.mu.Lock()
		if !c.leaving && !excused {
			c.sayFailed(died(err, c.log.String()[c.from:]))
		}
		again := excused && !c.leaving
		c.cmd = nil
		close(ended)
		c.mu.Unlock()
		if again {
			time.Sleep(restartAfter)
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.leaving { // we have been told to since
				return
			}
			if err := c.startLocked(); err != nil {
				c.sayFailed(err.Error())
			}
		}
	}()
	return nil
}

// restartAfter is how long a controller that has ended is down. A kubelet takes longer.
const restartAfter = 200 * time.Millisecond

func (c *controller) isLeaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaving
}

func (c *controller) sayFailed(why string) {
	select {
	case c.fail <- why:
	default: // it has been said
	}
}

// Write takes what the program prints.
func (c *controller) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const most = 1 << 20
	if c.log.Len() > most {
		before := c.log.Len()
		tail := bytes.Clone(c.log.Bytes()[c.log.Len()-most/2:])
		c.log.Reset()
		c.from = max(0, c.from-(before-len(tail)))
		c.log.Write(tail)
	}
	return c.log.Write(text)
}

// leave signals the program, and returns a channel that is closed when it has ended; nil if it does not run.
func (c *controller) leave(signal syscall.Signal) (*exec.Cmd, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = true // also where it is about to be started again
	if c.cmd == nil {
		return nil, nil
	}
	if signal == syscall.SIGKILL {
		c.killed = c.cmd
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, signal) // it may have just ended
	return c.cmd, c.ended
}

// kill ends the program as kill -9 does.
func (c *controller) kill() {
	if _, ended := c.leave(syscall.SIGKILL); ended != nil {
		<-ended
	}
}

// grace is how long a program has to end, as the kubelet gives it.
const grace = 30 * time.Second

// stop asks the program to end, and says what is wrong with how it does, or "". status is how it should, or
// -1 for any way.
func (c *controller) stop(status int) string {
	cmd, ended := c.leave(syscall.SIGTERM)
	if ended == nil {
		return ""
	}
	select {
	case <-ended:
	case <-time.After(grace):
		c.kill()
		return fmt.Sprintf("it has not ended %s after SIGTERM", grace)
	}
	c.mu.Lock()
	killed, said := c.killed == cmd, c.log.String()[c.from:]
	c.mu.Unlock()
	if killed { // by us
		return ""
	}
	if is := cmd.ProcessState.ExitCode(); status >= 0 && is != status {
		return fmt.Sprintf("it ends with %s after SIGTERM%s", cmd.ProcessState, lastWords(said))
	}
	return ""
}

// Log returns what the program has printed.
func (c *controller) Log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.String()
}

// died says how a program ended that was not to.
func died(err error, log string) string {
	status := "exit status 0"
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status = exit.String()
	}
	return "it ended by itself, with " + status + lastWords(log)
}

// lastWords are the line of a log that says why, if there is one.
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
	const most = 160
	if len(line) > most {
		return line[:most] + "…"
	}
	return line
}

// isRunning says whether the program runs, and nobody has asked it to end.
func (c *controller) isRunning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cmd != nil && !c.leaving
}

// awaitLeaving waits until somebody has asked the program to end.
func (c *controller) awaitLeaving() {
	for {
		c.mu.Lock()
		leaving := c.leaving || c.cmd == nil
		c.mu.Unlock()
		if leaving {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
