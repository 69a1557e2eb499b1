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
	"syscall"

	"k8s.io/apimachinery/pkg/util/uuid"

	"example.com/controllers/harness/guard"
)

// shell is one bash that runs the commands of a page one after the other. It runs under a guard
// (package guard), which ends it and all that it started when we close it, or die.
type shell struct {
	process  *exec.Cmd      // the guard
	alive    io.WriteCloser // the guard's standard input; closing it ends the session
	commands *os.File       // the bash's file 3: commands, each with a NUL after it
	lines    chan string    // of its standard output and standard error
	mark     string         // starts the line that ends a command's output
	fifos    string         // directory of the background commands' pipes
}

// driver reads commands from file 3, and says when each is done and how. Job control gives every
// background command a process group of its own, so that "kill %1" reaches what it started too. Between
// two commands, jobs that have ended are forgotten, as an interactive shell does.
const driver = `set -m
while IFS= read -r -d '' __command <&3; do
	jobs >/dev/null
	eval "$__command" 3<&- </dev/null
	printf '\n%s %d\n' "$__mark" $?
done`

// startShell starts the shell. dir is its working directory; scratch is a directory that the guard removes
// if we are killed.
// env is its whole environment.
func startShell(dir, scratch string, env []string) (*shell, error) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		return nil, errors.New("the page's commands are run by bash, and there is none on the PATH; install it")
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

// run runs a command and hands each line that it prints to each, as it comes. It returns the exit
// status.
func (s *shell) run(ctx context.Context, command string, each func(line string)) (status int, err error) {
	if _, err := s.commands.WriteString(command + "\x00"); err != nil {
		return 0, fmt.Errorf("the page's shell has ended: %w", err)
	}
	// The mark is printed after a line break of its own; the empty line before it, if the output
	// ended in one, is not the command's.
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

// notice begins what bash says, at a moment of its choice, of a background command that was killed.
var notice = regexp.MustCompile(`^(bash: line \d+: |\[\d+\][+-]? )`)

// isNotice says whether a line is such a word. It quotes what background has wrapped around the command.
func isNotice(line string) bool {
	return notice.MatchString(line) && strings.Contains(line, `"$__mark"`)
}

// background starts a command in the background. Each line of its output goes to each; when all of
// it is there, done is called with the exit status if it ended by itself, or with -1 if it was killed.
func (s *shell) background(ctx context.Context, name, command string, each func(line string), done func(status int)) error {
	fifo := filepath.Join(s.fifos, name+".log")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		return fmt.Errorf("make a pipe for the log of %s: %w", name, err)
	}
	opened := make(chan struct{})
	go func() {
		status := -1
		defer func() { done(status) }()
		// Until the command opens its end, and then until the last of its processes closes it.
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
	}()
	script := fmt.Sprintf("{ %s\nprintf '\\n%%s %%d\\n' \"$__mark\" $?; } >'%s' 2>&1 &", command, fifo)
	var said []string
	status, err := s.run(ctx, script, func(line string) { said = append(said, line) })
	if err == nil && status != 0 {
		err = fmt.Errorf("bash does not take the command:\n%s", strings.Join(said, "\n"))
	}
	if err != nil {
		// Nobody will write to the pipe; this ends the wait for it.
		if writer, openErr := os.OpenFile(fifo, os.O_RDWR, 0); openErr == nil {
			writer.Close()
		}
		return err
	}
	// A page may go on to kill it at once. If it were killed before it has opened its end, nobody ever would.
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// killJobs asks all background commands, and what they started, to end.
func (s *shell) killJobs(ctx context.Context) error {
	_, err := s.run(ctx, `for __job in $(jobs -p); do kill -TERM -- "-$__job"; done 2>/dev/null`, func(string) {})
	return err
}

// close ends the shell and everything that it started.
func (s *shell) close() error {
	s.commands.Close()
	_, _ = io.WriteString(s.alive, guard.Bye) // the guard may have been killed
	s.alive.Close()
	for range s.lines { // so that nobody blocks on writing them
	}
	if err := s.process.Wait(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return err
		}
	}
	return nil
}
