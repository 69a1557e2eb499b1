package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/proc"
	"example.com/controllers/harness/torture"
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
patience: 1m
stopsWith: -1
`

// kubectlWatch writes a scenario, and returns the arguments that have kubectl play it.
func (r *repository) kubectlWatch(flags ...string) []string {
	shared, err := cluster.Shared()
	require.NoError(r.t, err)
	r.write("watch.yaml", watchPods)
	args := append([]string{"torture", "--scenario", "watch.yaml"}, flags...)
	return append(args, "--", filepath.Join(shared.Kubectl, "kubectl"), "get", "pods", "--watch",
		"--kubeconfig={kubeconfig}", "--namespace={namespace}", "--cache-dir="+filepath.Join(r.dir, "kubectl's cache"))
}

func TestTorture(t *testing.T) {
	r := newRepository(t, "$ true")
	out, status := r.workshop("", r.kubectlWatch("--fault", "verb=list,resource=pods,delay=1s", "--fault", "verb=watch,resource=pods,late=1s")...)
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "1 plan, 0 failed; ")
	r.requireNothingLeft()

	refused := "verb=list,resource=pods,refuse=500"
	out, status = r.workshop("", r.kubectlWatch("--fault", refused, "--dir", "kept files", "--html", "report.html", "--junit", "report.xml")...)
	requireDied := func() {
		t.Helper()
		require.Equal(t, 1, status, "%s", out)
		require.Contains(t, out, "1. died: it exited by itself, with exit status 1: ")
		require.Contains(t, out, " --scenario watch.yaml --fault "+refused+" -- ")
		require.Regexp(t, `list +pods +500 +refused with 500`, out)
		require.Contains(t, out, "1 plan, 1 failed; ")
	}
	requireDied()
	require.Contains(t, out, "torture: the report as a page: report.html\n")
	require.Contains(t, out, "torture: the report for CI: report.xml\n")
	junit, err := os.ReadFile(filepath.Join(r.dir, "report.xml"))
	require.NoError(t, err)
	require.Contains(t, string(junit), `<failure message="it exited by itself, with exit status 1: `)
	html, err := os.ReadFile(filepath.Join(r.dir, "report.html"))
	require.NoError(t, err)
	require.Contains(t, string(html), "1. died: it exited by itself, with exit status 1: ")
	require.Equal(t, 2, strings.Count(string(html), "<figure>"), "the failed run, above one without faults")
	require.NotContains(t, string(html), ">"+r.namespace+"/", "the run's namespace")
	require.Contains(t, out, "   log: kept files/01-died-replay.log\n   requests: kept files/01-died-replay.requests, .jsonl\n")
	// So can the line that draws the recording.
	_, drawing, _ := strings.Cut(out, "\n   view: ")
	drawing, _, _ = strings.Cut(drawing, "\n")
	drawn := r.command()
	drawn.Path, drawn.Args = "/bin/bash", []string{"bash", "-c", drawing + " --out page.html"}
	drew, err := drawn.CombinedOutput()
	require.NoError(t, err, "%s", drew)
	require.FileExists(t, filepath.Join(r.dir, "page.html"))
	r.requireNothingLeft()
	log, err := os.ReadFile(filepath.Join(r.dir, "kept files", "01-died-replay.log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "Error from server")
	table, err := os.ReadFile(filepath.Join(r.dir, "kept files", "01-died-replay.requests"))
	require.NoError(t, err)
	require.Regexp(t, `list +pods +torture-\d+ +500 +refused with 500`, string(table))
	list, status := r.workshop("", "requests", "kept files/01-died-replay.jsonl")
	require.Zero(t, status)
	require.Equal(t, string(table), list)

	// A replay line can be pasted as it stands. Without --dir, there is a new directory.
	_, line, _ := strings.Cut(out, "\n   replay: ")
	line, _, _ = strings.Cut(line, "\n")
	shell := r.command()
	shell.Path, shell.Args = "/bin/sh", []string{"sh", "-c", line}
	text, err := shell.CombinedOutput()
	require.Error(t, err)
	out, status = string(text), shell.ProcessState.ExitCode()
	requireDied()
	require.Contains(t, out, "are in "+r.temp+"/workshop-torture-2")
	r.removeKept()
	r.requireNothingLeft()

	cmd := r.command(r.kubectlWatch("--fault", "verb=list,resource=pods,refuse=500", "--times", "3", "--json")...)
	text, err = cmd.Output()
	require.Error(t, err)
	var report struct {
		Plans, Failed int
		Failures      []struct{ Verdict, Replay, Log, Recording string }
	}
	require.NoError(t, json.Unmarshal(text, &report), "%s", text)
	require.Equal(t, 3, report.Plans)
	require.Equal(t, 3, report.Failed)
	for _, failure := range report.Failures {
		require.Equal(t, "died", failure.Verdict)
		require.FileExists(t, failure.Log)
		require.FileExists(t, failure.Recording)
		require.Contains(t, failure.Replay, " torture --scenario watch.yaml --fault "+refused+" -- ")
	}
	r.removeKept()
	r.requireNothingLeft()
}

// removeKept removes the one directory in which a run without --dir has kept its outcomes.
func (r *repository) removeKept() {
	r.t.Helper()
	kept, err := filepath.Glob(filepath.Join(r.temp, "workshop-torture-*"))
	require.NoError(r.t, err)
	require.Len(r.t, kept, 1)
	require.FileExists(r.t, filepath.Join(kept[0], "outcomes.jsonl"))
	require.NoError(r.t, os.RemoveAll(kept[0]))
}

// Ctrl-C prints what is known, and a command that runs the rest.
func TestTortureIsInterruptedAndResumed(t *testing.T) {
	r := newRepository(t, "$ true")
	cmd := r.command(r.kubectlWatch("--fault", "verb=watch,late=1s", "--times", "5", "--parallel", "2")...)
	var out bytes.Buffer
	cmd.Stdout = &out
	progress, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(progress)
	for lines.Scan() && !strings.Contains(lines.Text(), "plans done") {
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	var after strings.Builder
	for lines.Scan() {
		after.WriteString(lines.Text() + "\n")
	}
	require.Error(t, cmd.Wait())
	require.Equal(t, 130, cmd.ProcessState.ExitCode(), "%s%s", out.String(), after.String())
	require.Regexp(t, `(?m)^replay +[1-4] +[1-4] +0$`, out.String())
	require.Regexp(t, `(?m)^interrupted: [1-4] of 5 plans were run, 0 failed; `, out.String())
	require.Equal(t, 1, strings.Count(out.String()+after.String(), "interrupted"), "%s%s", out.String(), after.String())

	_, line, _ := strings.Cut(out.String(), "resume: ")
	require.Contains(t, line, " --dir "+r.temp+"/workshop-torture-2")
	shell := r.command()
	shell.Path, shell.Args = "/bin/sh", []string{"sh", "-c", line}
	text, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Regexp(t, `torture: \d plans? ha(s|ve) been run already`, string(text))
	require.NotContains(t, string(text), " of 5 plans done", "the others only")
	require.Contains(t, string(text), "\n5 plans, 0 failed; ")
	r.removeKept()
	r.requireNothingLeft()
}

// A run that ends early, for whatever reason, prints what is known, and a command that runs the rest.
func TestTortureFinishes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "watch.yaml")
	require.NoError(t, os.WriteFile(file, []byte(watchPods), 0o600))
	scenario, err := torture.Read(file)
	require.NoError(t, err)
	broken := errors.New("the control plane cannot be started again")
	passed := []torture.Outcome{{Plan: torture.Plan{Kind: "replay"}, History: &history.History{}}}
	notMet := []torture.Outcome{{Plan: torture.Plan{Kind: "replay"}, NotMet: true, History: &history.History{}}}
	died := slices.Repeat([]torture.Outcome{{Plan: torture.Plan{Kind: "replay"}, Verdict: torture.Died, Message: "it ended", History: &history.History{}}}, 2)
	flags := tortureFlags{
		scenario: "watch.yaml", faults: []string{"delay=1s"}, times: 9, seed: 1, nodes: defaultNodes, parallel: 2,
		onFlags: onFlags{workers: 3, namespace: "workshop-torture", cpu: "1", memory: "3Gi"},
	}
	for name, c := range map[string]struct {
		outcomes    []torture.Outcome
		err         error
		interrupted bool
		status      int
		says        []string
		resumes     bool
	}{
		"at its end":                 {passed, nil, false, 0, []string{"\n1 plan, 0 failed; "}, false},
		"at its end, with a failure": {died, nil, false, 1, []string{"\n2 plans, 2 failed; "}, false},
		"without its fault":          {notMet, nil, false, 1, []string{"\nNOT INJECTED: the request "}, false},
		"by Ctrl-C":                  {passed, proc.ErrInterrupted, true, 130, []string{"\ninterrupted: 1 of 9 plans were run, 0 failed; "}, true},
		"by an error":                {passed, broken, false, 1, []string{"\nended by an error: 1 of 9 plans were run, 0 failed; ", "workshop: the control plane cannot be started again\n"}, true},
		"by an error, with failures": {died, broken, false, 1, []string{"\n1. died: it ended\n", "\nended by an error: 2 of 9 plans were run, 2 failed; "}, true},
		"by an error at the outset":  {nil, broken, false, 1, []string{"workshop: the control plane cannot be started again\n"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			keep, err := torture.OpenKeep("", scenario, torture.Single("sh"), false)
			require.NoError(t, err)
			for _, o := range c.outcomes {
				keep.Add(o)
			}
			var out strings.Builder
			d := torture.Details{Keep: keep, Interrupted: c.interrupted, Planned: 9}
			status, text := ending(flags.finish(&out, &torture.Report{Outcomes: c.outcomes}, c.err, d, invoked{program: "workshop"}, []string{"sh"}), c.interrupted)
			require.Equal(t, c.status, status)
			for _, want := range c.says {
				require.Contains(t, out.String()+text, want)
			}
			resume := "\nresume: workshop torture --scenario watch.yaml --parallel 2 --fault delay=1s --times 9 --dir " + shellWord(keep.Dir()) + " --resume -- sh\n"
			require.Equal(t, c.resumes, strings.HasSuffix(out.String(), resume), "%s", &out)
			require.NoError(t, keep.Close())
			if !c.resumes {
				return
			}
			again, err := torture.OpenKeep(keep.Dir(), scenario, torture.Single("sh"), true)
			require.NoError(t, err, "it can be resumed")
			require.NoError(t, again.Close())
			asJSON := flags
			asJSON.json = true
			out.Reset()
			require.Error(t, asJSON.finish(&out, &torture.Report{Outcomes: c.outcomes}, c.err, d, invoked{program: "workshop"}, []string{"sh"}))
			require.Contains(t, out.String(), `"resume": "workshop torture --scenario watch.yaml --parallel 2 --fault delay=1s --times 9 --json --dir `)
		})
	}
}

func TestTortureWrongInput(t *testing.T) {
	r := newRepository(t, "$ true")
	r.write("broken.yaml", "resources: 7")
	r.write("empty.yaml", "{}")
	impatient := strings.Replace(watchPods, "patience: 1m", "patience: 3s", 1)
	r.write("impatient.yaml", impatient)
	r.write("never.yaml", strings.Replace(impatient, "says: [web]", "says: [never]", 1))
	r.write("cluster.yaml", watchPods+"scope: cluster\n")
	r.write("other/outcomes.jsonl", `{"scenario":"7","program":"7","arguments":"7"}`+"\n"+`{"kind":"slow","faults":["delay=1s"],"verdict":""}`+"\n")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no scenario":                    {[]string{"torture", "--", "true"}, `required flag(s) "scenario" not set`},
		"a missing scenario":             {[]string{"torture", "--scenario", "nowhere.yaml", "--", "true"}, "read the scenario: open nowhere.yaml"},
		"a broken scenario":              {[]string{"torture", "--scenario", "broken.yaml", "--", "true"}, "read the scenario broken.yaml: "},
		"an empty scenario":              {[]string{"torture", "--scenario", "empty.yaml", "--", "true"}, "resources is empty; name those whose objects count"},
		"no controller":                  {[]string{"torture", "--scenario", "watch.yaml"}, "the scenario names no controller; give its command after --"},
		"a missing controller":           {[]string{"torture", "--scenario", "watch.yaml", "--", "no-such-program"}, "the controller: exec: \"no-such-program\""},
		"a fault that is none":           {[]string{"torture", "--scenario", "watch.yaml", "--fault", "verb=get", "--", "true"}, "it does not say what is to go wrong"},
		"faults and seeds":               {[]string{"torture", "--scenario", "watch.yaml", "--fault", "delay=1s", "--seeds", "3", "--", "true"}, "give --fault or --seeds, not both"},
		"faults and kinds":               {[]string{"torture", "--scenario", "watch.yaml", "--fault", "delay=1s", "--kinds", "slow", "--", "true"}, "give --fault or --kinds, not both"},
		"faults and most":                {[]string{"torture", "--scenario", "watch.yaml", "--fault", "delay=1s", "--most", "3", "--", "true"}, "give --fault or --most, not both"},
		"seeds and most":                 {[]string{"torture", "--scenario", "watch.yaml", "--seeds", "9", "--most", "3", "--", "true"}, "give --seeds or --most, not both"},
		"times without faults":           {[]string{"torture", "--scenario", "watch.yaml", "--seeds", "9", "--times", "3", "--", "true"}, "--times needs --fault"},
		"a seed without seeds":           {[]string{"torture", "--scenario", "watch.yaml", "--seed", "9", "--", "true"}, "--seed needs --seeds"},
		"nodes of a whole cluster":       {[]string{"torture", "--scenario", "cluster.yaml", "--nodes", "9", "--", "true"}, `leave it out, and set "nodes" in cluster.yaml`},
		"a malformed pattern":            {[]string{"torture", "--scenario", "watch.yaml", "--kinds", "(", "--", "true"}, "--kinds: error parsing regexp: missing closing )"},
		"no such kind of fault":          {r.kubectlWatch("--kinds", "nonsense"), `no kind of fault matches "nonsense"; the kinds are: answered 429; answered 500; `},
		"a number too low":               {[]string{"torture", "--scenario", "watch.yaml", "--times", "0", "--", "true"}, "--times and --nodes must be 1 or more"},
		"a controller that ends":         {[]string{"torture", "--scenario", "watch.yaml", "--", "false"}, "the controller fails without faults: died"},
		"one that asks nothing":          {[]string{"torture", "--scenario", "impatient.yaml", "--", "sh", "-c", "echo I wait; exec sleep 1000"}, "the program controller has sent no request through the proxy. It must use the kubeconfig that it is given"},
		"nothing to resume":              {r.kubectlWatch("--dir", "new", "--resume"), "new has no outcomes to resume (no outcomes.jsonl); leave out --resume"},
		"another scenario":               {r.kubectlWatch("--dir", "other", "--resume"), "the outcomes in other are those of another scenario, or of this one before its file, its manifests or a program outside of the cluster were changed"},
		"a directory that is used":       {r.kubectlWatch("--dir", "other"), "other has the outcomes of an earlier run; give --resume to go on with it"},
		"a file as directory":            {r.kubectlWatch("--dir", "watch.yaml"), "create the directory for the outcomes: mkdir watch.yaml: not a directory"},
		"--html where there is nothing":  {r.kubectlWatch("--html", "no/where/report.html"), "write no/where/report.html: open no/where/"},
		"--junit where there is nothing": {r.kubectlWatch("--junit", "no/where/report.xml"), "write no/where/report.xml: open no/where/"},
		"--junit over --html":            {r.kubectlWatch("--junit", "report.html", "--html", "report.html"), "--html and --junit name the same file; give two"},
		"--html over a directory":        {r.kubectlWatch("--html", "."), "write .: it is a directory; give the name of a file"},
		"--budget with --fault":          {r.kubectlWatch("--budget", "5m", "--fault", "delay=1s"), "give --fault or --budget, not both"},
		"--budget before the beginning":  {r.kubectlWatch("--budget", "-1s"), "--budget and --parallel 0 or more"},
		"--budget of a moment":           {r.kubectlWatch("--budget", "1ms"), "no plan was run: the runs without faults took the whole budget of 1ms; give a longer one"},
		"--resume without --dir":         {r.kubectlWatch("--resume"), "--resume needs --dir"},
		"init without a controller":      {[]string{"torture", "init"}, "requires at least 1 arg(s), only received 0"},
		"init into a directory":          {[]string{"torture", "init", "--scenario", ".", "--", "true"}, "write .: it is a directory; give the name of a file"},
		"init with a missing sample":     {[]string{"torture", "init", "--scenario", "new.yaml", "--sample", "nowhere.yaml", "--", "true"}, "--sample: open nowhere.yaml"},
		"init with time that is none":    {[]string{"torture", "init", "--scenario", "new.yaml", "--meanwhile", "-1s", "--", "true"}, "--meanwhile must not be negative"},
		"init of a controller that ends": {[]string{"torture", "init", "--scenario", "new.yaml", "--", "false"}, "at its start, without any fault, died: it exited by itself, with exit status 1"},
		"check without a scenario":       {[]string{"torture", "check", "--", "true"}, `required flag(s) "scenario" not set`},
		"check of a whole cluster":       {[]string{"torture", "check", "--scenario", "cluster.yaml", "--nodes", "9", "--", "true"}, `leave it out, and set "nodes" in cluster.yaml`},
		"check without a controller":     {[]string{"torture", "check", "--scenario", "watch.yaml"}, "the scenario names no controller; give its command after --"},
		"one that does not do it":        {append([]string{"torture", "--scenario", "never.yaml"}, r.kubectlWatch()[3:]...), `change lost: it has not printed "never"`},
	} {
		t.Run(name, func(t *testing.T) {
			out, status := r.workshop("", c.args...)
			require.Equal(t, 1, status, "%s", out)
			require.Contains(t, out, c.want)
			if strings.Contains(out, "\nlog: ") { // of the run without faults that failed
				r.removeKept()
			}
			r.requireNothingLeft()
		})
	}
}

func TestReplayLines(t *testing.T) {
	flags := []string{"--scenario", "my scenario.yaml", "--fault", "verb=delete,nth=2,refuse=500"}
	controller := []string{"./run", "--kubeconfig={kubeconfig}", "it's $HOME"}
	require.Equal(t, `workshop torture --scenario 'my scenario.yaml' --fault verb=delete,nth=2,refuse=500 -- ./run --kubeconfig={kubeconfig} 'it'\''s $HOME'`,
		invoked{program: "workshop"}.line(flags, controller))
	require.Equal(t, `'/home/a b/workshop' torture --scenario 'my scenario.yaml' --fault verb=delete,nth=2,refuse=500`,
		invoked{program: "/home/a b/workshop"}.line(flags, nil))
	flags[1] = "03/scenario.yaml"
	require.Equal(t, `make torture SCENARIO=03/scenario.yaml TORTURE='--fault verb=delete,nth=2,refuse=500'`, invoked{make: true}.line(flags, nil))

	// What make passes on is what was meant.
	makefile := filepath.Join(t.TempDir(), "Makefile")
	require.NoError(t, os.WriteFile(makefile, []byte("torture:\n\t@printf '%s\\n' torture --scenario \"$(SCENARIO)\" $(TORTURE)\n"), 0o600))
	line := strings.Replace(invoked{make: true}.line(flags, controller), "make ", "make -f "+makefile+" ", 1)
	out, err := exec.Command("sh", "-c", line).Output()
	require.NoError(t, err)
	require.Equal(t, strings.Join(append(append([]string{"torture"}, flags...), append([]string{"--"}, controller...)...), "\n")+"\n", string(out))
}

// A controller whose namespace is only that of its Lease, say, and that looks at all, does not see the objects of other runs.
func TestTortureOfAControllerThatIsToldANamespaceAndLooksAtAll(t *testing.T) {
	r := newRepository(t, "$ true")
	out, status := r.workshop("", append(r.kubectlWatch("--kinds", "slow", "--most", "2"), "--all-namespaces")...)
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "looks at all of them all the same, so it is shown its own only: controller\n")
	require.Contains(t, out, "2 plans, 0 failed; ")
}

// What a controller does without the fault as well is not blamed on it.
func TestTortureComparesWithRunsWithoutFaults(t *testing.T) {
	r := newRepository(t, "$ true")
	args := r.kubectlWatch("--kinds", "answered 500", "--most", "1")
	at := slices.Index(args, "--") + 1
	// Once its list has failed, it dies in each run.
	script := `test ! -e broken || { timeout 1 "$0" "$@" >/dev/null 2>&1; echo it is broken; exit 3; }; "$0" "$@" 2>/dev/null || { touch broken; echo it is broken; exit 3; }`
	args = append(append(slices.Clone(args[:at]), "/bin/sh", "-c", script), args[at:]...)
	out, status := r.workshop("", args...)
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "torture: 1 failure: comparing ")
	words := strings.Join(strings.Fields(out), " ")
	require.Contains(t, words, "Not counted, as it comes without the fault, too: died: it exited by itself, with exit status 3: it is broken")
	require.Regexp(t, `failed like this in \d+ of \d+ runs; without its fault, 8 of 8 runs did`, words)
	require.Contains(t, out, "\n1 plan, 0 failed; ")
	r.removeKept()
	r.requireNothingLeft()
}

// A replay runs under the same conditions, and nothing else.
func TestReplayFlags(t *testing.T) {
	fault, err := apiproxy.ParseFault("verb=delete,nth=2,refuse=500")
	require.NoError(t, err)
	plan := torture.Plan{Kind: "answered 500", Faults: []apiproxy.Fault{fault}}
	f := tortureFlags{scenario: "watch.yaml", nodes: 9, parallel: 1, seed: 7, seeds: 20, times: 1, kinds: "killed", first: true, json: true, dir: "kept"}
	require.Equal(t, strings.Fields("--scenario watch.yaml --nodes 9 --parallel 1 --fault verb=delete,nth=2,refuse=500"), f.replay(plan))
	f.nodes, f.parallel = defaultNodes, 0
	require.Equal(t, strings.Fields("--scenario watch.yaml --fault verb=delete,nth=2,refuse=500"), f.replay(plan))
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
			var out strings.Builder
			for lines.Scan() && !strings.Contains(lines.Text(), "plans done") {
				fmt.Fprintln(&out, lines.Text())
			}
			require.Contains(t, lines.Text(), "plans done", "%s", out.String())
			require.Eventually(t, func() bool { return running() }, time.Minute, 20*time.Millisecond)
			require.NoError(t, cmd.Process.Signal(signal))
			for lines.Scan() { // so that nobody blocks on writing them
			}
			require.Error(t, cmd.Wait())
			if signal == os.Interrupt {
				require.Equal(t, 130, cmd.ProcessState.ExitCode())
			}
			require.Eventually(t, func() bool { return !running() }, time.Minute, 20*time.Millisecond, "a controller is left")
			// Only the outcomes may be left, with which the run can be resumed.
			require.Eventually(t, func() bool {
				left, err := os.ReadDir(r.temp)
				return err == nil && !slices.ContainsFunc(left, func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), "workshop-torture-") })
			}, time.Minute, 20*time.Millisecond, "something is left in %s", r.temp)
		})
	}
}
