package mutants

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/torture"
)

const good = "Bug: it does too much.\nShows: always.\nExpect: did too much, died\n\n--- a/x.go\n+++ b/x.go\n"

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	_, err := Read(dir, "")
	require.ErrorContains(t, err, "there are no mutants in")
	write("m.patch", good)
	write("n.patch", good)
	write("README.md", "no patch")
	_, err = Read(dir, "m,nobody")
	require.ErrorContains(t, err, `there is no mutant "nobody"`)
	all, err := Read(dir, "")
	require.NoError(t, err)
	require.Len(t, all, 2)
	one, err := Read(dir, "n,")
	require.NoError(t, err)
	require.Equal(t, all[1:], one)
	require.Equal(t, []torture.Verdict{torture.TooMuch, torture.Died}, one[0].Expect)
	require.Empty(t, one[0].Faults)
	write("o.patch", strings.Replace(good, "Expect:", "Fault: verb=patch,nth=2,kill=after\nFault: verb=patch,nth=3,kill=after\nExpect:", 1))
	one, err = Read(dir, "o")
	require.NoError(t, err)
	require.Len(t, one[0].Faults, 2)
	require.Equal(t, "verb=patch,nth=2,kill=after", one[0].Faults[0].String())
	require.Equal(t, "verb=patch,nth=3,kill=after", one[0].Faults[1].String())
	for text, want := range map[string]string{
		"":                               "a patch must have a header",
		"Bug: x\n\n--- a\n":              `its header must have a line that begins with "Bug:", and one with "Expect:"`,
		"Expect: died\n\n--- a\n":        `its header must have a line that begins with "Bug:"`,
		"Bug: x\nExpect: sad\n\n--- a\n": `there is no verdict "sad"`,
		"Bug: x\nFault: color=red\nExpect: died\n\n--- a\n": `color`,
	} {
		write("m.patch", text)
		_, err := Read(dir, "")
		require.ErrorContains(t, err, want)
	}
}

// A copy has what it takes to build, and nothing else.
func TestCopySources(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for _, file := range []string{"go.mod", "go.sum", "a.go", "a_test.go", "README.md", "cmd/b/main.go", "exercises/go.mod", "exercises/c.go", ".git/d.go"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(from, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(from, file), []byte(file), 0o600))
	}
	require.NoError(t, copySources(from, to))
	var copied []string
	require.NoError(t, filepath.WalkDir(to, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			copied = append(copied, strings.TrimPrefix(path, to+"/"))
		}
		return err
	}))
	require.Equal(t, []string{"a.go", "cmd/b/main.go", "go.mod", "go.sum"}, copied)
}

// verdict returns a pointer to a verdict of the controller without the bug.
func verdict(v torture.Verdict) *torture.Verdict { return &v }

// A mutant counts as caught only if the controller without the bug passes the same plan. What is missed says what it is.
func TestCaught(t *testing.T) {
	m := Mutant{Name: "m", Bug: "it never looks", Expect: []torture.Verdict{torture.Died, torture.Lost}}
	passed := verdict(torture.Passed)
	for name, c := range map[string]struct {
		result Result
		caught bool
		says   string
		row    string // of the table
	}{
		"with a verdict that it expects": {Result{verdict: torture.Lost, control: passed}, true, `"change lost" ()`, "change lost"},
		"with another verdict":           {Result{verdict: torture.NoRest, message: "9 writes", control: passed}, false, `"does not come to rest" (9 writes)`, "WRONG CAUSE: does not come to rest"},
		"not found":                      {Result{}, false, "no plan failed twice", "NOT FOUND"},
		"not found, and compared":        {Result{control: passed}, false, "no plan failed twice", "NOT FOUND"},
		"as without the bug":             {Result{verdict: torture.Lost, control: verdict(torture.Lost)}, false, `"change lost" (), but the controller without the bug fails too: "change lost"`, "change lost, AS WITHOUT THE BUG"},
		"not compared":                   {Result{verdict: torture.Lost}, false, `"change lost" (), but the controller without the bug could not be run in the same plan, or never met its fault`, "change lost, NOT COMPARED"},
		"does not build":                 {Result{buildErr: errors.New("exit status 1"), verdict: torture.Lost, control: passed}, false, "does not build: exit status 1", "DOES NOT BUILD"},
	} {
		t.Run(name, func(t *testing.T) {
			c.result.Mutant = m
			require.Equal(t, c.caught, c.result.Caught())
			says := "m: " + c.says + `; expected one of ["died" "change lost"]. The bug: it never looks`
			require.Equal(t, says, c.result.String())
			var text strings.Builder
			err := Report(&text, []Result{c.result})
			require.Regexp(t, `\nm +`+regexp.QuoteMeta(c.row)+`  `, text.String())
			if c.caught {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, "not caught: m")
			require.Contains(t, text.String(), "\n"+says+"\n")
		})
	}
}

func TestReport(t *testing.T) {
	m := Mutant{Name: "m", Expect: []torture.Verdict{torture.Died}}
	caught := Result{Mutant: m, verdict: torture.Died, kind: "slow", control: verdict(torture.Passed)}
	steady, unsteady := caught, caught
	steady.replays, steady.same = 3, 3
	unsteady.replays, unsteady.same = 3, 2
	for want, results := range map[string][]Result{
		"":                               {caught, steady},
		"not caught: m":                  {caught, {Mutant: m}},
		"not caught: m, m":               {{Mutant: m, verdict: torture.Lost, message: "oh"}, {Mutant: m}},
		"not the same verdict each time": {unsteady},
	} {
		var text strings.Builder
		err := Report(&text, results)
		if want == "" {
			require.NoError(t, err)
			require.Contains(t, text.String(), "2 of 2 mutants caught")
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// lab is one in which each run comes to what a test says.
type lab struct {
	mutant  []*torture.Report // of the runs of the mutant, in turn
	correct []torture.Outcome // of the runs of the controller without the bug, in turn
}

func (l *lab) run(_ context.Context, o torture.Options) (*torture.Report, error) {
	if o.Reference != nil {
		report := l.mutant[0]
		l.mutant = l.mutant[1:]
		return report, nil
	}
	outcome := l.correct[0]
	l.correct = l.correct[1:]
	return &torture.Report{Outcomes: []torture.Outcome{outcome}}, nil
}

func TestJudge(t *testing.T) {
	plan := torture.Plan{Kind: "slow"}
	lost, unmet := torture.Outcome{Plan: plan, Verdict: torture.Lost, Cause: "a"}, torture.Outcome{Plan: plan, NotMet: true}
	report := func(outcomes ...torture.Outcome) *torture.Report {
		return &torture.Report{Planned: []torture.Plan{plan}, Outcomes: outcomes}
	}
	nothing := report()
	for name, c := range map[string]struct {
		lab     lab
		replays int
		build   error
		caught  bool
		says    string
	}{
		"fails twice":                  {lab: lab{[]*torture.Report{report(lost, lost)}, []torture.Outcome{{}}}, caught: true, says: `"change lost"`},
		"fails twice, later":           {lab: lab{[]*torture.Report{nothing, report(lost, lost)}, []torture.Outcome{{}}}, caught: true, says: `"change lost"`},
		"fails once":                   {lab: lab{[]*torture.Report{report(lost), nothing}, nil}, says: "no plan failed twice"},
		"the original fails, too":      {lab: lab{[]*torture.Report{report(lost, lost)}, []torture.Outcome{lost}}, says: "fails too"},
		"the original meets its fault": {lab: lab{[]*torture.Report{report(lost, lost)}, []torture.Outcome{unmet, {Verdict: torture.NotRun}, {}}}, caught: true, says: `"change lost"`},
		"the original never meets it":  {lab: lab{[]*torture.Report{report(lost, lost)}, []torture.Outcome{unmet, unmet, unmet}}, says: "could not be run"},
		"does not build":               {build: errors.New("exit status 1"), says: "does not build: exit status 1"},
		"fails once in three again":    {lab: lab{[]*torture.Report{report(lost, lost), report(lost, torture.Outcome{Plan: plan}, unmet)}, []torture.Outcome{{}}}, replays: 3, caught: true, says: `"change lost"`},
	} {
		t.Run(name, func(t *testing.T) {
			judge := &trial{
				Options: Options{Replays: c.replays}, run: c.lab.run, correct: torture.Options{Commands: torture.Commands{}},
				build: func(context.Context, Mutant) (torture.Commands, error) { return torture.Commands{}, c.build },
			}
			result, err := judge.judge(t.Context(), Mutant{Name: "m", Expect: []torture.Verdict{torture.Lost}})
			require.NoError(t, err, "it costs no more than a row")
			require.Equal(t, c.caught, result.Caught())
			require.Contains(t, result.String(), c.says)
			require.Empty(t, c.lab.mutant)
			require.Empty(t, c.lab.correct)
			if c.replays > 0 {
				require.Equal(t, []int{3, 1}, []int{result.replays, result.same})
			}
		})
	}
}

// A plan that is known to show the bug runs with the mutant and without the bug at the same time.
func TestJudgeWithAKnownPlan(t *testing.T) {
	plan := torture.Plan{Kind: "slow"}
	lost := torture.Outcome{Plan: plan, Verdict: torture.Lost}
	synctest.Test(t, func(t *testing.T) {
		judge := &trial{
			Options: Options{Plans: map[string]torture.Plan{"m": plan}}, correct: torture.Options{Commands: torture.Commands{}},
			build: func(context.Context, Mutant) (torture.Commands, error) { return nil, nil },
			run: func(_ context.Context, o torture.Options) (*torture.Report, error) {
				require.Equal(t, []torture.Plan{plan}, o.Plans)
				time.Sleep(time.Minute)
				if o.Reference == nil { // it is the controller without the bug
					return &torture.Report{Outcomes: []torture.Outcome{{Plan: plan}}}, nil
				}
				return &torture.Report{Planned: []torture.Plan{plan}, Outcomes: []torture.Outcome{lost, lost}}, nil
			},
		}
		begin := time.Now()
		result, err := judge.judge(t.Context(), Mutant{Name: "m", Expect: []torture.Verdict{torture.Lost}})
		require.NoError(t, err)
		require.True(t, result.Caught(), "%s", result)
		require.Equal(t, time.Minute, time.Since(begin))
	})
}

func TestNotEveryScenarioHasSomethingToBreak(t *testing.T) {
	for _, of := range []*torture.Controller{nil, {Program: torture.Program{Module: ".", Package: "k8s.io/sample-controller"}}} {
		_, err := build(t.Context(), &torture.Scenario{Controller: of}, t.TempDir(), Mutant{})
		require.ErrorContains(t, err, "no module with the sources of its programs")
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct{ runs, atOnce, mutants, runsEach int }{
		{runs: 12, mutants: 2, runsEach: 6},
		{runs: 4, mutants: 2, runsEach: 2}, // whole clusters, on two processors
		{runs: 1, mutants: 1, runsEach: 1}, // in a fixed namespace
		{runs: 96, mutants: 16, runsEach: 6},
		{runs: 4, atOnce: 1, mutants: 1, runsEach: 4},
		{runs: 4, atOnce: 3, mutants: 3, runsEach: 1},
		{runs: 4, atOnce: 9, mutants: 9, runsEach: 1}, // as asked for
	} {
		mutants, runsEach := share(c.runs, c.atOnce)
		require.Equal(t, []int{c.mutants, c.runsEach}, []int{mutants, runsEach}, c)
	}
}

// What was judged before an interruption is known, and what was not is left out.
func TestJudgeAllIsInterrupted(t *testing.T) {
	stop := errors.New("Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	judged := make(chan struct{})
	o := Options{Mutants: []Mutant{{Name: "slow"}, {Name: "quick", Expect: []torture.Verdict{torture.Died}}, {Name: "slow, too"}}, AtOnce: 3, Progress: io.Discard}
	results, err := o.judgeAll(ctx, func(ctx context.Context, m Mutant) (Result, error) {
		if m.Name == "quick" {
			defer close(judged)
			return Result{Mutant: m, verdict: torture.Died, control: verdict(torture.Passed)}, nil
		}
		<-judged
		cancel(stop)
		<-ctx.Done()
		return Result{Mutant: m, verdict: torture.Lost}, context.Cause(ctx)
	})
	require.ErrorIs(t, err, stop)
	require.Len(t, results, 1)
	var text strings.Builder
	require.NoError(t, Report(&text, results))
	require.Contains(t, text.String(), "quick")
	require.Contains(t, text.String(), "1 of 1 mutants caught")
}
