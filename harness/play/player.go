package play

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"example.com/controllers/harness/environ"
)

// Player plays pages.
type Player struct {
	// Out is where the page is shown.
	Out io.Writer
	// Env is added to the environment of the page's commands. Of this process's environment they get only what programs
	// need to run on this machine, and the variables that the page names: see package environ.
	Env []string
	// Scratch is a directory for the player's files. The caller makes and removes it; the guard removes it if this
	// process is killed.
	Scratch string
	// Pause, if set, waits for the reader. It is called before each command, and before prose would scroll off the
	// screen; a prompt has been shown then. It returns [ErrQuit] to end the page there, [ErrHurry] to go on without any
	// more pauses, and [ErrAgain] to be called once more, after it has used the screen itself.
	Pause func(context.Context) error
	// Keys is what a prompt says after its first words, such as " · q: quit", about what else the reader may type.
	Keys string
	// Limit is how long a command, or the wait for a line of a log, may take: five minutes if it is 0.
	// It is meant to end pages that hang, and is longer than a slow machine needs.
	Limit time.Duration
	// Grace is how long a background command may take to end after SIGTERM: one minute if it is 0. The lessons' controllers
	// may take their own --grace for it, which is 10 seconds, and longer on a slow machine.
	Grace time.Duration
	// Typed, if set, is told of each command when it begins.
	Typed func(command string)
	// Ran, if set, is told when a background command of this name has been started, and when it has ended. It may be called by
	// several goroutines at a time.
	Ran func(name string, running bool)

	screen *screen // made when it is first needed
}

// Result sums up what was played.
type Result struct {
	Commands int // commands that were run
	Checked  int // lines of output that matched the page
	Duration time.Duration
}

// MismatchError is returned when a command does something other than what the page says.
type MismatchError struct {
	Where   string // file:line of the command
	Command string
	Reason  string
	Diff    string // see compare; or the last lines of a log
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s: %s\n  $ %s\n%s", e.Where, e.Reason, e.Command, indent(e.Diff))
}

// What [Player.Pause] may return. Only ErrQuit is then returned by [Player.Play].
var (
	ErrQuit  = errors.New("the reader has quit")
	ErrHurry = errors.New("the reader does not want to be waited for any more")
	ErrAgain = errors.New("the reader has done something else")
)

// The prompts of a pause.
const (
	runPrompt  = "Enter: run this"
	readPrompt = "Enter: read on"
)

// Introduce shows what comes before the first command of a page, and takes it off the page: something to read while
// the cluster starts. It shows nothing of a page that is not shown from its beginning.
func (p *Player) Introduce(ctx context.Context, page *Page) error {
	if page.begin > 0 {
		return nil
	}
	screen := p.display()
	for len(page.Parts) > 0 && page.Parts[0].Prose != "" {
		err := screen.prose(page.Dir(), page.Parts[0].Prose, func() error { return p.pause(ctx, readPrompt, nil) })
		if err != nil {
			return err
		}
		page.Parts = page.Parts[1:]
	}
	return nil
}

// pause shows a prompt and waits for the reader. again, if set, shows what the prompt is about once more.
func (p *Player) pause(ctx context.Context, prompt string, again func()) error {
	for p.Pause != nil {
		p.screen.prompt(prompt + p.Keys)
		err := p.Pause(ctx)
		if errors.Is(err, ErrAgain) { // what it has shown stays
			if again != nil {
				again()
			}
			continue
		}
		p.screen.clearPrompt()
		if errors.Is(err, ErrHurry) {
			p.Pause = nil
			return nil
		}
		return err
	}
	return nil
}

// display returns the screen, which is the same for the introduction and the rest.
func (p *Player) display() *screen {
	if p.screen == nil {
		p.screen = newScreen(p.Out, terminalOf(p.Out))
	}
	return p.screen
}

// Play plays a page from top to bottom. When it returns, with or without an error, every process that the page has
// started has ended. The program's main, or TestMain, must call [guard.Main] before anything else.
func (p *Player) Play(ctx context.Context, page *Page) (result Result, err error) {
	start := time.Now()
	defer func() { result.Duration = time.Since(start) }()
	env, err := environ.Isolated(filepath.Join(p.Scratch, "home"), page.Env...)
	if err != nil {
		return result, err
	}
	shell, err := startShell(page.Dir(), p.Scratch, append(env, p.Env...))
	if err != nil {
		return result, err
	}
	p.display()
	run := &playback{Player: *p, page: page, shell: shell, jobs: map[string]*job{}}
	ctx, run.cancel = context.WithCancelCause(ctx)
	defer run.cancel(nil)
	if run.Limit == 0 {
		run.Limit = 5 * time.Minute
	}
	if run.Grace == 0 {
		run.Grace = time.Minute
	}
	err = run.all(ctx, &result)
	if err == nil {
		err = run.stopJobs(ctx)
	}
	return result, errors.Join(err, shell.close())
}

// playback is one page being played.
type playback struct {
	Player
	page  *Page
	shell *shell
	jobs  map[string]*job
	// started counts the background commands. It makes their log files distinct, because several may have the same name.
	started int
	cancel  context.CancelCauseFunc // with a jobEndedError when a job ends by itself
}

func (p *playback) all(ctx context.Context, result *Result) error {
	if before := p.page.commandsBefore(); before > 0 {
		fmt.Fprintf(p.Out, "\nrunning what comes before, without showing it: %d of %d commands\n", before, p.page.Commands())
	}
	p.screen.mute(p.page.begin > 0)
	defer p.screen.mute(false)
	for i, part := range p.page.Parts {
		if i == p.page.begin {
			p.sumUpLogs()
			p.screen.mute(false)
		}
		if part.Prose != "" && i >= p.page.begin {
			p.sumUpLogs()
			err := p.screen.prose(p.page.Dir(), part.Prose, func() error { return p.pause(ctx, readPrompt, nil) })
			if err != nil {
				return err
			}
		}
		for _, step := range part.Steps {
			p.sumUpLogs()
			p.screen.command(step)
			if i >= p.page.begin {
				if err := p.pause(ctx, runPrompt, func() { p.screen.command(step) }); err != nil {
					return err
				}
			}
			if p.Typed != nil {
				p.Typed(step.Command)
			}
			if err := p.step(ctx, step); err != nil {
				return err
			}
			result.Commands++
			result.Checked += len(step.Expect)
		}
	}
	return nil
}

// pause is [Player.pause] without the logs of background commands, which are shown after it.
func (p *playback) pause(ctx context.Context, prompt string, again func()) error {
	if p.Pause == nil {
		return nil
	}
	for _, job := range p.jobs {
		job.hold()
		defer job.release()
	}
	return p.Player.pause(ctx, prompt, again)
}

// sumUpLogs says how many lines of the logs were not shown, and lets the next ones be shown.
func (p *playback) sumUpLogs() {
	for _, job := range p.jobs {
		job.sumUp()
	}
}

// step runs a command, and compares its output and the logs with the page.
func (p *playback) step(ctx context.Context, step Step) error {
	where := fmt.Sprintf("%s:%d", p.page.Path, step.Line)
	fail := func(reason, diff string) error {
		return &MismatchError{Where: where, Command: step.Command, Reason: reason, Diff: diff}
	}
	ctx, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	tooLong := func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

	if step.Background {
		err := p.startJob(ctx, step.Command)
		switch {
		case tooLong(err):
			return fail(fmt.Sprintf("the command has not been started after %s", p.Limit), "")
		case err != nil && errors.Is(err, context.Cause(ctx)): // a job, perhaps this one, has ended by itself, or playing was ended
			return whyEnded(err, fail)
		case err != nil:
			return fail(err.Error(), "")
		}
	}
	var output, logs []string
	for _, line := range step.Expect {
		if name, _, isLog := p.logLine(line); isLog && p.jobs[name] != nil {
			logs = append(logs, line)
		} else {
			output = append(output, line)
		}
	}
	if !step.Background {
		var got []string
		status, err := p.shell.run(ctx, step.Command, func(line string) {
			p.screen.output(line)
			got = append(got, line)
		})
		if tooLong(err) {
			return fail(fmt.Sprintf("the command is still running after %s", p.Limit), strings.Join(last(got), "\n"))
		}
		if err != nil {
			return whyEnded(err, fail)
		}
		if status != 0 {
			p.screen.output(statusLine(status))
		}
		if diff := compareRun(output, got, status); diff != "" {
			reason := "the output is not what the page says (-: page, +: real)"
			if status != 0 {
				reason = fmt.Sprintf("the command failed with exit status %d (-: page, +: real)", status)
			}
			return fail(reason, diff)
		}
	} else if len(output) > 0 {
		return fail("a background command has no output of its own; its log is shown with its name in front", strings.Join(output, "\n"))
	}
	for _, line := range logs {
		name, pattern, _ := p.logLine(line)
		job := p.jobs[name]
		err := job.await(ctx, pattern)
		if tooLong(err) {
			return fail(fmt.Sprintf("the log of %s has no such line after %s", name, p.Limit),
				"- "+line+"\nthe last lines of it:\n"+strings.Join(job.lastLines(), "\n"))
		}
		if err != nil {
			return whyEnded(err, fail)
		}
	}
	return whyEnded(context.Cause(ctx), fail)
}

// whyEnded turns the end of a background command into a failure of the page.
func whyEnded(err error, fail func(reason, diff string) error) error {
	if ended := (*jobEndedError)(nil); errors.As(err, &ended) {
		return fail(ended.Error(), "the last lines of its log:\n"+strings.Join(ended.job.lastLines(), "\n"))
	}
	return err
}

var logLinePattern = regexp.MustCompile(`^([\w.-]+) \| ?(.*)$`)

// logLine splits a line of the form "NAME | TEXT".
func (p *playback) logLine(line string) (name, text string, ok bool) {
	match := logLinePattern.FindStringSubmatch(line)
	if match == nil {
		return "", "", false
	}
	return match[1], match[2], true
}

// startJob starts a command in the background. If the page has killed one of the same name, it waits for the end of that.
func (p *playback) startJob(ctx context.Context, command string) error {
	name := jobName(command)
	if old := p.jobs[name]; old != nil {
		if err := old.awaitEnd(ctx, p.Grace); err != nil {
			return err
		}
	}
	job := &job{name: name, show: p.screen.log, allowance: logAllowance, changed: make(chan struct{})}
	p.started++
	file := fmt.Sprintf("%s-%d", name, p.started)
	p.jobs[name] = job
	ran := p.Ran
	if ran == nil {
		ran = func(string, bool) {}
	}
	ran(name, true)
	return p.shell.background(ctx, file, command,
		job.add,
		func(status int) {
			ran(name, false)
			job.end(status)
			if status >= 0 {
				p.cancel(&jobEndedError{job})
			}
		})
}

// stopJobs ends the background commands at the end of the page.
func (p *playback) stopJobs(ctx context.Context) error {
	if err := p.shell.killJobs(ctx); err != nil {
		return err
	}
	for _, job := range p.jobs {
		if err := job.awaitEnd(ctx, p.Grace); err != nil {
			return fmt.Errorf("the background commands got SIGTERM at the end of the page: %w", err)
		}
	}
	return nil
}

func last(lines []string) []string { return lines[max(0, len(lines)-12):] }

func indent(text string) string {
	if text == "" {
		return ""
	}
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}
