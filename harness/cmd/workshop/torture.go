package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/proc"
	"example.com/controllers/harness/torture"
	"example.com/controllers/harness/torture/reporthtml"
)

// tortureFlags are the flags of "workshop torture".
type tortureFlags struct {
	scenario string
	faults   []string
	times    int
	seed     uint64
	seeds    int
	parallel int
	most     int
	budget   time.Duration
	alone    bool
	kinds    string
	nodes    int
	first    bool
	json     bool
	html     string
	junit    string
	dir      string
	resume   bool
	guarded  bool
	onFlags
	given func(flag string) bool // reports whether a flag is on the command line
}

// defaultNodes is how many simulated nodes the control plane of "workshop torture" has.
const defaultNodes = 6

func tortureCommand() *cobra.Command {
	var f tortureFlags
	cmd := &cobra.Command{
		Use:   "torture --scenario FILE [-- CONTROLLER [ARGUMENT]...]",
		Short: "Run a controller through a scenario once for each fault that it can meet",
		Long: `Run a controller through a scenario, again and again, each time with different faults: an
error, a lost reply, a broken watch, a kill. In the end, report what the controller did wrong,
by cause, and how to replay it.

The controller may be any program. In its arguments, {kubeconfig} is replaced by the path of
the kubeconfig that it must use, {server} by the URL of the API server in it, {namespace} by the
namespace of the run, and each {port} by a port that no other program listens on. Unless the scenario has "scope: cluster", a controller
that lists all namespaces sees only the one of its run, as far as the scenario's "resources" name
what it lists.

  workshop torture --scenario torture.yaml -- ./my-controller --kubeconfig={kubeconfig} --namespace={namespace}

The scenario is a YAML file: manifests to apply, steps, when the job is done, what must
always hold, and what may differ from a run without faults. It may also name a Go program to
build and run. Its fields are documented in harness/torture/scenario.go.

With --html, the report is also written as one HTML file, which can be attached to a bug report:
it draws each run that failed above one without faults.

The directory of --dir keeps the outcome of each plan and, for each plan that failed, the
controller's log (.log), the requests as a table (.requests), and the recording (.jsonl),
which "workshop requests" and "workshop bill" read. After Ctrl-C, or an error of torture's own,
the report covers the plans that were run, and --dir DIR --resume runs the others.

With --fault, one plan runs only. ` + apiproxy.FaultUsage + `

` + apiproxy.ProgramFaultUsage + `

With --on, the plans run in the Pods of an Indexed Job on another cluster, each with a control
plane of its own: the baseline is learned here first, and failures that were seen once are
repeated here. The Job is deleted at the end, and at Ctrl-C.

  workshop torture --scenario torture.yaml --seeds 10000 --on context:NAME --workers 20 --image REGISTRY/torture:dev

Without --most or --budget, all plans run, which may take hours. The report says which of the
controller's writes no plan has broken.

Exit status:
  0    no failure was confirmed, that is, seen twice
  1    a failure was confirmed, no plan could be run with its fault, or torture itself
       failed; the output says which
  130  interrupted`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.given = cmd.Flags().Changed
			if !f.guarded {
				if err := f.onFlags.check(); err != nil {
					return err
				}
				if err := f.ask(cmd.Context()); err != nil { // under the guard, standard input is the guard's
					return err
				}
				return rerunUnderGuard(cmd.Context())
			}
			guard.AwaitInterrupt()
			return runTorture(cmd.Context(), f, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.scenario, "scenario", "", "file of the scenario")
	flags.StringArrayVar(&f.faults, "fault", nil, "run one plan only, with this fault, as described above; may be repeated for a plan with several")
	flags.IntVar(&f.times, "times", 1, "how often to run the plan of --fault")
	flags.Uint64Var(&f.seed, "seed", 1, "first seed of --seeds")
	flags.IntVar(&f.seeds, "seeds", 0, "number of plans to draw at random, with two or three faults each; 0: one plan for each possible fault")
	flags.IntVar(&f.most, "most", 0, "maximum number of plans to run, the most telling first; 0: all")
	flags.DurationVar(&f.budget, "budget", 0, "time for everything, such as 5m, of which failures get the last third, to be repeated and compared; the most telling plans come first; 0: no limit")
	flags.BoolVar(&f.alone, "alone", false, "run each plan by itself; otherwise, those whose faults come in different steps share runs, and are run alone if anything is unusual")
	flags.StringVar(&f.kinds, "kinds", "", "make plans only of the kinds of fault that match this `regexp`, such as 'killed|frozen'; default: all")
	flags.IntVar(&f.parallel, "parallel", 0, "how many runs at a time; 0: what the machine's processors and memory allow")
	flags.IntVar(&f.nodes, "nodes", defaultNodes, "number of simulated nodes; a scenario with \"scope: cluster\" has its own")
	flags.BoolVar(&f.first, "first", false, "stop at the first failure")
	flags.BoolVar(&f.json, "json", false, "print the report as JSON")
	flags.StringVar(&f.html, "html", "", "also write the report to this file, as a page for a browser that draws each failure")
	flags.StringVar(&f.junit, "junit", "", "also write the report to this file, as JUnit XML for a CI system")
	flags.StringVar(&f.dir, "dir", "", "directory for the outcomes and for the logs and requests of failed plans; default: a new one among the temporary files, at the first failure")
	flags.BoolVar(&f.resume, "resume", false, "run only the plans whose outcomes are not in --dir yet, and report on all")
	flags.BoolVar(&f.guarded, "guarded", false, "")
	f.onFlags.add(cmd)
	_ = flags.MarkHidden("guarded")
	_ = cmd.MarkFlagRequired("scenario")
	cmd.AddCommand(tortureInitCommand(), tortureCheckCommand())
	return cmd
}

func runTorture(ctx context.Context, f tortureFlags, args []string) (err error) {
	switch {
	case f.times < 1 || f.seeds < 0 || f.parallel < 0 || f.most < 0 || f.nodes < 1 || f.budget < 0:
		return errors.New("--times and --nodes must be 1 or more, --seeds, --most, --budget and --parallel 0 or more")
	case len(f.faults) > 0 && f.budget > 0:
		return errors.New("give --fault or --budget, not both: how often to run the plan of --fault is --times")
	case f.on != "" && f.budget > 0:
		return errors.New("give --on or --budget, not both: the plans of other machines are handed out at the beginning; use --most")
	case len(f.faults) > 0 && f.seeds > 0:
		return errors.New("give --fault or --seeds, not both")
	case len(f.faults) > 0 && f.kinds != "":
		return errors.New("give --fault or --kinds, not both")
	case len(f.faults) > 0 && f.given("most"):
		return errors.New("give --fault or --most, not both: how often to run the plan of --fault is --times")
	case f.seeds > 0 && f.given("most"):
		return errors.New("give --seeds or --most, not both: --seeds is the number of plans")
	case len(f.faults) == 0 && f.given("times"):
		return errors.New("--times needs --fault, the plan to run so often")
	case f.seeds == 0 && f.given("seed"):
		return errors.New("--seed needs --seeds, the number of plans to draw")
	case f.resume && f.dir == "":
		return errors.New("--resume needs --dir, the directory of the run to resume")
	}
	var kinds *regexp.Regexp
	if f.kinds != "" {
		if kinds, err = regexp.Compile(f.kinds); err != nil {
			return fmt.Errorf("--kinds: %w", err)
		}
	}
	for _, file := range []string{f.html, f.junit} {
		if file == "" {
			continue
		}
		if err := checkReplaceable(file); err != nil { // rather now than in the end
			return err
		}
	}
	if f.html != "" && f.html == f.junit {
		return errors.New("--html and --junit name the same file; give two")
	}
	scenario, err := torture.Read(f.scenario)
	if err != nil {
		return err
	}
	if scenario.Scope == "cluster" && f.given("nodes") {
		return fmt.Errorf("--nodes has no effect on a scenario with \"scope: cluster\"; leave it out, and set \"nodes\" in %s", f.scenario)
	}
	commands := torture.Single(args...)
	if len(args) == 0 {
		if commands, err = scenario.Build(ctx, os.Stderr); err != nil {
			return err
		}
	}
	o := torture.Options{
		Scenario: scenario, Commands: commands, Replays: f.times, Seed: f.seed, Seeds: f.seeds, Parallel: f.parallel, MaxPlans: f.most, Budget: f.budget, Alone: f.alone, Kinds: kinds,
		FirstOnly: f.first, Nodes: f.nodes, Progress: os.Stderr,
	}
	if o.Faults, err = parseFaults(f.faults); err != nil {
		return err
	}
	if f.on != "" {
		root, rootErr := repositoryRoot(ctx)
		if rootErr != nil {
			return rootErr
		}
		workers, openErr := f.open(ctx, root)
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, workers.close()) }()
		o.Elsewhere = workers.elsewhere(root, f, scenario, args)
	}
	keep, err := torture.OpenKeep(f.dir, scenario, commands, f.resume)
	if err != nil {
		return err
	}
	lab, err := torture.Open(ctx, f.nodes, os.Stderr)
	if err != nil {
		return errors.Join(err, keep.Close())
	}
	defer func() { err = errors.Join(err, keep.Close(), lab.Close()) }()
	report, planned, runErr := lab.RunKept(ctx, o, keep)
	d := torture.Details{Keep: keep, Interrupted: ctx.Err() != nil, Planned: planned}
	return f.finish(os.Stdout, report, runErr, d, invocation(), args)
}

// finish prints the report of a run of the controller with this command, and returns the error with which torture ends. If
// the run ended early, by runErr or Ctrl-C, it stores the outcomes, and the report has the command that runs the other
// plans.
func (f tortureFlags) finish(w io.Writer, report *torture.Report, runErr error, d torture.Details, how invoked, controller []string) error {
	if report == nil || len(report.Outcomes) == 0 {
		return runErr
	}
	if !d.Interrupted {
		d.Err = runErr
	}
	d.Replay = func(p torture.Plan) string { return how.line(f.replay(p), controller) }
	d.View, d.Scenario = how.view, f.scenario
	if d.EndedEarly() && d.Keep.Flush() == nil {
		d.Resume = how.line(f.continuation(d.Keep.Dir()), controller)
	}
	summary := report.Summary(d)
	write := summary.WriteText
	if f.json {
		write = summary.WriteJSON
	}
	err := errors.Join(d.Err, write(w))
	for _, also := range []struct {
		file, what string
		write      func(io.Writer) error
	}{
		{f.html, "as a page", func(w io.Writer) error { return reporthtml.Write(w, summary) }},
		{f.junit, "for CI", summary.WriteJUnit},
	} {
		if also.file == "" {
			continue
		}
		alsoErr := replaceFile(also.file, also.write)
		if alsoErr == nil {
			fmt.Fprintf(os.Stderr, "torture: the report %s: %s\n", also.what, also.file)
		}
		err = errors.Join(err, alsoErr)
	}
	switch {
	case d.Interrupted:
		return errors.Join(exitStatus(130), err)
	case err != nil:
		return err
	case len(report.Failures()) > 0 || !report.Judges():
		return exitStatus(1)
	}
	return nil
}

// replay returns the flags that replay a plan, without those that only choose plans.
func (f tortureFlags) replay(p torture.Plan) []string {
	flags := f.common()
	for _, fault := range p.Faults {
		flags = append(flags, "--fault", fault.String())
	}
	return flags
}

// continuation returns the flags that resume this run.
func (f tortureFlags) continuation(dir string) []string {
	flags := f.common()
	for _, fault := range f.faults {
		flags = append(flags, "--fault", fault)
	}
	for _, n := range []struct {
		flag            string
		value, standard uint64
	}{
		{"--times", uint64(f.times), 1}, {"--workers", uint64(f.workers), 3}, {"--seeds", uint64(f.seeds), 0}, {"--seed", f.seed, 1}, {"--most", uint64(f.most), 0},
	} {
		if n.value != n.standard {
			flags = append(flags, n.flag, fmt.Sprint(n.value))
		}
	}
	if f.alone {
		flags = append(flags, "--alone")
	}
	if f.budget > 0 {
		flags = append(flags, "--budget", f.budget.String())
	}
	if f.first {
		flags = append(flags, "--first")
	}
	for _, t := range []struct{ flag, value, standard string }{
		{"--kinds", f.kinds, ""}, {"--on", f.on, ""}, {"--image", f.image, ""}, {"--job-namespace", f.namespace, "workshop-torture"}, {"--cpu", f.cpu, "1"}, {"--memory", f.memory, "3Gi"},
	} {
		if t.value != t.standard {
			flags = append(flags, t.flag, t.value)
		}
	}
	if f.json {
		flags = append(flags, "--json")
	}
	if f.html != "" {
		flags = append(flags, "--html", f.html)
	}
	if f.junit != "" {
		flags = append(flags, "--junit", f.junit)
	}
	return append(flags, "--dir", dir, "--resume")
}

// common returns the flags that every run of this scenario needs.
func (f tortureFlags) common() []string {
	flags := []string{"--scenario", f.scenario}
	if f.nodes != defaultNodes {
		flags = append(flags, "--nodes", fmt.Sprint(f.nodes))
	}
	if f.parallel != 0 { // with a fixed port, the runs of the baseline must not overlap either
		flags = append(flags, "--parallel", fmt.Sprint(f.parallel))
	}
	return flags
}

// invoked is how this program was called: by make, or as a program.
type invoked struct {
	make    bool
	program string
}

// invocation finds out how the program was called. A person whose PATH does not lead to it needs its path.
func invocation() invoked {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	how := invoked{make: os.Getenv(proc.WatchVariable) != "" && os.Getenv("MAKELEVEL") != "", program: self}
	name := filepath.Base(self)
	if found, err := exec.LookPath(name); err == nil && sameFile(found, self) {
		how.program = name
	}
	return how
}

func sameFile(a, b string) bool {
	aInfo, aErr := os.Stat(a)
	bInfo, bErr := os.Stat(b)
	return aErr == nil && bErr == nil && os.SameFile(aInfo, bInfo)
}

// line returns a command for a shell that runs torture with these flags on a controller, "make torture" if this run came
// from there. The first flag is --scenario.
func (how invoked) line(flags, controller []string) string {
	words := slices.Clone(flags)
	if len(controller) > 0 {
		words = append(append(words, "--"), controller...)
	}
	for i, word := range words {
		words[i] = shellWord(word)
	}
	if !how.make {
		return shellWord(how.program) + " torture " + strings.Join(words, " ")
	}
	// make expands $ in the values of variables.
	forMake := func(text string) string { return shellWord(strings.ReplaceAll(text, "$", "$$")) }
	return fmt.Sprintf("make torture SCENARIO=%s TORTURE=%s", forMake(flags[1]), forMake(strings.Join(words[2:], " ")))
}

// view returns a command for a shell that draws a recording.
func (how invoked) view(path string) string {
	if how.make {
		return "make view RECORDING=" + shellWord(shellWord(strings.ReplaceAll(path, "$", "$$")))
	}
	return shellWord(how.program) + " view " + shellWord(path)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

var placeholders = strings.NewReplacer("{kubeconfig}", "kubeconfig", "{server}", "server", "{namespace}", "namespace", "{port}", "port")

// shellWord quotes a word for a shell, if that is necessary.
func shellWord(word string) string {
	if plainWord.MatchString(placeholders.Replace(word)) { // braces without a comma are plain, too
		return word
	}
	return quote(word)
}
