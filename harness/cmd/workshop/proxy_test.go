package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/history"
)

// runningProxy is a "workshop proxy" that runs.
type runningProxy struct {
	*exec.Cmd
	r   *repository
	url string
	out *bytes.Buffer // all it has output, once it has ended
	end chan struct{} // closed then
}

var readyLine = regexp.MustCompile(`proxy: ready: kubeconfig (\S+) -> (https://127\.0\.0\.1:\d+)\n`)

// startProxy starts one and waits until it is ready.
func (r *repository) startProxy(args ...string) *runningProxy {
	r.t.Helper()
	p := &runningProxy{Cmd: r.command(append([]string{"proxy"}, args...)...), r: r, out: &bytes.Buffer{}, end: make(chan struct{})}
	output, err := p.StderrPipe()
	require.NoError(r.t, err)
	require.NoError(r.t, p.Start())
	r.t.Cleanup(func() { _ = p.Process.Kill() })
	buffer := make([]byte, 1024)
	for !readyLine.Match(p.out.Bytes()) {
		n, err := output.Read(buffer)
		require.NoError(r.t, err, "%s", p.out)
		p.out.Write(buffer[:n])
	}
	p.url = string(readyLine.FindSubmatch(p.out.Bytes())[2])
	go func() {
		_, _ = io.Copy(p.out, output)
		close(p.end)
	}()
	return p
}

// stop ends it as Ctrl-C does, and returns all it has output and its exit status.
func (p *runningProxy) stop() (string, int) {
	p.r.t.Helper()
	require.NoError(p.r.t, p.Process.Signal(os.Interrupt))
	return p.wait()
}

func (p *runningProxy) wait() (string, int) {
	p.r.t.Helper()
	<-p.end
	_ = p.Wait()
	return p.out.String(), p.ProcessState.ExitCode()
}

// kubectlWith runs kubectl with a kubeconfig.
func (r *repository) kubectlWith(kubeconfig string, args ...string) (string, error) {
	shared, err := cluster.Shared()
	require.NoError(r.t, err)
	cmd := exec.Command(filepath.Join(shared.Kubectl, "kubectl"), args...)
	cmd.Env = append(os.Environ(), shared.Env(r.t.TempDir())...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestProxy(t *testing.T) {
	r := newRepository(t, "$ true")
	_, err := r.kubectl("create", "namespace", r.namespace)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = r.kubectl("delete", "namespace", r.namespace, "--wait=false") })
	shared, err := cluster.Shared()
	require.NoError(t, err)
	original, err := clientcmd.LoadFromFile(shared.Kubeconfig)
	require.NoError(t, err)
	original.Contexts[original.CurrentContext].Namespace = r.namespace
	input := filepath.Join(t.TempDir(), "input")
	require.NoError(t, clientcmd.WriteToFile(*original, input))

	dir := t.TempDir()
	out, recording := filepath.Join(dir, "out"), filepath.Join(dir, "recording")
	p := r.startProxy("--out", out, "--record", recording, "--kubeconfig", input,
		"--fault", "verb=delete,resource=configmaps,nth=1,refuse=500",
		"--fault", "verb=get,resource=secrets,delay=1ms")
	written, err := clientcmd.LoadFromFile(out)
	require.NoError(t, err)
	require.Equal(t, original.CurrentContext, written.CurrentContext)
	require.Equal(t, r.namespace, written.Contexts[written.CurrentContext].Namespace)
	for _, name := range []string{out, out + ".key", recording} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode(), name)
	}
	text, err := r.kubectlWith(out, "create", "configmap", "mine")
	require.NoError(t, err, text)
	text, err = r.kubectlWith(out, "delete", "configmap", "mine")
	require.Error(t, err)
	require.Contains(t, text, "refused on purpose by the workshop's proxy (verb=delete,resource=configmaps,nth=1,refuse=500)")
	text, err = r.kubectlWith(out, "delete", "configmap", "mine")
	require.NoError(t, err, text)
	text, _ = r.kubectlWith(out, "get", "secret", "none")
	require.Contains(t, text, "not found")

	bill, status := r.workshop("", "bill", recording, "--agent", "kubectl/", "--by-who")
	require.Zero(t, status, bill)
	require.Regexp(t, `(?m)^WHO +VERB +RESOURCE +REQUESTS +NO-OP +FAILED +EVENTS +KB$`, bill)
	require.Regexp(t, `(?m)^workshop:admin +delete +configmaps +2 +0 +1 +0 +\d+\.\d$`, bill)
	bill, status = r.workshop("", "bill", recording, "--last=1h", "--per-minute")
	require.Zero(t, status, bill)
	require.Regexp(t, `(?m)^delete +configmaps +\d+\.\d +0\.0 `, bill)
	bill, status = r.workshop("", "bill", recording, "--agent", "nobody")
	require.Zero(t, status, bill)
	require.Contains(t, bill, "workshop: none of the ")
	require.Regexp(t, `(?m)^total +0 `, bill)

	output, status := p.stop()
	require.Zero(t, status, output)
	require.Equal(t, "proxy: ready: kubeconfig "+out+" -> "+p.url+"\n"+
		"proxy: delete configmaps "+r.namespace+"/mine: refused with 500\n"+
		"proxy: get secrets "+r.namespace+"/none: delayed by 1ms\n", output)
	_, err = net.Dial("tcp", strings.TrimPrefix(p.url, "https://"))
	require.Error(t, err)
	r.requireNothingLeft()
}

// A client that read the kubeconfig once goes on with a proxy that was started again, even after a kill -9.
func TestProxyRestarted(t *testing.T) {
	r := newRepository(t, "$ true")
	dir := t.TempDir()
	out, recording := filepath.Join(dir, "out"), filepath.Join(dir, "recording")
	p := r.startProxy("--out", out, "--record", recording)
	readOnce := filepath.Join(t.TempDir(), "copy")
	before, err := os.ReadFile(out)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(readOnce, before, 0o600))
	text, err := r.kubectlWith(readOnce, "get", "namespace", "default")
	require.NoError(t, err, text)
	require.NoError(t, p.Process.Kill())
	p.wait()
	h, err := history.ReadFile(recording)
	require.NoError(t, err)
	require.NotEmpty(t, h.Requests)

	address := strings.TrimPrefix(p.url, "https://")
	p = r.startProxy("--out", out, "--record", recording, "--listen", address)
	require.Equal(t, "https://"+address, p.url)
	after, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	text, err = r.kubectlWith(readOnce, "get", "namespace", "default")
	require.NoError(t, err, text)

	output, status := r.workshop("", "proxy", "--out", filepath.Join(dir, "other"), "--listen", address)
	require.Equal(t, 1, status)
	require.Contains(t, output, "the address "+address+" is in use; give another with --listen, or leave --listen out to use any free port")
	require.NoFileExists(t, filepath.Join(dir, "other"))

	output, status = r.with("KUBECONFIG="+out).workshop("", "proxy", "--out", out)
	require.Equal(t, 1, status)
	require.Contains(t, output, out+" is the kubeconfig of the proxy itself; give the API server's with --kubeconfig")
	_, status = p.stop()
	require.Zero(t, status)
}

func TestProxyEndsWhenTheDiskIsFull(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /dev/full")
	}
	r := newRepository(t, "$ true")
	out := filepath.Join(t.TempDir(), "out")
	p := r.startProxy("--out", out, "--record", "/dev/full")
	_, _ = r.kubectlWith(out, "get", "namespaces")
	output, status := p.wait()
	require.Equal(t, 1, status)
	require.Contains(t, output, "workshop: write the recording: write /dev/full: no space left on device; it ends here\n")
}

// An open watch is recorded as ended, with its events, when the proxy is told to end.
func TestProxyWithAWatch(t *testing.T) {
	r := newRepository(t, "$ true")
	dir := t.TempDir()
	out, recording := filepath.Join(dir, "out"), filepath.Join(dir, "recording")
	p := r.startProxy("--out", out, "--record", recording, "--fault", "verb=watch,late=1ms")
	shared, err := cluster.Shared()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := exec.CommandContext(ctx, filepath.Join(shared.Kubectl, "kubectl"), "get", "namespaces", "--watch", "--kubeconfig", out)
	require.NoError(t, watch.Start())
	_, err = r.kubectl("create", "namespace", r.namespace)
	require.NoError(t, err)
	var h *history.History
	require.Eventually(t, func() bool {
		h, err = history.ReadFile(recording)
		_, _ = r.kubectl("label", "--overwrite", "namespace", r.namespace, "now="+time.Now().Format("150405.000"))
		return err == nil && len(h.Events) > 0
	}, time.Minute, 20*time.Millisecond)
	_, err = r.kubectl("delete", "namespace", r.namespace, "--wait=false")
	require.NoError(t, err)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	output, status := p.wait()
	require.Zero(t, status)
	require.Equal(t, 1, strings.Count(output, "proxy: watch namespaces: events late by 1ms\n"), "%s", output)
	h, err = history.ReadFile(recording)
	require.NoError(t, err)
	for _, request := range h.Requests {
		require.False(t, request.Open)
	}
	cancel()
	_ = watch.Wait()
}

func TestProxyWrongInput(t *testing.T) {
	r := newRepository(t, "$ true")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	nonsense := write("nonsense", "{{{")
	write("theirs.key", "a private key")
	theirs := filepath.Join(dir, "theirs")
	unreachable := filepath.Join(dir, "unreachable")
	require.NoError(t, cluster.WriteKubeconfig(unreachable, &rest.Config{Host: "https://127.0.0.1:1"}, ""))
	noContext := write("no-context", "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: https://a}}]\n")
	shared, err := cluster.Shared()
	require.NoError(t, err)
	kubeconfig := shared.Kubeconfig
	kept, err := os.ReadFile(kubeconfig)
	require.NoError(t, err)
	out := filepath.Join(dir, "out")
	for name, test := range map[string]struct {
		args       []string
		kubeconfig string
		want       string
	}{
		"no --out":                    {args: []string{}, want: "give --out FILE, the file to write the kubeconfig to"},
		"no kubeconfig":               {args: []string{"--out", out}, kubeconfig: "/nowhere/config", want: "no kubeconfig at /nowhere/config; give one with --kubeconfig, or set KUBECONFIG"},
		"no such kubeconfig":          {args: []string{"--out", out, "--kubeconfig", "/nowhere/config"}, want: "read kubeconfig /nowhere/config: "},
		"an unparsable one":           {args: []string{"--out", out, "--kubeconfig", nonsense}, want: "read kubeconfig " + nonsense + ": "},
		"one without a context":       {args: []string{"--out", out, "--kubeconfig", noContext}, want: "has no current context"},
		"an unreachable server":       {args: []string{"--out", out, "--kubeconfig", unreachable}, want: `the API server of context "workshop", https://127.0.0.1:1, does not answer: `},
		"metrics without a recording": {args: []string{"--out", out, "--metrics", "http://127.0.0.1:1/metrics"}, want: "--metrics needs --record, the file to write them to"},
		"metrics that are no URL":     {args: []string{"--out", out, "--record", filepath.Join(dir, "r"), "--metrics", "localhost:8080"}, want: "--metrics: \"localhost:8080\" is not the URL of a program's metrics"},
		"a port that is none":         {args: []string{"--out", out, "--listen", "127.0.0.1:x"}, want: "listen: "},
		"a place that is none":        {args: []string{"--out", "/nowhere/out"}, want: "write /nowhere/out.key: "},
		"a directory":                 {args: []string{"--out", dir}, want: "read the existing --out: "},
		"a file of somebody else":     {args: []string{"--out", nonsense}, want: nonsense + " exists and was not written by a proxy, so it is not overwritten; give another --out"},
		"the kubeconfig itself":       {args: []string{"--out", kubeconfig}, want: kubeconfig + " exists and was not written by a proxy"},
		"a key of somebody else":      {args: []string{"--out", theirs}, want: theirs + ".key exists and was not written by a proxy, so it is not overwritten; give another --out"},
		"a fault that makes no sense": {args: []string{"--out", out, "--fault", "verb=get"}, want: `fault "verb=get": it does not say what is to go wrong; give one of refuse=STATUS, delay=DURATION, answer-late=DURATION, hang=DURATION, late=DURATION, down=DURATION, lost=request, reply or late, watch=cut, expired, unobserved or no-bookmarks`},
		"a verb that no request has":  {args: []string{"--out", out, "--fault", "verb=remove,delay=1s"}, want: `no request has the verb "remove"; the verbs are get, list, `},
		"a watch that stays held":     {args: []string{"--out", out, "--fault", "verb=watch,watch=held"}, want: "only a Go program can release the events"},
		"a record nowhere":            {args: []string{"--out", out, "--record", "/nowhere/recording"}, want: "create the recording: open /nowhere/recording: "},
		"an argument":                 {args: []string{"--out", out, "more"}, want: `unknown command "more" for "workshop proxy"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := r
			if test.kubeconfig != "" {
				r = r.with("KUBECONFIG=" + test.kubeconfig)
			}
			output, status := r.workshop("", append([]string{"proxy"}, test.args...)...)
			require.Equal(t, 1, status, output)
			require.Contains(t, output, "workshop: ")
			require.Contains(t, output, test.want)
			require.NoFileExists(t, out)
		})
	}
	now, err := os.ReadFile(kubeconfig)
	require.NoError(t, err)
	require.Equal(t, string(kept), string(now))

	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no recording":   {[]string{"/nowhere/recording"}, "read the recording: open /nowhere/recording: no such file or directory"},
		"not one":        {[]string{write("two-lines", "{}\n{}\n")}, "line 1: not a record"},
		"a negative one": {[]string{nonsense, "--last=-1s"}, "--last is -1s; it must not be negative"},
		"none at all":    {nil, "accepts 1 arg(s), received 0"},
	} {
		t.Run("bill of "+name, func(t *testing.T) {
			output, status := r.workshop("", append([]string{"bill"}, test.args...)...)
			require.Equal(t, 1, status, output)
			require.Contains(t, output, test.want)
		})
	}
}
