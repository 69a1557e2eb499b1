package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/history"
)

// TestMain runs the program itself if SCORE_TEST_MAIN is set.
func TestMain(m *testing.M) {
	if os.Getenv("SCORE_TEST_MAIN") != "" {
		main()
		return
	}
	guard.Main()
	os.Exit(m.Run())
}

// Checks the claims of the pages with a small measurement.
func TestClaims(t *testing.T) {
	t.Parallel()
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	o := options{pods: 3, changes: 2, quiet: 3 * time.Second, growth: sizes{3, 30}, window: 4 * time.Second}
	var progress bytes.Buffer
	r, err := measure(t.Context(), o, root, &progress)
	require.NoError(t, err, "%s", &progress)
	t.Log(markdown(r))
	require.Contains(t, progress.String(), "change during a restart: 1. A loop")

	const changes, starts = 2 + 2, 2
	for _, s := range r.Lessons {
		require.Equal(t, changes, s.Changes, s.Title)
		require.Equal(t, 3*changes, s.Old, "%s: Pods that had to be replaced", s.Title)
		require.Len(t, s.Times, o.changes, "%s: it does the job when nothing goes wrong", s.Title)
		for _, took := range s.Times {
			require.Positive(t, took, s.Title)
		}
		require.Equal(t, 1, s.FailedWrites, "%s: the deletion that was refused", s.Title)
		require.Zero(t, s.NoOps, s.Title)
		require.Len(t, s.Growth, 2, s.Title)
	}
	loop, informer, queue := r.Lessons[0], r.Lessons[1], r.Lessons[2]

	require.Zero(t, loop.Lost, "lesson 1 loses nothing")
	require.Equal(t, loop.Old, loop.Writes-loop.FailedWrites)
	require.Positive(t, loop.Rest.Requests, "and pays for every pass")
	perRequest := func(p point) float64 { return p.Rest.KB / p.Rest.Requests }
	require.Greater(t, perRequest(loop.Growth[1]), perRequest(loop.Growth[0]), "whose cost grows with the number of Pods")

	require.Equal(t, 2, informer.Lost, "lesson 2 loses what fails, and what happens while it is down")
	require.Equal(t, informer.Old-1-3, informer.Replaced)

	require.Zero(t, queue.Lost, "lesson 3 loses nothing")
	require.Equal(t, queue.Old, queue.Replaced)
	require.Equal(t, queue.Old, queue.Writes-queue.FailedWrites, "and deletes each Pod once")
	require.Zero(t, queue.EventWrites)

	for _, s := range []score{informer, queue} {
		require.Zero(t, s.Rest.Requests, "%s makes no requests while idle", s.Title)
		require.Equal(t, starts, count(s.Costs, "watch", "pods"), s.Title)
		require.Equal(t, starts, count(s.Costs, "watch", "configmaps"), s.Title)
		require.Equal(t, 2*starts, s.requests("watch"), s.Title)
		require.Zero(t, s.requests("list"), s.Title)
		for _, p := range s.Growth {
			require.Zero(t, p.Rest.Requests, "%s makes no requests while idle, with %d Pods", s.Title, p.Pods)
			require.Equal(t, 1, count(p.Costs, "watch", "pods"), s.Title)
			require.Equal(t, 1, count(p.Costs, "watch", "configmaps"), s.Title)
			require.Equal(t, 3, count(p.Costs, "", ""), "%s: two watches, and a get of the namespace", s.Title)
		}
	}
}

// count counts requests of a verb and a resource, "" for any.
func count(costs []history.Cost, verb, resource string) (requests int) {
	for _, c := range costs {
		if (verb == "" || c.Verb == verb) && (resource == "" || c.Resource == resource) {
			requests += c.Requests
		}
	}
	return requests
}

// program returns a command that runs the program.
func program(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(append(os.Environ(), "SCORE_TEST_MAIN=1"), env...)
	return cmd
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"an argument":          {[]string{"x"}, `unexpected argument "x"; --help lists the flags`},
		"a flag of another":    {[]string{"--boots=3"}, "flag provided but not defined: -boots"},
		"one Pod":              {[]string{"--pods=1"}, "--pods is 1; it must be from 2 (because the second deletion is refused) to 500"},
		"too many Pods":        {[]string{"--pods=501"}, "--pods is 501; it must be from 2"},
		"no number":            {[]string{"--pods=many"}, `invalid value "many" for flag -pods`},
		"no change":            {[]string{"--changes=0"}, "--changes is 0; it must be at least 1"},
		"no rest":              {[]string{"--quiet=0s"}, "--quiet is 0s; it must be from 1s to 30m0s"},
		"no window":            {[]string{"--window=1h"}, "--window is 1h0m0s; it must be from 1s to 30m0s"},
		"too long":             {[]string{"--changes=1000"}, "the scenario takes about 2h48m0s; the limit is 50m0s"},
		"nothing to grow":      {[]string{"--growth="}, `invalid value "" for flag -growth: it must be a comma-separated list of ascending numbers from 1 to 5000`},
		"growth that shrinks":  {[]string{"--growth=10,10"}, `invalid value "10,10" for flag -growth: it must be a comma-separated list`},
		"growth to the sky":    {[]string{"--growth=10,5001"}, `invalid value "10,5001" for flag -growth: it must be a comma-separated list`},
		"a file for directory": {[]string{"--out=" + file}, "create the directory of --out: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := program(t, nil, test.args...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			require.Error(t, cmd.Run())
			require.Equal(t, 1, cmd.ProcessState.ExitCode())
			require.Contains(t, stderr.String(), "score: ")
			require.Contains(t, stderr.String(), test.want)
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"), "one sentence: %s", &stderr)
			require.Empty(t, stdout.String())
		})
	}
}

// However the program ends, it leaves no processes and no files.
func TestLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			temp, out := t.TempDir(), t.TempDir()
			cmd := program(t, []string{"TMPDIR=" + temp}, "--pods=2", "--changes=100", "--out="+out)
			log := newLog()
			began := log.await("change 1 of 100: ")
			cmd.Stderr = log
			require.NoError(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-began:
			case err := <-ended:
				t.Fatalf("it ended: %v\n%s", err, log)
			}
			require.Len(t, controllers(t, temp), 3)
			require.NoError(t, cmd.Process.Signal(signal))
			require.Error(t, <-ended)
			if signal == syscall.SIGINT {
				require.Equal(t, 130, cmd.ProcessState.ExitCode(), "%s", log)
				require.Contains(t, log.String(), "score: interrupted; everything it started has been stopped")
				require.Empty(t, controllers(t, temp))
			}
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				left, err := os.ReadDir(temp)
				assert.NoError(t, err)
				assert.Empty(t, left)
			}, 5*time.Minute, 20*time.Millisecond)
			require.Eventually(t, func() bool { return len(controllers(t, temp)) == 0 }, 5*time.Minute, 20*time.Millisecond)
			written, err := os.ReadDir(out)
			require.NoError(t, err)
			require.Empty(t, written)
		})
	}
}

// log is the output of a program, with a way to wait for a text in it.
type log struct {
	mu      sync.Mutex
	text    bytes.Buffer
	waiting map[string]chan struct{}
}

func newLog() *log { return &log{waiting: map[string]chan struct{}{}} }

// Write implements io.Writer.
func (l *log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(text)
	for wanted, written := range l.waiting {
		if bytes.Contains(l.text.Bytes(), []byte(wanted)) {
			close(written)
			delete(l.waiting, wanted)
		}
	}
	return len(text), nil
}

// await returns a channel that is closed when the text is written. The text must not have been written yet.
func (l *log) await(text string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	written := make(chan struct{})
	l.waiting[text] = written
	return written
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// controllers returns the controllers, without their guards, that use a kubeconfig below a directory.
func controllers(t *testing.T, dir string) (found []int32) {
	t.Helper()
	all, err := process.Processes()
	require.NoError(t, err)
	for _, p := range all {
		command, err := p.CmdlineSlice()
		if err != nil || len(command) < 2 { // it has just ended
			continue
		}
		if strings.HasPrefix(command[1], "--kubeconfig="+dir) {
			found = append(found, p.Pid)
		}
	}
	return found
}
