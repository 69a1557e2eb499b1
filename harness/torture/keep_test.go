package torture

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

const keptScenario = `
manifests: [manifests]
resources: [pods]
steps: []
converged: [{rule: "true"}]
`

// keptWorld is a directory with a scenario, its manifests and a program.
func keptWorld(t *testing.T) (dir string, read func() *Scenario) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{"scenario.yaml": keptScenario, "manifests/pod.yaml": "kind: Pod\n", "program": "#!/bin/sh\n", "controller.py": "print(1)\n"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o700))
	}
	return dir, func() *Scenario {
		s, err := Read(filepath.Join(dir, "scenario.yaml"))
		require.NoError(t, err)
		return s
	}
}

func TestKeep(t *testing.T) {
	dir, read := keptWorld(t)
	command := []string{filepath.Join(dir, "program"), "--kubeconfig={kubeconfig}"}
	kept := filepath.Join(dir, "kept")
	k, err := OpenKeep(kept, read(), Single(command...), false)
	require.NoError(t, err)
	outcomes := small().Outcomes[:4]
	for i := range outcomes {
		outcomes[i].Duration, outcomes[i].Notes = time.Second, []string{"a note"}
	}
	for i := range outcomes[2].History.Requests {
		outcomes[2].History.Requests[i].ID = int64(i) + 1 // by which a recording tells them apart
	}
	outcomes[2].Log, outcomes[2].FailedAt = "I1122 failed\n", time.Unix(1e9, 0).UTC()
	outcomes[2].History.Events = []history.Event{{Request: 3, Type: "ADDED", Resource: "pods"}}
	for _, o := range outcomes {
		k.Add(o)
	}
	require.Empty(t, k.Files(outcomes[0]), "it has passed")
	require.Equal(t, filepath.Join(kept, "01-change-lost-request-lost"), k.Files(outcomes[2]))
	require.Equal(t, filepath.Join(kept, "02-died-seed-3"), k.Files(outcomes[3]))
	require.NoError(t, k.Close())
	log, err := os.ReadFile(k.Files(outcomes[2]) + ".log")
	require.NoError(t, err)
	require.Equal(t, "I1122 failed\n", string(log))
	table, err := os.ReadFile(k.Files(outcomes[2]) + ".requests")
	require.NoError(t, err)
	require.Regexp(t, `delete +pods +shop/a +- +request lost`, string(table))

	// What was read is what was stored.
	file, err := os.OpenFile(filepath.Join(kept, outcomesFile), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString(`{"kind":"slow","fau`) // killed while it wrote this
	require.NoError(t, err)
	require.NoError(t, file.Close())
	again, err := OpenKeep(kept, read(), Single(command...), true)
	require.NoError(t, err)
	require.Len(t, again.earlier, 4)
	for i, o := range outcomes {
		require.Equal(t, o.Plan.Kind, again.earlier[i].Plan.Kind)
		require.Equal(t, o.Plan.String(), again.earlier[i].Plan.String())
		require.Equal(t, k.Files(o), again.Files(again.earlier[i]))
		require.Equal(t, excerpt(o), excerpt(again.earlier[i]))
		o.History, o.Plan = again.earlier[i].History, again.earlier[i].Plan // compared above
		require.Equal(t, o, again.earlier[i])
	}
	require.Len(t, again.earlier[2].History.Events, 1)
	again.Add(outcomes[3])
	require.NoError(t, again.Close())
	third, err := OpenKeep(kept, read(), Single(command...), true)
	require.NoError(t, err)
	require.Len(t, third.earlier, 5)
	require.Equal(t, filepath.Join(kept, "03-died-seed-3"), third.Files(third.earlier[4]), "each has files of its own")
	require.NoError(t, third.Close())
}

// A plan died, and was lost twice when it was repeated: that is another failure, with files of its own.
func TestKeepARepetition(t *testing.T) {
	dir, read := keptWorld(t)
	kept := filepath.Join(dir, "kept")
	k, err := OpenKeep(kept, read(), Single(filepath.Join(dir, "program")), false)
	require.NoError(t, err)
	died := failed(Died, "it died")[0]
	report := &Report{Outcomes: []Outcome{died}}
	k.Add(died)
	for _, log := range []string{"first", "second"} {
		lost := failed(Lost, "it was lost")[0]
		lost.Plan, lost.Log = died.Plan, log
		report.retried(lost)
	}
	for range 2 { // the second time, there is nothing left to do
		k.addRepetitions(report)
	}
	var files []string
	for _, g := range report.Groups() {
		files = append(files, filepath.Base(k.Files(g.Failures[0])))
	}
	require.ElementsMatch(t, []string{"01-died-" + slug(died.Plan.Kind), "02-change-lost-" + slug(died.Plan.Kind)}, files)
	log, err := os.ReadFile(filepath.Join(kept, "02-change-lost-"+slug(died.Plan.Kind)+".log"))
	require.NoError(t, err)
	require.Equal(t, "first", string(log))
	require.NoError(t, k.Close())
	again, err := OpenKeep(kept, read(), Single(filepath.Join(dir, "program")), true)
	require.NoError(t, err)
	require.Len(t, again.earlier, 1, "a repetition is no outcome of a plan")
	next := failed(Lost, "it was lost")[0]
	again.Add(next)
	require.Equal(t, "03-change-lost-"+slug(next.Plan.Kind), filepath.Base(again.Files(next)), "it does not overwrite the repetition's files")
	require.NoError(t, again.Close())
}

// Without a directory of the caller's, there is one if it is needed.
func TestKeepInATemporaryDirectory(t *testing.T) {
	dir, read := keptWorld(t)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	k, err := OpenKeep("", read(), Single(filepath.Join(dir, "program")), false)
	require.NoError(t, err)
	k.Add(Outcome{Plan: Plan{Kind: "slow"}, History: &history.History{}})
	require.Empty(t, k.Dir())
	k.Add(failed(Died, "a")[0])
	require.True(t, strings.HasPrefix(k.Dir(), filepath.Join(temp, "workshop-torture-2")), k.Dir())
	require.NoError(t, k.Close())
	text, err := os.ReadFile(filepath.Join(k.Dir(), outcomesFile))
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(string(text), "\n"), "all outcomes, not only the failure's: %s", text)

	second, err := OpenKeep("", read(), Single(filepath.Join(dir, "program")), false)
	require.NoError(t, err)
	require.NoError(t, second.Flush())
	require.Empty(t, second.Dir(), "there is nothing to keep")
	second.Add(Outcome{Plan: Plan{Kind: "slow"}, History: &history.History{}})
	require.NoError(t, second.Flush())
	require.NotEmpty(t, second.Dir())
	require.NotEqual(t, k.Dir(), second.Dir())
	require.NoError(t, second.Close())
}

// A run that ended before its first plan leaves nothing to go on with, and is not in the way of the next.
func TestKeepAfterARunWithoutOutcomes(t *testing.T) {
	dir, read := keptWorld(t)
	open := func(resume bool) (*Keep, error) {
		return OpenKeep(filepath.Join(dir, "kept"), read(), Single(filepath.Join(dir, "program")), resume)
	}
	first, err := open(false)
	require.NoError(t, err)
	for _, resume := range []bool{false, true} {
		_, err = open(resume)
		require.ErrorContains(t, err, "another torture that still runs keeps its outcomes in "+filepath.Join(dir, "kept"))
	}
	require.NoError(t, first.Close())
	overwrite(t, dir, "program", "#!/bin/bash\n")
	second, err := open(false)
	require.NoError(t, err)
	second.Add(Outcome{Plan: Plan{Kind: "slow"}, History: &history.History{}})
	require.NoError(t, second.Close())
	third, err := open(true)
	require.NoError(t, err, "it is of the second program")
	require.NoError(t, third.Close())
}

func TestKeepWrongInput(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		resume bool
		want   string
	}{
		"nothing to resume":  {func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(filepath.Join(dir, "kept"))) }, true, "kept has no outcomes to resume (no outcomes.jsonl)"},
		"a directory in use": {func(*testing.T, string) {}, false, "kept has the outcomes of an earlier run; give --resume"},
		"another scenario": {func(t *testing.T, dir string) { overwrite(t, dir, "scenario.yaml", keptScenario+"quiet: 3s\n") }, true,
			"are those of another scenario, or of this one before its file, its manifests or a program outside of the cluster were changed"},
		"other manifests":  {func(t *testing.T, dir string) { overwrite(t, dir, "manifests/pod.yaml", "kind: Pot\n") }, true, "are those of another scenario, or of this one before its file, its manifests or "},
		"another build":    {func(t *testing.T, dir string) { overwrite(t, dir, "program", "#!/bin/bash\n") }, true, "are those of another build of the controller"},
		"another script":   {func(t *testing.T, dir string) { overwrite(t, dir, "controller.py", "print(2)\n") }, true, "or of this one before a file that its arguments name was changed"},
		"another config":   {func(t *testing.T, dir string) { overwrite(t, dir, "config.yaml", "b: 2\n") }, true, "or of this one before a file that its arguments name was changed"},
		"no outcomes file": {func(t *testing.T, dir string) { overwrite(t, dir, "kept/outcomes.jsonl", "x\n") }, true, "is not a file of outcomes"},
		"an empty file":    {func(t *testing.T, dir string) { overwrite(t, dir, "kept/outcomes.jsonl", "") }, true, "is not a file of outcomes"},
		"a broken line": {func(t *testing.T, dir string) {
			text, err := os.ReadFile(filepath.Join(dir, "kept/outcomes.jsonl"))
			require.NoError(t, err)
			overwrite(t, dir, "kept/outcomes.jsonl", string(text)+"x\n")
		}, true, "outcomes.jsonl:3: invalid character 'x'"},
		"not a directory": {func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "kept")))
			overwrite(t, dir, "kept", "")
		}, false, "create the directory for the outcomes: mkdir "},
	} {
		t.Run(name, func(t *testing.T) {
			dir, read := keptWorld(t)
			overwrite(t, dir, "config.yaml", "a: 1\n")
			command := []string{filepath.Join(dir, "program"), "{dir}/controller.py", "{dir}/manifests", "no-such-file", "--config={dir}/config.yaml"}
			k, err := OpenKeep(filepath.Join(dir, "kept"), read(), Single(command...), false)
			require.NoError(t, err)
			k.Add(Outcome{Plan: Plan{Kind: "slow"}, History: &history.History{}})
			require.NoError(t, k.Close())
			c.change(t, dir)
			_, err = OpenKeep(filepath.Join(dir, "kept"), read(), Single(command...), c.resume)
			require.ErrorContains(t, err, c.want)
		})
	}
	t.Run("another program outside of the cluster", func(t *testing.T) {
		dir, read := keptWorld(t)
		overwrite(t, dir, "scenario.yaml", keptScenario+"outside: {cloud: {module: cloud, package: ., version: v2, resources: [networks], env: {CLOUD: '{url}'}}}\n")
		require.NoError(t, os.Mkdir(filepath.Join(dir, "cloud"), 0o700))
		overwrite(t, dir, "cloud/main.go", "package main")
		command := Single(filepath.Join(dir, "program"))
		k, err := OpenKeep(filepath.Join(dir, "kept"), read(), command, false)
		require.NoError(t, err)
		require.NoError(t, k.Close())
		overwrite(t, dir, "cloud/README.md", "It is a cloud.")
		again, err := OpenKeep(filepath.Join(dir, "kept"), read(), command, true)
		require.NoError(t, err, "that is no source")
		require.NoError(t, again.Close())
		overwrite(t, dir, "cloud/main.go", "package main // changed")
		_, err = OpenKeep(filepath.Join(dir, "kept"), read(), command, true)
		require.ErrorContains(t, err, "or a program outside of the cluster were changed")
	})
	t.Run("other arguments", func(t *testing.T) {
		dir, read := keptWorld(t)
		k, err := OpenKeep(filepath.Join(dir, "kept"), read(), Single(filepath.Join(dir, "program")), false)
		require.NoError(t, err)
		require.NoError(t, k.Close())
		_, err = OpenKeep(filepath.Join(dir, "kept"), read(), Single(filepath.Join(dir, "program"), "--workers=2"), true)
		require.ErrorContains(t, err, "are those of a controller with other arguments")
	})
}

// Manifests and modules may be behind symbolic links to directories, and links may lead in a circle.
func TestKeepFollowsSymbolicLinks(t *testing.T) {
	for name, changed := range map[string]string{
		"the manifests are a link": "elsewhere/pod.yaml", "a base of theirs is one": "base/pod.yaml", "a module is one": "module/main.go",
	} {
		t.Run(name, func(t *testing.T) {
			dir, read := keptWorld(t)
			overwrite(t, dir, "scenario.yaml", keptScenario+"outside: {cloud: {module: cloud, package: ., version: v2, resources: [networks], env: {CLOUD: '{url}'}}}\n")
			require.NoError(t, os.Rename(filepath.Join(dir, "manifests"), filepath.Join(dir, "elsewhere")))
			for _, name := range []string{"base", "module"} {
				require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
			}
			overwrite(t, dir, "base/pod.yaml", "kind: Pod\n")
			overwrite(t, dir, "module/main.go", "package main\n")
			for link, to := range map[string]string{"manifests": "elsewhere", "elsewhere/base": "../base", "base/up": "../elsewhere", "cloud": "module"} {
				require.NoError(t, os.Symlink(to, filepath.Join(dir, link)))
			}
			kept := filepath.Join(t.TempDir(), "kept")
			open := func(resume bool) error {
				k, err := OpenKeep(kept, read(), Single(filepath.Join(dir, "program")), resume)
				if err == nil {
					err = k.Close()
				}
				return err
			}
			require.NoError(t, open(false))
			require.NoError(t, open(true), "nothing has changed")
			overwrite(t, dir, changed, "// changed\n")
			require.ErrorContains(t, open(true), "or of this one before its file, its manifests or a program outside of the cluster were changed")
		})
	}
}

func overwrite(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
}

// A failure to write is reported once and ends the keeping, not the run.
func TestKeepOnAFullDisk(t *testing.T) {
	dir, read := keptWorld(t)
	kept := filepath.Join(dir, "kept")
	k, err := OpenKeep(kept, read(), Single(filepath.Join(dir, "program")), false)
	require.NoError(t, err)
	if runtime.GOOS == "linux" {
		require.NoError(t, k.file.Close())
		k.file, err = os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		k.Add(Outcome{Plan: Plan{Kind: "slow"}, History: &history.History{}})
		require.EqualError(t, k.Err(), "keep the outcomes in "+kept+": write /dev/full: no space left on device")
		k.err = nil
	}
	require.NoError(t, os.Mkdir(filepath.Join(kept, "01-died-slow.log"), 0o700))
	k.Add(failed(Died, "a")[0])
	require.ErrorContains(t, k.Err(), "keep the outcomes in "+kept+": open ")
	first := k.Err()
	k.Add(failed(Died, "a")[0])
	require.Equal(t, first, k.Err())
	require.Equal(t, first, k.Close())
}

func TestSlug(t *testing.T) {
	require.Equal(t, "answered-500-for-a-while", slug("answered 500, for a while!"))
	require.LessOrEqual(t, len(slug(strings.Repeat("a", 200))), 60)
}

// Faults survive being written and read.
func TestKeptFaults(t *testing.T) {
	k := &Keep{names: map[*history.History]string{}}
	o, err := k.readOutcome([]byte(`{"kind":"slow","faults":["verb=delete,resource=pods,nth=2,lost=reply"],"verdict":""}`))
	require.NoError(t, err)
	require.Equal(t, []apiproxy.Fault{{Match: apiproxy.Match{Verb: "delete", Resource: "pods", From: 2, To: 2}, Effect: apiproxy.Effect{Lost: apiproxy.LostReply}}}, o.Plan.Faults)
	_, err = k.readOutcome([]byte(`{"kind":"slow","faults":[],"verdict":"died","files":"../x"}`))
	require.ErrorContains(t, err, `"../x" is not the name of a file`)
}

// A failure that was seen once before an interruption is repeated when the run is resumed, and no other one.
func TestConfirmEarlier(t *testing.T) {
	stop := errors.New("Ctrl-C")
	once := func(kind string, verdict Verdict) Outcome {
		o := failed(verdict, "cause of "+kind)[0]
		o.Plan = Plan{Kind: kind}
		return o
	}
	died, passed := once("slow", Died), Outcome{Plan: Plan{Kind: "slow"}, History: &history.History{}}
	for name, c := range map[string]struct {
		earlier, later []Outcome
		again          []Outcome // of the plan that is repeated; none if none should be
		err            error
		seen, runs     int
	}{
		"it comes again":         {earlier: []Outcome{died}, again: []Outcome{passed, died, died}, seen: 3, runs: 4},
		"it does not come again": {earlier: []Outcome{died}, again: []Outcome{passed, passed, passed}, seen: 1, runs: 4},
		"it was seen later":      {later: []Outcome{died}, seen: 1, runs: 1},
		"interrupted once more":  {earlier: []Outcome{died}, again: []Outcome{died}, err: stop, seen: 2, runs: 2},
		"an earlier one of two":  {earlier: []Outcome{died}, later: []Outcome{once("watch cut", Lost)}, again: []Outcome{passed, passed, passed}, seen: 1, runs: 4},
	} {
		t.Run(name, func(t *testing.T) {
			baseline := &Baseline{Runs: 4}
			report := &Report{Baseline: baseline, Outcomes: append(slices.Clone(c.earlier), c.later...), Retried: map[string][]Outcome{}}
			ran := 0
			elsewhere := func(context.Context, []Plan, func(Outcome) error) error { return nil }
			options := Options{Seeds: 9, Skip: map[string]bool{died.Plan.Key(): true}, Elsewhere: elsewhere}
			err := confirmEarlier(options, report, len(c.earlier), func(o Options) (*Report, error) {
				ran++
				require.Equal(t, slices.Repeat([]Plan{died.Plan}, maxRetries), o.Plans)
				require.Same(t, baseline, o.Baseline)
				require.Empty(t, o.Skip)
				require.Nil(t, o.Finished, "these are no outcomes of plans")
				require.Nil(t, o.Elsewhere, "repetitions are on this machine")
				return &Report{Outcomes: c.again}, c.err
			})
			require.Equal(t, c.err, err)
			require.Equal(t, len(c.again) > 0, ran == 1)
			g := report.Groups()[slices.IndexFunc(report.Groups(), func(g Group) bool { return g.Verdict == Died })]
			require.Equal(t, []int{c.seen, c.runs}, []int{g.Seen, g.Runs})
			require.Equal(t, c.seen > 1, g.Confirmed())
		})
	}
	two := failed(Died, "a", "a")
	for i := range two { // at different times
		two[i].FailedAt = time.Unix(1e9, 0).Add(time.Duration(i) * time.Hour)
	}
	require.NoError(t, confirmEarlier(Options{}, &Report{Outcomes: two}, 2, nil), "there is nothing to repeat")

	// Of a group that was seen in two plans side by side, both are repeated.
	a, b := once("slow", Died), once("slow", Died)
	a.Duration, b.Plan = time.Second, Plan{Kind: "watch cut"}
	err := confirmEarlier(Options{}, &Report{Outcomes: []Outcome{a, b}}, 2, func(o Options) (*Report, error) {
		require.Equal(t, append(slices.Repeat([]Plan{a.Plan}, maxRetries), slices.Repeat([]Plan{b.Plan}, maxRetries)...), o.Plans)
		return nil, stop
	})
	require.Equal(t, stop, err)
}
