package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
)

// watchPods is a scenario for "kubectl get pods --watch", which prints what it sees, and ends when its list is
// refused.
const watchPods = `
resources: [pods]
steps:
- name: a Pod is made
  do:
  - apply: {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: nginx}]}}
converged:
- rule: pods.all(p, has(p.status) && p.status.phase == "Running")
says: [web]
patience: 10s
stopsWith: -1
`

// kubectlWatch writes a scenario, and returns the arguments that have kubectl play it.
func (r *repository) kubectlWatch(flags ...string) []string {
	shared, err := cluster.Shared()
	require.NoError(r.t, err)
	r.write("watch.yaml", watchPods)
	args := append([]string{"torture", "--scenario", "watch.yaml"}, flags...)
	return append(args, "--", filepath.Join(shared.Kubectl, "kubectl"), "get", "pods", "--watch",
		"--kubeconfig={kubeconfig}", "--namespace={namespace}", "--cache-dir="+r.t.TempDir())
}

func TestTorture(t *testing.T) {
	r := newRepository(t, "$ true")
	out, status := r.workshop("", r.kubectlWatch("--fault", "verb=list,resource=pods,delay=1s", "--fault", "verb=watch,resource=pods,late=1s")...)
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "1 plan, 0 failed; ")
	r.requireNothingLeft()

	out, status = r.workshop("", r.kubectlWatch("--fault", "verb=list,resource=pods,refuse=500")...)
	require.Equal(t, 1, status, "%s", out)
	require.Contains(t, out, "1. died: it ended by itself, with exit status 1: ")
	require.Contains(t, out, "replay: workshop torture --scenario watch.yaml --fault verb=list,resource=pods,refuse=500 -- ")
	require.Regexp(t, `list +pods +torture-\d+ +500 +refused with 500`, out)
	require.Contains(t, out, "1 plan, 1 failed; ")
	r.requireNothingLeft()

	cmd := r.command(r.kubectlWatch("--fault", "verb=list,resource=pods,refuse=500", "--times", "3", "--json")...)
	text, err := cmd.Output()
	require.Error(t, err)
	var report struct {
		Plans, Failed int
		Failures      []struct{ Verdict string }
	}
	require.NoError(t, json.Unmarshal(text, &report), "%s", text)
	require.Equal(t, 3, report.Plans)
	require.Equal(t, 3, report.Failed)
	for _, failure := range report.Failures {
		require.Equal(t, "died", failure.Verdict)
	}
	r.requireNothingLeft()
}

func TestTortureWrongInput(t *testing.T) {
	r := newRepository(t, "$ true")
	r.write("broken.yaml", "resources: 7")
	r.write("empty.yaml", "{}")
	r.write("never.yaml", strings.Replace(watchPods, "says: [web]", "says: [never]\n", 1))
	r.write("watch.yaml", strings.Replace(watchPods, "patience: 10s", "patience: 3s", 1))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no scenario":             {[]string{"torture", "--", "true"}, `required flag(s) "scenario" not set`},
		"a missing scenario":      {[]string{"torture", "--scenario", "nowhere.yaml", "--", "true"}, "read the scenario: open nowhere.yaml"},
		"a broken scenario":       {[]string{"torture", "--scenario", "broken.yaml", "--", "true"}, "read the scenario broken.yaml: "},
		"an empty scenario":       {[]string{"torture", "--scenario", "empty.yaml", "--", "true"}, "resources is empty; name what counts"},
		"no controller":           {[]string{"torture", "--scenario", "watch.yaml"}, "there is no controller in the scenario, so give its command after --"},
		"a missing controller":    {[]string{"torture", "--scenario", "watch.yaml", "--", "no-such-program"}, "the controller: exec: \"no-such-program\""},
		"a fault that is none":    {[]string{"torture", "--scenario", "watch.yaml", "--fault", "verb=get", "--", "true"}, "it does not say what is to go wrong"},
		"faults and seeds":        {[]string{"torture", "--scenario", "watch.yaml", "--fault", "delay=1s", "--seeds", "3", "--", "true"}, "give --fault or --seeds, not both"},
		"a number too low":        {[]string{"torture", "--scenario", "watch.yaml", "--times", "0", "--", "true"}, "--times and --nodes must be 1 or more"},
		"a controller that ends":  {[]string{"torture", "--scenario", "watch.yaml", "--", "false"}, "with nothing going wrong, the controller fails: died"},
		"one that asks nothing":   {[]string{"torture", "--scenario", "watch.yaml", "--", "sh", "-c", "echo I wait; exec sleep 1000"}, "the controller has made no request through the proxy. It must use the kubeconfig that it is given"},
		"one that does not do it": {append([]string{"torture", "--scenario", "never.yaml"}, r.kubectlWatch()[3:]...), `change lost: it does not say "never"`},
	} {
		t.Run(name, func(t *testing.T) {
			out, status := r.workshop("", c.args...)
			require.Equal(t, 1, status, "%s", out)
			require.Contains(t, out, c.want)
			r.requireNothingLeft()
		})
	}
}

// However torture ends, the controllers and the control planes end with it.
func TestTortureEndsHoweverItIsEnded(t *testing.T) {
	for name, signal := range map[string]os.Signal{"Ctrl-C": os.Interrupt, "kill -9": os.Kill} {
		t.Run(name, func(t *testing.T) {
			r := newRepository(t, "$ true")
			mark := "mark-" + r.namespace // on the command line of each controller
			args := append(r.kubectlWatch("--times", "50", "--fault", "verb=watch,late=1s"), "--selector", "is!="+mark)
			cmd := r.command(args...)
			said, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			running := func() bool {
				all, err := process.Processes()
				require.NoError(t, err)
				return slices.ContainsFunc(all, func(p *process.Process) bool {
					line, err := p.Cmdline() // it may have ended
					return err == nil && strings.Contains(line, "kubectl get pods --watch") && strings.Contains(line, mark)
				})
			}
			lines := bufio.NewScanner(said)
			for lines.Scan() && !strings.Contains(lines.Text(), "plans done") {
			}
			require.Eventually(t, func() bool { return running() }, time.Minute, 20*time.Millisecond)
			require.NoError(t, cmd.Process.Signal(signal))
			for lines.Scan() { // so that nobody blocks on writing them
			}
			require.Error(t, cmd.Wait())
			if signal == os.Interrupt {
				require.Equal(t, 130, cmd.ProcessState.ExitCode())
			}
			require.Eventually(t, func() bool { return !running() }, time.Minute, 20*time.Millisecond, "a controller is left")
			r.requireNothingLeft()
		})
	}
}
