package torture

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"example.com/controllers/harness/history"
)

// script is a controller that is a shell script.
type script struct {
	*process
	t      *testing.T
	failed chan *Failure
	asked  atomic.Int64 // how often it was asked whether it is asked
	status atomic.Int64 // the last that was asked about
}

// shell starts a script. allow says of the number of an end, from 1, whether it is asked; nil: none is.
func shell(t *testing.T, allow func(number int64) bool, text string) *script {
	t.Helper()
	p := unstarted(t, allow, text)
	require.NoError(t, p.start())
	t.Cleanup(p.kill)
	return p
}

// unstarted is shell without the start.
func unstarted(t *testing.T, allow func(number int64) bool, text string) *script {
	t.Helper()
	p, begin := &script{t: t, failed: make(chan *Failure, 1)}, time.Now()
	p.process = &process{
		command: []string{"/bin/sh", "-c", text}, env: append(os.Environ(), "DIR="+t.TempDir()), ended: p.reports,
		mayExit: func(status int, started time.Time) bool {
			require.WithinRange(t, started, begin, time.Now())
			p.status.Store(int64(status))
			number := p.asked.Add(1)
			return allow != nil && allow(number)
		},
	}
	return p
}

// reports keeps what is said of the first end.
func (p *script) reports(how exit) {
	select {
	case p.failed <- how.byItself():
	default:
	}
}

// stop stops it, and returns what was wrong with that.
func (p *script) stop(status int) *Failure { return (&program{process: p.process}).end(status) }

// says waits until the program has printed something.
func (p *script) says(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.Log(), text) }, hangs, time.Millisecond, text)
}

// fails waits until the program has ended by itself, and returns what is said of it.
func (p *script) fails() string {
	p.t.Helper()
	select {
	case failure := <-p.failed:
		return failure.Message
	case <-time.After(hangs):
		require.FailNow(p.t, "it does not end")
		return ""
	}
}

// hasNotFailed says that nothing was said of it.
func (p *script) hasNotFailed() {
	p.t.Helper()
	select {
	case failure := <-p.failed:
		require.Fail(p.t, failure.Error())
	default:
	}
}

// waits is the end of a script that has to be ended. What the shell says of its own is not wanted.
const waits = "echo ready; exec 2>/dev/null; while :; do sleep 0.01; done"

func TestAProgramThatEndsByItself(t *testing.T) {
	const ended = "it exited by itself, with "
	for name, c := range map[string]struct{ script, want string }{
		"well":            {"exit 0", ended + "exit status 0"},
		"with a status":   {"exit 3", ended + "exit status 3"},
		"by a signal":     {"kill -9 $$", ended + "signal: killed"},
		"with last words": {"echo first; echo; echo 'no such host' >&2; echo; exit 1", ended + "exit status 1: no such host"},
		"with a panic": {"echo starting; echo 'panic: assignment to entry in nil map'; echo; echo 'goroutine 1 [running]:'; exit 2",
			ended + "exit status 2: panic: assignment to entry in nil map"},
		"with an object of its cache changed": {"echo 'panic: cache *v1.Node modified'; exit 2",
			ended + "exit status 2: panic: cache *v1.Node modified (torture has switched on client-go's detector of that, KUBE_CACHE_MUTATION_DETECTOR: the controller has changed an object that its cache shares with others)"},
		"with spaces around": {"printf '\\n\\n  no  \\n\\n'; exit 1", ended + "exit status 1: no"},
	} {
		t.Run(name, func(t *testing.T) {
			p := shell(t, nil, c.script)
			require.Equal(t, c.want, p.fails())
			require.Equal(t, int64(1), p.asked.Load())
			p.awaitStopping() // it has ended
			require.Nil(t, p.stop(0), "what has ended need not be stopped")
			p.kill()
		})
	}
}

// What a program says of its port is about this machine, not about the program.
func TestAPortThatIsInUse(t *testing.T) {
	const line = "listen tcp :8080: bind: address already in use"
	p := shell(t, nil, "echo starting; echo '"+line+"'; echo bye; exit 1")
	select {
	case failure := <-p.failed:
		require.Equal(t, NotRun, failure.Verdict)
		require.Contains(t, failure.Message, "it exited because another program has its port: "+line)
		require.Contains(t, failure.Message, "put {port} in place of the port in its arguments, or use --parallel 1")
	case <-time.After(hangs):
		require.FailNow(t, "it does not end")
	}
	require.Equal(t, Died, exitOf(nil, line+strings.Repeat("\nIt goes on.", 100)).byItself().Verdict, "it did not exit because of that")
}

func TestAProgramThatIsNone(t *testing.T) {
	c := &process{command: []string{filepath.Join(t.TempDir(), "missing")}}
	require.ErrorContains(t, c.start(), "start the program: ")
	require.Nil(t, (&program{process: c}).end(0))
}

func TestLastWords(t *testing.T) {
	const panics, races, exits = "panic: no", "WARNING: DATA RACE", "F0102 03:04:05.678 1 main.go:7] no"
	long := strings.Repeat("0123456789", 20)
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"none":                        {nil, ""},
		"empty ones":                  {[]string{"", "  ", ""}, ""},
		"the last":                    {[]string{"a", "b", ""}, ": b"},
		"a panic":                     {[]string{"a", panics, "goroutine 1"}, ": panic: no"},
		"the first panic":             {[]string{panics, "panic: again"}, ": panic: no"},
		"a panic in the line":         {[]string{"a panic: no", "b"}, ": b"},
		"an error of Go":              {[]string{"fatal error: all goroutines are asleep - deadlock!", "goroutine 1"}, ": fatal error: all goroutines are asleep - deadlock!"},
		"a race":                      {[]string{"====", races, "Write at"}, ": " + races},
		"klog's last":                 {[]string{"I0102 a", exits, "goroutine 1"}, ": " + exits},
		"no klog":                     {[]string{"Finished", "F", "b"}, ": b"},
		"a panic after a race":        {[]string{races, panics, "b"}, ": " + panics},
		"a race after klog's last":    {[]string{exits, races, "b"}, ": " + races},
		"a fatal error after a race":  {[]string{races, "fatal error: no", "b"}, ": fatal error: no"},
		"long ones":                   {[]string{long}, ": " + long[:160] + "…"},
		"those that are not too long": {[]string{long[:160]}, ": " + long[:160]},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, lastWords(strings.Join(c.lines, "\n"))) })
	}
	require.Equal(t, "it exited by itself, with exit status 0: a", exitOf(nil, "a").byItself().Message)
	require.Equal(t, "it exited by itself, with exit status 0", exitOf(errors.New("no such pipe"), "").byItself().Message)
}

func TestStop(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		status int
		want   string
	}{
		"as it should":                {"trap 'exit 0' TERM;" + waits, 0, ""},
		"with the status that it has": {"trap 'exit 3' TERM;" + waits, 3, ""},
		"with another status":         {"trap 'echo cannot stop; exit 3' TERM;" + waits, 0, "it exits with exit status 3 after SIGTERM: cannot stop"},
		"with 0, and should not":      {"trap 'exit 0' TERM;" + waits, 143, "it exits with exit status 0 after SIGTERM: ready"},
		"by the signal":               {waits, 0, "it does not handle SIGTERM, which ends it at once; if that may be, put \"stopsWith: -1\" into the scenario"},
		"by the signal, as it may":    {waits, -1, ""},
		"in any way":                  {"trap 'exit 3' TERM;" + waits, -1, ""},
		"with a panic": {"trap 'echo panic: no; echo goroutine 1; exit 2' TERM;" + waits, 0,
			"it exits with exit status 2 after SIGTERM: panic: no"},
		"after a while": {"trap 'sleep 0.1; echo done; exit 0' TERM;" + waits, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := shell(t, func(int64) bool { t.Error("it did not end by itself"); return false }, c.script)
			p.says("ready")
			message := ""
			if failure := p.stop(c.status); failure != nil {
				require.Equal(t, NoStop, failure.Verdict)
				message = failure.Message
			}
			require.Equal(t, c.want, message)
			require.Empty(t, p.stop(c.status), "it is stopped")
			p.hasNotFailed()
		})
	}
}

func TestStopWaits(t *testing.T) {
	p := shell(t, nil, "trap 'sleep 0.1; echo done; exit 0' TERM;"+waits)
	p.says("ready")
	require.Nil(t, p.stop(0))
	require.Contains(t, p.Log(), "done")
}

func TestKill(t *testing.T) {
	p := shell(t, nil, "trap '' TERM;"+waits)
	p.says("ready")
	p.kill()
	p.kill()
	require.Zero(t, p.asked.Load())
	p.hasNotFailed()
}

// It is the same program with another process, and its log goes on.
func TestStartAfterAnEnd(t *testing.T) {
	for name, end := range map[string]func(p *script){
		"kill": func(p *script) { p.kill() },
		"stop": func(p *script) { require.Nil(p.t, p.stop(0)) },
	} {
		t.Run(name, func(t *testing.T) {
			p := shell(t, nil, "trap 'exit 0' TERM; [ -e $DIR/was ] && echo again; touch $DIR/was;"+waits)
			p.says("ready")
			require.NoError(t, p.start(), "it runs")
			end(p)
			require.Equal(t, "ready\n", p.Log())
			require.NoError(t, p.start())
			p.says("ready\nagain\nready\n")
			require.Nil(t, p.stop(0))
			p.hasNotFailed()
		})
	}
}

// A program that may end is started again.
func TestAnEndThatIsExcused(t *testing.T) {
	p := shell(t, func(int64) bool { return true },
		"[ -e $DIR/was ] || { touch $DIR/was; echo first; exit 7; }; trap 'exit 0' TERM; echo second;"+waits)
	p.says("first\nsecond\nready")
	require.Equal(t, int64(7), p.status.Load())
	require.Equal(t, int64(1), p.asked.Load())
	require.Nil(t, p.stop(0))
	p.hasNotFailed()
}

func TestAnEndThatIsNotExcusedAnyMore(t *testing.T) {
	p := shell(t, func(number int64) bool { return number <= 2 }, "echo no; exit 7")
	require.Equal(t, "it exited by itself, with exit status 7: no", p.fails())
	require.Equal(t, "no\nno\nno\n", p.Log())
	require.Equal(t, int64(3), p.asked.Load())
}

// What cannot be started again has failed.
func TestAnExcuseOfNoUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\nrm \"$0\"\nexit 1\n"), 0o700))
	p := &script{t: t, failed: make(chan *Failure, 1)}
	p.process = &process{command: []string{file}, ended: p.reports, mayExit: func(int, time.Time) bool { return true }}
	require.NoError(t, p.start())
	require.Contains(t, p.fails(), "start the program: ")
}

// Whoever stops it means it, also in the moment in which it is down.
func TestAnExcusedProgramThatIsStopped(t *testing.T) {
	for name, end := range map[string]func(p *script){
		"kill": func(p *script) { p.kill() },
		"stop": func(p *script) { require.Nil(p.t, p.stop(0)) },
	} {
		t.Run(name, func(t *testing.T) {
			const downtime = 2 * time.Second // in which it must be ended
			p := unstarted(t, func(int64) bool { return true }, "[ -e $DIR/was ] || { touch $DIR/was; exit 7; };"+waits)
			p.downtime = downtime
			require.NoError(t, p.start())
			t.Cleanup(p.kill)
			p.awaitStopping() // it has ended
			require.Equal(t, int64(1), p.asked.Load())
			end(p)
			require.Never(t, func() bool { return strings.Contains(p.Log(), "ready") }, downtime+2*restartDelay, restartDelay/10)
		})
	}
}

// What one life has said does not explain the end of another.
func TestLastWordsAreOfTheLastLife(t *testing.T) {
	p := shell(t, func(number int64) bool { return number == 1 },
		"[ -e $DIR/was ] || { touch $DIR/was; echo F0102 no API server; exit 255; }; echo something else; exit 1")
	require.Equal(t, "it exited by itself, with exit status 1: something else", p.fails())
}

// A kill is ours, whoever waits for the program to end by itself.
func TestKilledWhileItStops(t *testing.T) {
	p := shell(t, nil, "trap '' TERM;"+waits)
	p.says("ready")
	wrong := make(chan *Failure, 1)
	go func() { wrong <- p.stop(0) }()
	p.awaitStopping()
	p.kill()
	require.Nil(t, <-wrong)
}

// One report of a failure is enough, and nobody waits for who reads it.
func TestFailuresDoNotBlock(t *testing.T) {
	p := shell(t, nil, "echo $(cat $DIR/was); echo again >$DIR/was; exit 1")
	p.awaitStopping()
	require.NoError(t, p.start())
	p.awaitStopping()
	require.Equal(t, int64(2), p.asked.Load())
	p.fails()
	p.hasNotFailed()
}

// What a program has started ends with it.
func TestChildren(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		end    func(p *script)
	}{
		"by itself": {"sleep 1000 >$DIR/fifo 2>&1 & echo ready; read line <$DIR/wait; exit 0", func(p *script) {
			wait, err := os.OpenFile(filepath.Join(p.dir(), "wait"), os.O_WRONLY, 0)
			require.NoError(p.t, err)
			require.NoError(p.t, wait.Close())
			p.fails()
		}},
		"by a kill": {"sleep 1000 >$DIR/fifo 2>&1 &" + waits, func(p *script) { p.kill() }},
		"by a stop": {"(trap '' TERM; sleep 1000) >$DIR/fifo 2>&1 &" + waits, func(p *script) { require.Empty(p.t, p.stop(-1)) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, fifo := range []string{"fifo", "wait"} {
				require.NoError(t, unix.Mkfifo(filepath.Join(dir, fifo), 0o600))
			}
			p := shell(t, nil, "DIR="+dir+"; "+c.script)
			p.env = append(p.env, "DIR="+dir) // for dir
			lives, err := os.Open(filepath.Join(dir, "fifo"))
			require.NoError(t, err)
			defer lives.Close()
			p.says("ready")
			c.end(p)
			require.NoError(t, lives.SetReadDeadline(time.Now().Add(hangs)))
			n, err := lives.Read(make([]byte, 1))
			require.Zero(t, n)
			require.ErrorContains(t, err, "EOF", "the child has ended")
		})
	}
}

// dir is $DIR.
func (p *script) dir() string {
	return strings.TrimPrefix(p.env[len(p.env)-1], "DIR=")
}

// A child that lives on, and could print something, does not hide that the program has ended.
func TestAChildThatCouldPrint(t *testing.T) {
	p := shell(t, nil, "sleep 1000 & echo ready; exit 3")
	p.says("ready")
	select {
	case why := <-p.failed:
		require.Equal(t, "it exited by itself, with exit status 3: ready", why.Message)
	case <-time.After(hangs):
		require.Fail(t, "it is not noticed")
	}
}

// Of a program that prints without end, the end is kept.
func TestLog(t *testing.T) {
	c := &process{}
	line := strings.Repeat("x", 1<<16) + "\n"
	for range 40 {
		n, err := c.Write([]byte(line))
		require.NoError(t, err)
		require.Equal(t, len(line), n)
	}
	_, err := c.Write([]byte("the end"))
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(c.Log(), line+"the end"))
	require.Less(t, len(c.Log()), 1<<20+2*len(line))
	require.Greater(t, len(c.Log()), 1<<19)
	first, rest, _ := strings.Cut(c.Log(), "\n")
	require.Equal(t, fmt.Sprintf("… the first %d bytes of the output are left out", 40*len(line)+len("the end")-len(rest)), first)
}

func TestEnvironment(t *testing.T) {
	t.Setenv("SHOP", "open")
	p := &script{t: t, failed: make(chan *Failure, 1)}
	p.process = &process{command: []string{"/bin/sh", "-c", "echo [$SHOP] $GIVEN"}, env: []string{"GIVEN=yes"},
		ended: p.reports, mayExit: func(int, time.Time) bool { return false }}
	require.NoError(t, p.start())
	require.Equal(t, "it exited by itself, with exit status 0: [] yes", p.fails())
}

func TestLookUp(t *testing.T) {
	sh, err := exec.LookPath("sh")
	require.NoError(t, err)
	command, err := lookUp([]string{"sh", "-c", "true"})
	require.NoError(t, err)
	require.Equal(t, []string{sh, "-c", "true"}, command)
	_, err = lookUp([]string{"there-is-no-such-controller"})
	require.ErrorContains(t, err, "the controller: ")
	require.ErrorIs(t, err, exec.ErrNotFound)
}

// Any number may start, stop and kill it at a time.
func TestAllAtOnce(t *testing.T) {
	p := shell(t, func(int64) bool { return false }, "trap 'exit 0' TERM;"+waits)
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			switch i % 3 {
			case 0:
				_ = p.start()
			case 1:
				p.kill()
			default:
				_ = p.Log()
			}
		})
	}
	all.Wait()
	p.kill()
	p.hasNotFailed()
}

// A fault that stops or kills a program which is ending already, such as one at the release of its Lease, changes nothing else:
// many programs exit at once, with an error, when they get a second signal.
func TestAFaultWhileTheProgramEnds(t *testing.T) {
	for name, fault := range map[string]func(*run, *program){
		"stop": func(r *run, p *program) { require.False(t, r.stopAndRestart(p)); r.stops.Wait() },
		"kill": func(r *run, p *program) { r.killAndRestart(p) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(&world{subject: &subject{scenario: &Scenario{}}})
			p := shell(t, nil, drains)
			p.says("ready")
			stopped := make(chan *Failure)
			go func() { stopped <- p.stop(0) }()
			p.says("told")
			fault(r, &program{process: p.process})
			p.drained()
			require.Nil(t, <-stopped)
			require.False(t, p.isRunning(), "it is not started again")
			require.Equal(t, 1, strings.Count(p.Log(), "ready"))
		})
	}
}

// drains is a script that prints "told" at SIGTERM, exits with 0 after [script.drained], and with 1 at a second SIGTERM.
const drains = `trap 'trap "exit 1" TERM; echo told; until [ -e "$DIR/go" ]; do sleep 0.01; done; exit 0' TERM; ` + waits

// drained lets a script that drains exit.
func (p *script) drained() {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(filepath.Join(p.dir(), "go"), nil, 0o600))
}

// What a step has ended stays down, even if a fault has told it to stop before, and was to start it again.
func TestAStepEndsAProgramThatAFaultHasStopped(t *testing.T) {
	for name, action := range map[string]Action{"stop": {Stop: "controller"}, "kill": {Kill: "controller"}} {
		t.Run(name, func(t *testing.T) {
			r := recorded(&Scenario{})
			p := shell(t, nil, drains)
			p.says("ready")
			r.programs = []*program{{instance: instance{name: "controller"}, process: p.process}}
			require.True(t, r.stopAndRestart(r.programs[0]))
			p.says("told")
			if action.Stop != "" { // the step waits until it has exited
				p.drained()
			}
			_, err := r.tryAction(t.Context(), action, nil)
			require.NoError(t, err)
			p.drained()
			r.stops.Wait()
			require.False(t, p.isRunning(), "the fault has started it again")
			require.Nil(t, r.stopPrograms())
			require.Equal(t, 1, strings.Count(p.Log(), "told"))
		})
	}
}

// A step stops the replicas one after the other. A fault leaves alone those that wait for their turn.
func TestAFaultAtAReplicaThatAStepIsAboutToStop(t *testing.T) {
	for name, fault := range map[string]func(*run, *program){
		"stop": func(r *run, p *program) { require.False(t, r.stopAndRestart(p)) },
		"kill": (*run).killAndRestart,
	} {
		t.Run(name, func(t *testing.T) {
			r := recorded(&Scenario{})
			r.programs = nil
			var replicas []*script
			for i := range 2 {
				p := shell(t, nil, drains)
				p.says("ready")
				replicas = append(replicas, p)
				r.programs = append(r.programs, &program{instance: instance{name: fmt.Sprint("controller-", i+1), program: "controller"}, process: p.process})
			}
			stopped := make(chan error)
			go func() {
				_, err := r.tryAction(t.Context(), Action{Stop: "controller"}, nil)
				stopped <- err
			}()
			replicas[0].says("told")
			fault(r, r.programs[1])
			replicas[1].drained()
			replicas[0].drained()
			require.NoError(t, <-stopped)
			r.stops.Wait()
			require.False(t, replicas[1].isRunning(), "the fault has started it again")
			require.Nil(t, r.stopPrograms())
			require.LessOrEqual(t, strings.Count(replicas[1].Log(), "told"), 1)
		})
	}
}

// What is drawn of a process is what was done to it.
func TestWhatAProcessDoesIsNoted(t *testing.T) {
	p := unstarted(t, func(int64) bool { return false }, exitsOnTERM)
	var noted []history.ProcessState // with p.mu
	p.note = func(state history.ProcessState) { noted = append(noted, state) }
	states := func() []history.ProcessState {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.Clone(noted)
	}
	t.Cleanup(p.kill)
	require.NoError(t, p.start())
	p.says("ready")
	p.freeze(t.Context(), time.Millisecond)
	require.Nil(t, p.stop(0))
	require.NoError(t, p.start())
	p.kill()
	require.Equal(t, []history.ProcessState{
		history.Running, history.Frozen, history.Running, history.Stopping, history.Ended, history.Running, history.Killed,
	}, states())
	p.command = []string{"/bin/sh", "-c", "exit 3"}
	require.NoError(t, p.start())
	p.fails()
	require.Equal(t, []history.ProcessState{history.Running, history.Ended}, states()[7:])
}
