package play

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"example.com/controllers/harness/guard"
)

// shell is a bash that runs the commands of a page one after the other. It runs under a guard (package guard), which ends
// it and everything that it started when the shell is closed, or when this process dies.
type shell struct {
	process  *exec.Cmd      // the guard
	alive    io.WriteCloser // the guard's standard input; closing it ends the session
	commands *os.File       // the bash's file 3: commands, each with a NUL after it
	lines    chan string    // of its standard output and standard error
	mark     string         // begins the line after a command's output, which ends in its exit status
	fifos    string         // directory of the named pipes that background commands write to
	logs     sync.WaitGroup // the goroutines that read these pipes
	pipes    []pipe
}

// driver reads commands from file 3, and prints the mark and the exit status after each. Job control (set -m) gives
// every background command a process group of its own, so that "kill %1" also reaches its children. Like an
// interactive shell, it forgets jobs that have ended before it runs the next command.
const driver = `set -m
while IFS= read -r -d '' __command <&3; do
	jobs >/dev/null
	eval "$__command" 3<&- </dev/null
	printf '\n%s %d\n' "$__mark" $?
done`

// startShell starts a shell in the working directory dir, with env as its whole environment. The guard removes the
// directory scratch if this process is killed.
func startShell(dir, scratch string, env []string) (*shell, error) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		return nil, errors.New("the page's commands need bash, which is not on the PATH; install it")
	}
	s := &shell{lines: make(chan string), mark: string(uuid.NewUUID()), fifos: scratch}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	s.commands = writer

	script := "__mark=" + s.mark + "\n" + driver
	if s.process, err = guard.Command(scratch, bash, "--noprofile", "--norc", "-c", script, "bash"); err != nil {
		return nil, err
	}
	s.process.Dir = dir
	s.process.Env = env
	s.process.ExtraFiles = []*os.File{reader}
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.alive, err = s.process.StdinPipe(); err != nil {
		return nil, err
	}
	output, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.process.Stdout, s.process.Stderr = out, out
	err = s.process.Start()
	out.Close()
	if err != nil {
		return nil, fmt.Errorf("start the page's shell: %w", err)
	}
	go func() {
		defer close(s.lines)
		defer output.Close()
		for reader := bufio.NewReader(output); ; {
			line, err := reader.ReadString('\n')
			if line != "" {
				s.lines <- strings.TrimSuffix(line, "\n")
			}
			if err != nil {
				return
			}
		}
	}()
	return s, nil
}

// run runs a command, calls each with every line of its output as it comes, and returns the exit status.
func (s *shell) run(ctx context.Context, command string, each func(line string)) (status int, err error) {
	if _, err := s.commands.WriteString(command + "\x00"); err != nil {
		return 0, fmt.Errorf("the page's shell has ended: %w", err)
	}
	// The driver prints a line break before the mark. If the output ended in one already, there is an empty line before
	// the mark, which is not the command's.
	empty := false
	for {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case line, ok := <-s.lines:
			if !ok {
				return 0, errors.New("the page's shell has ended; a page's command must not \"exit\"")
			}
			if text, ok := strings.CutPrefix(line, s.mark+" "); ok {
				return strconv.Atoi(text)
			}
			if isNotice(line) {
				continue
			}
			if empty {
				each("")
			}
			if empty = line == ""; !empty {
				each(line)
			}
		}
	}
}

// notice begins a line in which bash reports, at a time of its choice, that a background command was killed.
var notice = regexp.MustCompile(`^(bash: line \d+: |\[\d+\][+-]? )`)

// watchEnded is what client-go logs, in about one of some hundred commands that wait for a condition, if such a command has seen
// what it waited for and cancels its watch while an event arrives.
var watchEnded = regexp.MustCompile(`^[IW]\d{4} .* reflector\.go:\d+\] "Warning: watch ended with error" .*\bcontext canceled\b`)

// isNotice reports whether a line is none of the command's: bash printed it, or client-go on the end of a watch that kubectl no
// longer needed. A line of bash quotes the script that background has wrapped around the command, which has the variable of the
// mark in it.
func isNotice(line string) bool {
	return notice.MatchString(line) && strings.Contains(line, `"$__mark"`) || watchEnded.MatchString(line)
}

// background starts a command in the background, and calls each with every line of its output. After the last one it
// calls done, with the exit status, or with -1 if the command was killed.
func (s *shell) background(ctx context.Context, name, command string, each func(line string), done func(status int)) error {
	fifo := filepath.Join(s.fifos, name+".log")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		return fmt.Errorf("make a pipe for the log of %s: %w", name, err)
	}
	opened := make(chan struct{})
	s.pipes = append(s.pipes, pipe{fifo, opened})
	s.logs.Go(func() {
		status := -1
		defer func() { done(status) }()
		// Open blocks until the command has opened its end; the reads end when its last process has closed it.
		log, err := os.Open(fifo)
		close(opened)
		if err != nil {
			each(err.Error())
			return
		}
		defer log.Close()
		empty := false
		for reader := bufio.NewReader(log); ; {
			line, err := reader.ReadString('\n')
			if err != nil && line == "" {
				return
			}
			line = strings.TrimSuffix(line, "\n")
			if text, ok := strings.CutPrefix(line, s.mark+" "); ok {
				status, _ = strconv.Atoi(text)
				continue
			}
			if empty {
				each("")
			}
			if empty = line == ""; !empty {
				each(line)
			}
		}
	})
	script := fmt.Sprintf("{ %s\nprintf '\\n%%s %%d\\n' \"$__mark\" $?; } >'%s' 2>&1 &", command, fifo)
	var output []string
	status, err := s.run(ctx, script, func(line string) { output = append(output, line) })
	if err == nil && status != 0 {
		err = fmt.Errorf("bash does not accept the command:\n%s", strings.Join(output, "\n"))
	}
	if err != nil {
		pipe{fifo, opened}.unblock()
		return err
	}
	// The page's next command may kill it. If that happened before it has opened its end, the reader would block for ever.
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pipe is a named pipe that a background command writes to.
type pipe struct {
	path   string
	opened chan struct{} // closed when its reader has opened it
}

// unblock ends the reader of a named pipe to which nobody will write. The reader may be about to open it only now.
func (p pipe) unblock() {
	if writer, err := os.OpenFile(p.path, os.O_RDWR, 0); err == nil {
		<-p.opened
		writer.Close()
	}
}

// killJobs sends SIGTERM to all background commands and their children.
func (s *shell) killJobs(ctx context.Context) error {
	_, err := s.run(ctx, `for __job in $(jobs -p); do kill -TERM -- "-$__job"; done 2>/dev/null`, func(string) {})
	return err
}

// daemonsTime is how long the end of a page waits for a log whose pipe is held by a process that has left the shell's session.
// A test makes it shorter.
var daemonsTime = 10 * time.Second

// close ends the shell and everything that it started, and waits until the functions given to background have been called for
// the last time.
func (s *shell) close() error {
	s.commands.Close()
	_, _ = io.WriteString(s.alive, guard.Bye) // the guard may have been killed
	s.alive.Close()
	for range s.lines { // or the goroutine that reads the output would block
	}
	err := s.process.Wait()
	for _, p := range s.pipes {
		p.unblock()
	}
	ended := make(chan struct{})
	go func() {
		s.logs.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(daemonsTime):
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}
