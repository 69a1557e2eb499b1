package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guard"
)

// TestMain makes the test binary the program under test if WORKSHOP_TEST_MAIN is set.
func TestMain(m *testing.M) {
	guard.Main()
	if len(os.Args) > 2 && os.Args[1] == seeker {
		seek(os.Args[2])
	}
	if os.Getenv("WORKSHOP_TEST_MAIN") != "" {
		main()
		return
	}
	// One with the race detector takes a second to end.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

const kustomization = `namespace: mini
resources: [objects.yaml]
`

const objects = `apiVersion: v1
kind: ServiceAccount
metadata: {name: mini, namespace: mini}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAMESPACE-role}
`

// repository is a repository with one small lesson, and a temporary directory of its own.
type repository struct {
	t         *testing.T
	dir, temp string
	namespace string
	env       []string // of the workshop's command, beside ours
}

// newRepository makes one whose lesson has a console block with these lines. It makes the test a parallel one.
func newRepository(t *testing.T, console ...string) *repository {
	t.Helper()
	t.Parallel()
	shared, err := cluster.Shared()
	require.NoError(t, err)
	r := &repository{t: t, dir: t.TempDir(), temp: t.TempDir(), namespace: "mini-" + strconv.FormatInt(time.Now().UnixNano(), 36)}
	r.write("harness/controlplane/go.mod", "module sign\n")
	r.write("01-mini/manifests/kustomization.yaml", strings.ReplaceAll(kustomization, "mini", r.namespace))
	r.write("01-mini/manifests/objects.yaml", strings.ReplaceAll(strings.ReplaceAll(objects, "mini}", r.namespace+"}"), "NAMESPACE", r.namespace))
	r.write("01-mini/README.md", "# A small lesson\n\n```console\n"+strings.Join(console, "\n")+"\n```\n")
	r.env = []string{cluster.ProgramVariable + "=" + filepath.Join(shared.Kubectl, "controlplane"), "KUBECONFIG=" + shared.Kubeconfig}
	t.Cleanup(func() {
		out, status := r.workshop("", "reset")
		require.Zero(t, status, "%s", out)
	})
	return r
}

func (r *repository) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(r.t, os.WriteFile(path, []byte(text), 0o600))
}

func (r *repository) command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Dir = r.dir
	cmd.Env = append(append(os.Environ(), "WORKSHOP_TEST_MAIN=1", cluster.KubeconfigVariable+"=", "TMPDIR="+r.temp), r.env...)
	return cmd
}

// with returns the same repository, with these variables in the environment of the command.
func (r *repository) with(env ...string) *repository {
	other := *r
	other.env = append(slices.Clone(r.env), env...)
	return &other
}

// workshop runs the program, and returns its output and exit status.
func (r *repository) workshop(stdin string, args ...string) (output string, status int) {
	r.t.Helper()
	cmd := r.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// requireNothingLeft fails if a temporary directory is left, or a process that was started in one.
func (r *repository) requireNothingLeft() {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		left, err := os.ReadDir(r.temp)
		return err == nil && len(left) == 0
	}, time.Minute, 20*time.Millisecond, "something is left in %s", r.temp)
}

// requireNamespaceDeleted fails if the lesson's namespace has not been deleted. It need not be gone yet.
func (r *repository) requireNamespaceDeleted() {
	r.t.Helper()
	out, err := r.kubectl("get", "namespace", r.namespace, "--ignore-not-found")
	require.NoError(r.t, err)
	require.True(r.t, out == "" || strings.Contains(out, "Terminating"), "%s", out)
}

func (r *repository) kubectl(args ...string) (string, error) {
	shared, err := cluster.Shared()
	require.NoError(r.t, err)
	cmd := exec.Command(filepath.Join(shared.Kubectl, "kubectl"), args...)
	cmd.Env = append(os.Environ(), shared.Env(r.t.TempDir())...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestLesson(t *testing.T) {
	r := newRepository(t,
		"$ kubectl apply -k manifests", "serviceaccount/... created", "clusterrole...",
		"$ kubectl get serviceaccounts --output name", "...", "serviceaccount/mini",
	)
	out, status := r.workshop("", "lesson", "1")
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "a control plane of our own: Kubernetes v1.37.1, 3 nodes, ")
	require.Contains(t, out, "# A small lesson")
	require.Contains(t, out, "Lesson 1 is over: 2 commands, 4 lines of output as the page says")
	r.requireNothingLeft()
}

// Pages invite the reader to change the code that they quote.
func TestLessonWhoseCodeTheReaderHasChanged(t *testing.T) {
	r := newRepository(t, "$ true", "```", "", "It does this:", "", "```go mini.go", "func mini() {", "\tdoThis()", "}")
	r.write("01-mini/mini.go", "package mini\n\nfunc mini() {\n\tdoThat()\n}\n")
	out, status := r.workshop("", "lesson", "1")
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "You have changed mini.go; this is your code:")
	require.Contains(t, out, "doThat()")
	require.NotContains(t, out, "doThis()")
	require.Contains(t, out, "Lesson 1 is over: 1 commands")
}

func TestLessonThatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		console []string
		want    []string
	}{
		"a page that does not say what happens": {
			[]string{"$ kubectl get namespace default --output name", "namespace/other"},
			[]string{"01-mini/README.md:4: the output is not what the page says", "- namespace/other", "+ namespace/default"}},
		"a command that fails": {
			[]string{"$ kubectl get namespace nowhere"},
			[]string{"the command failed with exit status 1", `namespaces "nowhere" not found`}},
		"a controller that exits early": {
			[]string{"$ sh -c 'echo cannot go on; exit 4' &", "$ sleep 300"},
			[]string{"sh ended by itself, with exit status 4", "cannot go on"}},
		"a control plane that dies in the middle": {
			[]string{"$ kill -9 $(cat $TMPDIR/workshop-cluster-*/pid); sleep 300"},
			[]string{"the control plane ended: signal: killed", "the last lines of its log:"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepository(t, test.console...)
			out, status := r.workshop("", "lesson", "1")
			require.Equal(t, 1, status, "%s", out)
			for _, want := range test.want {
				require.Contains(t, out, want)
			}
			r.requireNothingLeft()
		})
	}
}

func TestWrongInput(t *testing.T) {
	r := newRepository(t, "$ true")
	unreachable := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, cluster.WriteKubeconfig(unreachable, &rest.Config{Host: "https://127.0.0.1:1"}, ""))
	for name, test := range map[string]struct {
		args       []string
		kubeconfig string
		want       string
	}{
		"no lesson":                  {args: []string{"lesson"}, want: "which lesson? There are:\n  make lesson 1   (01-mini)"},
		"an unknown lesson":          {args: []string{"lesson", "9"}, want: `there is no lesson "9". There are:`},
		"a lesson that is no number": {args: []string{"lesson", "x"}, want: `there is no lesson "x". There are:`},
		"two lessons":                {args: []string{"lesson", "1", "2"}, want: "accepts at most 1 arg(s), received 2"},
		"an unknown cluster":         {args: []string{"lesson", "1", "--cluster=moon"}, want: `CLUSTER (--cluster) is "moon"; it must be embedded, up, kind or context:NAME`},
		"an unknown context":         {args: []string{"lesson", "1", "--cluster=context:moon"}, want: `there is no context "moon" in `},
		"an unreachable cluster":     {args: []string{"lesson", "1", "--cluster=context:workshop"}, kubeconfig: unreachable, want: `context "workshop" (https://127.0.0.1:1) does not answer`},
		"no cluster that is up":      {args: []string{"lesson", "1", "--cluster=up"}, want: "no cluster is up; make up starts one"},
		"an unknown section":         {args: []string{"lesson", "1", "--from=nothing"}, want: `FROM (--from): the page has no section "nothing"`},
		"more commands than it has":  {args: []string{"lesson", "1", "--from=7"}, want: "FROM (--from): the page has 1 commands, so it cannot begin after 7 of them"},
		"no number of nodes":         {args: []string{"up", "--nodes=lots"}, want: "--nodes is \"lots\"; it must be a whole number\n"},
		"neither yes nor no":         {args: []string{"lesson", "1", "--step=often"}, want: "--step is \"often\"; it must be true or false\n"},
		"an unknown command":         {args: []string{"lessons"}, want: `unknown command "lessons"`},
		"an unknown flag":            {args: []string{"up", "--replicas=3"}, want: "unknown flag: --replicas"},
		"too few nodes":              {args: []string{"up", "--nodes=-1"}, want: "the number of nodes is -1; it must be 0 or more"},
		"nothing to stop":            {args: []string{"down"}, want: "no cluster is up"},
		"no status":                  {args: []string{"status"}, want: "no cluster is up; make up starts one"},
		"no environment":             {args: []string{"env"}, want: "no cluster is up; make up starts one"},
		"no nodes":                   {args: []string{"node", "add", "x"}, want: "no cluster is up; make up starts one"},
		"no command to run":          {args: []string{"run", "--", "no-such-program"}, want: "run no-such-program: "},
	} {
		t.Run(name, func(t *testing.T) {
			r := r
			if test.kubeconfig != "" {
				r = r.with("KUBECONFIG=" + test.kubeconfig)
			}
			out, status := r.workshop("", test.args...)
			require.Equal(t, 1, status, "%s", out)
			require.Contains(t, out, test.want)
			if test.kubeconfig == "" { // as far as can be told without asking a cluster
				require.NotContains(t, out, "A small lesson", "it is said before anybody reads the introduction")
			}
			r.requireNothingLeft()
		})
	}
	t.Run("a full or read-only disk", func(t *testing.T) {
		r := *r
		r.temp = filepath.Join(r.dir, "harness/controlplane/go.mod") // no directory can be made below a file
		out, status := r.workshop("", "lesson", "1")
		require.Equal(t, 1, status)
		require.Contains(t, out, "create a data directory for the cluster: ")
	})
	t.Run("not in the repository", func(t *testing.T) {
		r := *r
		r.dir = t.TempDir()
		out, status := r.workshop("", "lesson", "1")
		require.Equal(t, 1, status)
		require.Contains(t, out, "run this inside of the workshop's repository")
	})
}

func TestStep(t *testing.T) {
	r := newRepository(t, "$ echo one", "one", "$ echo two", "two")
	out, status := r.workshop("\n\n", "lesson", "1", "--step")
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "$ echo two\nEnter: run this · s: shell · a: run the rest · q: quit\ntwo\n")
	require.Regexp(t, "For a second terminal:\n  export KUBECONFIG='.*/"+r.namespace+".kubeconfig'\n  export PATH='", out)
	out, status = r.workshop("\nq\n", "lesson", "1", "--step")
	require.Zero(t, status, "%s", out)
	require.NotContains(t, out, "\ntwo\n")
	require.Contains(t, out, "You left lesson 1 after 1 of 2 commands. To go on from there:  make lesson 1 FROM=1\n")
	out, status = r.workshop("", "lesson", "1", "--from=1")
	require.Zero(t, status, "%s", out)
	require.NotContains(t, out, "$ echo one")
	require.Contains(t, out, "running what comes before, without showing it: 1 of 2 commands\n$ echo two\ntwo\n")
	out, status = r.workshop("a\n", "lesson", "1", "--step")
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "$ echo two\ntwo\n", "it does not wait any more")
	out, status = r.workshop("\n", "lesson", "1", "--step")
	require.Equal(t, 1, status)
	require.Contains(t, out, "the lesson waits for Enter, but standard input has ended; STEP=0 (--step=false) plays it without waiting")
	r.requireNothingLeft()
}

// A page that changes other namespaces is only played on a cluster that is new, not even with --yes on another.
func TestLessonThatNeedsItsOwnCluster(t *testing.T) {
	r := newRepository(t, "$ kubectl create namespace other")
	r.write("01-mini/README.md", "# A small lesson\n\n<!-- cluster: own -->\n\n```console\n$ kubectl create namespace other\nnamespace/other created\n```\n")
	const changes = "lesson 1 changes more on a cluster than its own namespace, so it is not played on "
	out, status := r.workshop("", "lesson", "1", "--cluster=context:workshop", "--yes")
	require.Equal(t, 1, status)
	require.Contains(t, out, changes+"context \"workshop\"; play it without CLUSTER")
	_, err := r.kubectl("get", "namespace", r.namespace)
	require.Error(t, err)

	out, status = r.workshop("", "lesson", "1", "--cluster=up")
	require.Equal(t, 1, status)
	require.Contains(t, out, changes+"the cluster of make up; play it without CLUSTER")

	out, status = r.workshop("", "lesson", "1", "--keep")
	require.Zero(t, status, "%s", out)
	_, status = r.workshop("", "down")
	require.Zero(t, status)
	out, status = r.workshop("", "lesson", "1", "--keep")
	require.Equal(t, 1, status)
	require.Contains(t, out, changes+"a cluster that was used before; delete that one with make reset, or play the lesson without KEEP=1")
}

func TestLessonOnAContext(t *testing.T) {
	r := newRepository(t, "$ kubectl apply -k manifests", "...", "$ kubectl config view --minify --output jsonpath='{..namespace}'; echo", "mini-...")
	gone := func() {
		t.Helper()
		out, err := r.kubectl("get", "namespace", r.namespace)
		require.Error(t, err)
		require.Contains(t, out, "not found")
		out, err = r.kubectl("get", "clusterrole", r.namespace+"-role")
		require.Error(t, err)
		require.Contains(t, out, "not found")
	}
	lesson := []string{"lesson", "1", "--cluster=context:workshop"}

	out, status := r.workshop("no\n", lesson...)
	require.Equal(t, 1, status)
	require.Contains(t, out, "Lesson 1 will be played on context \"workshop\" (https://127.0.0.1:")
	require.Contains(t, out, "Namespace "+r.namespace+", and everything in it\n  ClusterRole "+r.namespace+"-role\n")
	require.Contains(t, out, "nothing was changed")
	gone()

	out, status = r.workshop("yes\n", lesson...)
	require.Zero(t, status, "%s", out)
	gone()

	out, status = r.workshop("", append(lesson, "--yes")...)
	require.Zero(t, status, "%s", out)
	require.NotContains(t, out, "Type yes")
	gone()

	// The lesson deletes what its own earlier run was told to keep.
	out, status = r.workshop("", append(lesson, "--yes", "--keep")...)
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "is still there; it is deleted when you play the lesson there again without KEEP=1")
	require.NotContains(t, out, "make down")
	_, err := r.kubectl("get", "namespace", r.namespace)
	require.NoError(t, err)
	out, status = r.workshop("", append(lesson, "--yes")...)
	require.Zero(t, status, "%s", out)
	gone()

	// But not a namespace of that name that somebody else created.
	_, err = r.kubectl("create", "namespace", r.namespace)
	require.NoError(t, err)
	out, status = r.workshop("", append(lesson, "--yes")...)
	require.Equal(t, 1, status)
	require.Contains(t, out, "that the lesson did not create; it was not touched")
	_, err = r.kubectl("delete", "namespace", r.namespace)
	require.NoError(t, err)

	// Nor an object outside of a namespace.
	_, err = r.kubectl("create", "clusterrole", r.namespace+"-role", "--verb=get", "--resource=pods")
	require.NoError(t, err)
	out, status = r.workshop("", append(lesson, "--yes")...)
	require.Equal(t, 1, status)
	require.Contains(t, out, "there is already clusterrole.rbac.authorization.k8s.io/"+r.namespace+"-role, which the lesson did not create; it was not touched")
	_, err = r.kubectl("delete", "clusterrole", r.namespace+"-role")
	require.NoError(t, err)
	gone()
	r.requireNothingLeft()
}

// startLesson starts a lesson whose page hangs, and waits until it does.
func (r *repository) startLesson(args ...string) *exec.Cmd {
	r.t.Helper()
	return r.startLessonUntil("\nhanging\n", args...)
}

// startLessonUntil starts a lesson, and waits until it has printed a text.
func (r *repository) startLessonUntil(text string, args ...string) *exec.Cmd {
	r.t.Helper()
	cmd := r.command(append([]string{"lesson", "1"}, args...)...)
	cmd.Stderr = &bytes.Buffer{}
	stdin, err := cmd.StdinPipe() // or a question would be answered by the end of the input
	require.NoError(r.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(r.t, err)
	require.NoError(r.t, cmd.Start())
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		stdin.Close()
	})
	var seen []byte
	for buffer := make([]byte, 1024); !bytes.Contains(seen, []byte(text)); {
		n, err := out.Read(buffer)
		require.NoError(r.t, err, "%s", seen)
		seen = append(seen, buffer[:n]...)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return cmd
}

func TestEndsHoweverItIsEnded(t *testing.T) {
	hangs := []string{"$ sleep 1000 &", "$ echo hanging; sleep 1000", "hanging"}
	t.Run("Ctrl-C", func(t *testing.T) {
		r := newRepository(t, hangs...)
		cmd := r.startLesson()
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.Error(t, cmd.Wait())
		require.Equal(t, 130, cmd.ProcessState.ExitCode())
		r.requireNothingLeft()
	})
	t.Run("kill -9", func(t *testing.T) {
		r := newRepository(t, hangs...)
		cmd := r.startLesson()
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		r.requireNothingLeft()
	})
	t.Run("kill -9 on a context", func(t *testing.T) {
		r := newRepository(t, hangs...)
		cmd := r.startLesson("--cluster=context:workshop", "--yes")
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		r.requireNothingLeft()
		_, err := r.kubectl("delete", "namespace", r.namespace, "--wait=false")
		require.NoError(t, err)
	})
	t.Run("kill -9 at the prompt", func(t *testing.T) {
		r := newRepository(t, hangs...)
		cmd := r.startLessonUntil("Type yes to continue: ", "--cluster=context:workshop")
		credentials, err := filepath.Glob(filepath.Join(r.temp, "*", "kubeconfig"))
		require.NoError(t, err)
		require.Len(t, credentials, 1)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		r.requireNothingLeft()
	})
	t.Run("kill -9 of make", func(t *testing.T) {
		r := newRepository(t, hangs...)
		mother := exec.Command("sleep", "1000")
		require.NoError(t, mother.Start())
		cmd := r.with("WORKSHOP_WATCH_PID=" + strconv.Itoa(mother.Process.Pid)).startLesson()
		require.NoError(t, mother.Process.Kill())
		require.Error(t, mother.Wait())
		require.Error(t, cmd.Wait())
		require.Equal(t, 130, cmd.ProcessState.ExitCode())
		r.requireNothingLeft()
	})
	t.Run("Ctrl-C on a context", func(t *testing.T) {
		r := newRepository(t, hangs...)
		cmd := r.startLesson("--cluster=context:workshop", "--yes")
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.Error(t, cmd.Wait())
		require.Contains(t, cmd.Stderr.(*bytes.Buffer).String(), "deleting namespace "+r.namespace+" on context \"workshop\"")
		r.requireNamespaceDeleted()
		r.requireNothingLeft()
	})
	t.Run("Ctrl-C on a context that answers late", func(t *testing.T) {
		r := newRepository(t, hangs...)
		shared, err := cluster.Shared()
		require.NoError(t, err)
		upstream, err := shared.Config()
		require.NoError(t, err)
		// A deletion takes longer than the lesson waits for the namespace to be gone.
		proxy, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: upstream, Faults: []apiproxy.Fault{
			{Match: apiproxy.Match{Verb: "delete", Resource: "namespaces"}, Effect: apiproxy.Effect{Delay: 5 * time.Second}},
		}})
		require.NoError(t, err)
		defer func() { require.NoError(t, proxy.Stop()) }()
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		require.NoError(t, cluster.WriteKubeconfig(kubeconfig, proxy.Config(), ""))
		cmd := r.with("KUBECONFIG="+kubeconfig).startLesson("--cluster=context:workshop", "--yes")
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.Error(t, cmd.Wait())
		r.requireNamespaceDeleted()
		r.requireNothingLeft()
	})
}

// While the control plane is compiled for the first time, the lesson's introduction can be read. Ctrl-C ends the compiler, too.
func TestIntroductionWhileCompiling(t *testing.T) {
	realGo, err := exec.LookPath("go")
	require.NoError(t, err)
	r := newRepository(t, "$ echo played", "played")
	r.write("01-mini/README.md", "# A small lesson\n\nRead this meanwhile.\n\n```console\n$ echo played\nplayed\n```\n")
	compiles := filepath.Join(r.dir, "compiles")
	r.write("bin/go", "#!/bin/sh\nif [ \"$1\" = env ]; then exec "+realGo+" \"$@\"; fi\necho $$ >"+compiles+".partial\nmv "+compiles+".partial "+compiles+"\nexec sleep 1000\n")
	require.NoError(t, os.Chmod(filepath.Join(r.dir, "bin/go"), 0o700))
	r.write("harness/machine/machine.go", "package machine\n") // one of the control plane's sources
	r.write("harness/controlplane/lean.txt", "")

	cmd := r.with(cluster.ProgramVariable+"=", "WORKSHOP_CACHE="+t.TempDir(),
		"PATH="+filepath.Join(r.dir, "bin")+string(filepath.ListSeparator)+os.Getenv("PATH")).startLessonUntil("Read this meanwhile.\n\nThe control plane is now compiled")
	require.Eventually(t, func() bool { return exists(compiles) }, time.Minute, 20*time.Millisecond, "nothing is compiled: %s", cmd.Stderr)
	compiler, err := os.ReadFile(compiles)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(compiler)))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	require.Equal(t, 130, cmd.ProcessState.ExitCode(), "%s", cmd.Stderr)
	requireGone(t, pid)
	r.requireNothingLeft()
}

func TestUp(t *testing.T) {
	r := newRepository(t, "$ kubectl get configmap mine --namespace default --output name", "configmap/mine")
	out, status := r.workshop("", "up", "--nodes=1")
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "up: Kubernetes v1.37.1, 1 node, ")
	shell := func(command string) (string, error) {
		env, status := r.workshop("", "env")
		require.Zero(t, status, "%s", env)
		out, err := exec.Command("sh", "-c", env+command).CombinedOutput()
		return string(out), err
	}
	out, err := shell("kubectl create configmap mine --namespace default")
	require.NoError(t, err, "%s", out)
	out, err = shell("cd / && WORKSHOP_TEST_MAIN=1 " + r.env[0] + " " + os.Args[0] + " status")
	require.NoError(t, err, "outside of the repository: %s", out)
	require.Contains(t, out, "up: Kubernetes v1.37.1")

	out, status = r.workshop("", "up")
	require.Equal(t, 1, status)
	require.Contains(t, out, "the cluster is already up; make status describes it, make down stops it")
	out, status = r.workshop("", "status")
	require.Zero(t, status)
	require.Contains(t, out, "up: Kubernetes v1.37.1, 1 node\nkubeconfig: "+r.dir)
	out, status = r.workshop("", "lesson", "1", "--cluster=up")
	require.Zero(t, status, "%s", out)
	out, status = r.workshop("", "lesson", "1", "--keep")
	require.Equal(t, 1, status)
	require.Contains(t, out, "the cluster is already up; play the lesson on it (CLUSTER=up)")
	out, status = r.workshop("", "node", "add", "extra")
	require.Zero(t, status, "%s", out)
	out, status = r.workshop("", "node", "remove", "nowhere")
	require.Equal(t, 1, status)
	require.Contains(t, out, `remove node nowhere: nodes "nowhere" not found`)

	out, status = r.workshop("", "down")
	require.Zero(t, status, "%s", out)
	out, status = r.workshop("", "status")
	require.Equal(t, 1, status)
	require.Contains(t, out, "no cluster is up; its state has been kept, and make up starts it again")
	out, status = r.workshop("", "up", "--nodes=7")
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "up: Kubernetes v1.37.1, 2 nodes", "the one that was added has stayed")
	require.Contains(t, out, "the cluster continues as it was before, with 2 nodes; for one with 7, delete its state first: make reset")

	pid, err := os.ReadFile(filepath.Join(r.dir, ".workshop", "up", "pid"))
	require.NoError(t, err)
	number, err := strconv.Atoi(string(pid))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(number, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		_, status := r.workshop("", "status")
		return status == 1
	}, time.Minute, 20*time.Millisecond)
	out, status = r.workshop("", "up")
	require.Zero(t, status, "%s", out)
	out, err = shell("kubectl get configmap mine --namespace default --output name")
	require.NoError(t, err, "%s", out)
	require.Equal(t, "configmap/mine\n", out)

	out, status = r.workshop("", "reset")
	require.Zero(t, status, "%s", out)
	require.NoDirExists(t, filepath.Join(r.dir, ".workshop", "up"))
}

func TestKeep(t *testing.T) {
	r := newRepository(t, "$ kubectl create configmap mine", "configmap/mine created")
	out, status := r.workshop("", "lesson", "1", "--keep")
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "The cluster is still up. To use it from this terminal:")
	env, status := r.workshop("", "env")
	require.Zero(t, status)
	mine, err := exec.Command("sh", "-c", env+"kubectl get configmap mine --output name --namespace "+r.namespace).CombinedOutput()
	require.NoError(t, err, "%s", mine)
	r.requireNothingLeft()

	out, status = r.workshop("", "down")
	require.Zero(t, status, "%s", out)
	r.write("01-mini/README.md", "# A small lesson\n\n<!-- nodes: 9 -->\n\n```console\n$ true\n```\n")
	out, status = r.workshop("", "lesson", "1", "--keep")
	require.Equal(t, 1, status, "%s", out)
	require.Contains(t, out, "lesson 1 needs 9 simulated nodes, and the cluster of make up has 3, as before; delete its state with make reset, and play the lesson again")
}

func TestRun(t *testing.T) {
	r := newRepository(t, "$ true")
	out, status := r.workshop("hello\n", "run", "--nodes=1", "--", "sh", "-c", "kubectl get nodes --output name; read line; echo got:$line; exit 7")
	require.Equal(t, 7, status, "%s", out)
	require.Contains(t, out, "node/node-0\n")
	require.Contains(t, out, "got:hello\n")
	r.requireNothingLeft()
}

// Only the link of a run that has ended is replaced, and only a link to the run's own cluster is removed.
func TestSharedRun(t *testing.T) {
	run := func(link string, command ...string) []string {
		return append([]string{"run", "--nodes=0", "--shared=" + link, "--"}, command...)
	}
	t.Run("a file that is no link", func(t *testing.T) {
		r := newRepository(t, "$ true")
		r.write("precious", "text")
		out, status := r.workshop("", run("precious", "true")...)
		require.Equal(t, 1, status, "%s", out)
		require.Contains(t, out, "precious is not a symbolic link, so it was not replaced; give --shared another path")
		require.FileExists(t, filepath.Join(r.dir, "precious"))
		r.requireNothingLeft()
	})
	t.Run("the link of a run that was killed", func(t *testing.T) {
		r := newRepository(t, "$ true")
		link := filepath.Join(r.dir, "link")
		require.NoError(t, os.Symlink("nowhere", link))
		out, status := r.workshop("", run("link", "test", "-e", "link/lock")...)
		require.Zero(t, status, "%s", out)
		_, err := os.Lstat(link)
		require.ErrorIs(t, err, os.ErrNotExist)
	})
	t.Run("the link of another run", func(t *testing.T) {
		r := newRepository(t, "$ true")
		link := filepath.Join(r.dir, "link")
		first := r.command(run("link", "sh", "-c", "echo up; read line; test -e link/lock")...)
		stdin, err := first.StdinPipe()
		require.NoError(t, err)
		out, err := first.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, first.Start())
		t.Cleanup(func() { _ = first.Process.Kill() })
		_, err = bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		text, status := r.workshop("", run("link", "true")...)
		require.Equal(t, 1, status, "%s", text)
		require.Contains(t, text, "link is in use by another run of the tests; wait until that has ended")
		require.NoError(t, stdin.Close())
		require.NoError(t, first.Wait(), "it still has its cluster")
		_, err = os.Lstat(link)
		require.ErrorIs(t, err, os.ErrNotExist)
		r.requireNothingLeft()
	})
	t.Run("a link that somebody else has replaced", func(t *testing.T) {
		r := newRepository(t, "$ true")
		out, status := r.workshop("", run("link", "sh", "-c", "rm link; ln -s elsewhere link")...)
		require.Zero(t, status, "%s", out)
		target, err := os.Readlink(filepath.Join(r.dir, "link"))
		require.NoError(t, err)
		require.Equal(t, "elsewhere", target)
	})
}

// A process that ignores SIGTERM has ended, too, when the command says that everything has been stopped.
func TestInterruptedRun(t *testing.T) {
	r := newRepository(t, "$ true")
	const ignoresSIGTERM = `trap "" TERM; echo $$; exec sleep 1000`
	cmd := r.command("run", "--nodes=1", "--", "sh", "-c", "sh -c '"+ignoresSIGTERM+"' & wait")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // it should have ended
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	require.Equal(t, 130, cmd.ProcessState.ExitCode())
	requireGone(t, pid)
	r.requireNothingLeft()
}

// requireGone waits until a process has ended. It has been sent a signal, but may not have been scheduled since.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		status, err := (&process.Process{Pid: int32(pid)}).Status()
		return err != nil || slices.Contains(status, process.Zombie)
	}, time.Minute, 10*time.Millisecond, "process %d is still running", pid)
}
