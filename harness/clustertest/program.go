package clustertest

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/testinput"
)

// BuildProgram builds a main package of the module in dir, without the workspace, and returns the path of the binary, which
// is in the cache of package gobuild.
func BuildProgram(t testing.TB, dir, pkg string) string {
	t.Helper()
	testinput.Declare(dir)
	sources := []string{"."}
	if !strings.HasPrefix(pkg, "./") {
		sources = []string{"go.mod", "go.sum"} // of another module, which they name
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	program, err := gobuild.Build(t.Context(), gobuild.Program{Name: filepath.Base(pkg), Dir: dir, Package: pkg, Sources: sources}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// Refusal is a wrong way to call a program, and the error that it must report.
type Refusal struct {
	Args []string
	Want string // part of what it must write to standard error
	Env  []string
}

// RequireRefusals runs the program with each of these, and with broken kubeconfigs. The program must report what is wrong on
// standard error and exit with status 1, or with 2 for an unknown flag.
func RequireRefusals(t *testing.T, program string, refusals map[string]Refusal) {
	t.Helper()
	dir := t.TempDir()
	broken, unreachable := filepath.Join(dir, "broken"), filepath.Join(dir, "unreachable")
	if err := os.WriteFile(broken, []byte("clusters: 7"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cluster.WriteKubeconfig(unreachable, &rest.Config{Host: "https://127.0.0.1:1"}, ""); err != nil {
		t.Fatal(err)
	}
	all := map[string]Refusal{
		"no kubeconfig":     {Args: []string{"--namespace=x"}, Want: "not in a Pod, and no --kubeconfig or KUBECONFIG"},
		"a missing file":    {Args: []string{"--namespace=x", "--kubeconfig=/nowhere"}, Want: "read kubeconfig /nowhere"},
		"a broken file":     {Args: []string{"--namespace=x", "--kubeconfig=" + broken}, Want: "read kubeconfig " + broken},
		"no cluster":        {Args: []string{"--namespace=x", "--kubeconfig=" + unreachable}, Want: "the API server at https://127.0.0.1:1 does not answer"},
		"a flag of another": {Args: []string{"--no-such-flag"}, Want: "flag provided but not defined: -no-such-flag"},
	}
	maps.Copy(all, refusals)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), program, all[name].Args...)
			cmd.Env = append([]string{"HOME=" + t.TempDir()}, all[name].Env...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != 1 && code != 2 {
				t.Errorf("exit status %d (%v); it must be 1 or 2", code, err)
			}
			if !strings.Contains(stderr.String(), all[name].Want) {
				t.Errorf("standard error must contain %q; it is:\n%s", all[name].Want, stderr.String())
			}
			if stdout.Len() > 0 {
				t.Errorf("standard output must be empty; it is:\n%s", stdout.String())
			}
		})
	}
}

// Running is a program that has been started.
type Running struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of its end, once done

	log syncBuffer
}

// StartProgram starts a program in an environment in which it finds no cluster other than the one that its arguments name.
// It is killed at the end of the test if it is still running.
func StartProgram(t testing.TB, program string, args ...string) *Running {
	t.Helper()
	return StartProgramIn(t, nil, program, args...)
}

// StartProgramIn is StartProgram with these variables, each "NAME=value", in the program's environment.
func StartProgramIn(t testing.TB, env []string, program string, args ...string) *Running {
	t.Helper()
	isolated, err := environ.Isolated(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &Running{t: t, cmd: exec.Command(program, args...), done: make(chan struct{})}
	r.cmd.Env = append(isolated, env...)
	r.cmd.Stdout, r.cmd.Stderr = &r.log, &r.log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		r.err = r.cmd.Wait()
	}()
	t.Cleanup(r.Kill)
	return r
}

// Log returns what the program has printed so far.
func (r *Running) Log() string { return r.log.String() }

// AwaitLog waits until the program has printed a text.
func (r *Running) AwaitLog(text string) {
	r.t.Helper()
	for deadline := time.Now().Add(hangTimeout); !strings.Contains(r.Log(), text); time.Sleep(10 * time.Millisecond) {
		select {
		case <-r.done:
			if !strings.Contains(r.Log(), text) {
				r.t.Fatalf("%s exited (%v) before it logged %q:\n%s", r.cmd.Path, r.err, text, r.Log())
			}
		default:
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s has not logged %q:\n%s", r.cmd.Path, text, r.Log())
		}
	}
}

// Signal sends the program a signal.
func (r *Running) Signal(signal syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(signal); err != nil {
		r.t.Fatal(err)
	}
}

// Done is closed when the program has ended.
func (r *Running) Done() <-chan struct{} { return r.done }

// Kill ends the program with SIGKILL, and waits for its end.
func (r *Running) Kill() {
	_ = r.cmd.Process.Kill() // it may have ended already
	<-r.done
}

// Wait waits for the end of the program, and returns an error if its exit status is not 0.
func (r *Running) Wait() error {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), hangTimeout)
	defer cancel()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		r.t.Fatalf("%s is still running:\n%s", r.cmd.Path, r.Log())
		return nil
	}
}

// syncBuffer is a buffer that a program writes to, and that may be read meanwhile.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (s *syncBuffer) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(text)
}

// String implements fmt.Stringer.
func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
