package exercise

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/exercise/verdict"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/guard"
)

// Verdict is what a check found.
type Verdict string

// The outcomes of a check.
const (
	Passed         Verdict = "passed"
	Failed         Verdict = "failed"           // the controller did something wrong
	DoesNotCompile Verdict = "does not compile" // or its directory is gone
	Panicked       Verdict = "panicked"         // or the Go runtime gave up, as after a data race in a map
	Hung           Verdict = "hung"             // the check did not end within its limit
	Exited         Verdict = "exited"           // the program ended before the check was over
	Broken         Verdict = "broken"           // the check itself made a mistake, which says nothing about the controller
)

// Result is the result of a check, for the participant.
type Result struct {
	Exercise string         `json:"exercise"`
	Verdict  Verdict        `json:"outcome"`            // named before the type was
	Message  string         `json:"message"`            // what went wrong, in one or two sentences; "" if it has passed
	Scene    string         `json:"scene,omitempty"`    // that failed; if all have passed, that which fails as shipped
	Timeline []verdict.Line `json:"timeline,omitempty"` // of the scene
	Output   string         `json:"output,omitempty"`   // the end of what the compiler or the program has printed
	Seconds  float64        `json:"seconds"`            // how long it took to build and to run
	Recorded bool           `json:"-"`                  // the grader has kept a recording of the scene
}

// Passed says whether the exercise is solved.
func (v Result) Passed() bool { return v.Verdict == Passed }

// Limits of a check. A check that needs no cluster takes a fraction of a second.
const (
	limit        = 20 * time.Second
	clusterLimit = 3 * time.Minute
	outputLimit  = 64 << 10 // bytes of output that are kept from the beginning, and as many from the end
)

// Grader checks exercises.
type Grader struct {
	Catalogue *Catalogue
	// Kubeconfig returns the path of the kubeconfig of a running control plane. It is called for exercises that need one.
	Kubeconfig func(ctx context.Context) (string, error)
	// Limit is how long a check may take on a machine that is not busy; 0 means the default.
	Limit time.Duration
	// Recording is the file to which a check writes the recording of its verdict's scene when it has ended, in place of that of the
	// check before; "" if there is to be none. If a check recorded no request, the file stays as it was.
	Recording string
}

// Check builds and checks the participant's copy of an exercise. The error is not nil only if the check could not be
// made; what is wrong with the participant's code is in the verdict.
func (g *Grader) Check(ctx context.Context, e Exercise) (Result, error) {
	if _, err := e.Copy(); err != nil {
		return Result{}, err
	}
	return g.check(ctx, e, e.Mine)
}

// CheckSolution checks the exercise's own solution.
func (g *Grader) CheckSolution(ctx context.Context, e Exercise) (Result, error) {
	return g.checkCode(ctx, e, e.solved)
}

// CheckShipped checks the exercise as shipped, which must fail.
func (g *Grader) CheckShipped(ctx context.Context, e Exercise) (Result, error) {
	return g.checkCode(ctx, e, func() (files, error) { return readFiles(e.Dir, isCode) })
}

// checkCode checks code that is not the participant's, from a directory next to the participant's copies.
func (g *Grader) checkCode(ctx context.Context, e Exercise, read func() (files, error)) (v Result, err error) {
	code, err := read()
	if err != nil {
		return Result{}, err
	}
	if err := os.MkdirAll(filepath.Join(g.Catalogue.Dir, mineDir), 0o755); err != nil {
		return Result{}, err
	}
	dir, err := os.MkdirTemp(filepath.Join(g.Catalogue.Dir, mineDir), ".check-")
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(dir)
	if err := code.writeTo(dir); err != nil {
		return Result{}, err
	}
	return g.check(ctx, e, dir)
}

// check checks the code in dir, which is in the module of the exercises.
func (g *Grader) check(ctx context.Context, e Exercise, dir string) (Result, error) {
	start := time.Now()
	v := Result{Exercise: e.Name}
	mine, err := readFiles(dir, isKept)
	if err != nil {
		return v, err
	}
	scratch, err := os.MkdirTemp("", "workshop-exercise-")
	if err != nil {
		return v, fmt.Errorf("check %s: %w", e.Name, err)
	}
	defer os.RemoveAll(scratch)
	// The control plane starts while the code compiles.
	kubeconfig := make(chan error, 1)
	var cluster string
	go func() {
		var err error
		if e.Cluster {
			cluster, err = g.Kubeconfig(ctx)
		}
		kubeconfig <- err
	}()
	program := filepath.Join(scratch, "check")
	complaints, isVet, err := g.build(ctx, e, dir, scratch, program)
	if clusterErr := <-kubeconfig; err == nil && clusterErr != nil {
		err = fmt.Errorf("start a control plane: %w", clusterErr)
	}
	if err != nil {
		return v, err
	}
	if isVet {
		v.Verdict, v.Message = Failed, "go vet finds a mistake in the code: "+complaints
		v.Seconds = time.Since(start).Seconds()
		return v, nil
	}
	if complaints != "" {
		v.Verdict, v.Message, v.Output = DoesNotCompile, "The code does not compile.", complaints
		missing, err := e.missing(mine)
		if err != nil {
			return v, err
		}
		if len(missing) > 0 {
			verb, it := "is", "it"
			if len(missing) > 1 {
				verb, it = "are", "them"
			}
			v.Message = fmt.Sprintf("The code does not compile, and %s %s missing from your copy. Restore %s in your editor, copy %s from %s, or reset the exercise, which gives you a new copy.",
				strings.Join(missing, " and "), verb, it, it, relative(g.Catalogue.Root, e.Dir))
		}
		v.Seconds = time.Since(start).Seconds()
		return v, nil
	}
	v, err = g.run(ctx, e, dir, scratch, cluster, program, "-test.run=^TestExercise$")
	if err != nil {
		return v, err
	}
	if ctx.Err() != nil { // the participant may be replacing the copy
		return v, context.Cause(ctx)
	}
	deleted, err := restore(dir, mine)
	if err != nil {
		return v, err
	}
	if deleted != "" {
		v.Verdict = Failed
		v.Message = strings.TrimSpace(fmt.Sprintf("%s While the check ran, %s deleted from your copy, perhaps by your code. It has been restored.", v.Message, deleted))
	}
	v.Seconds = time.Since(start).Seconds()
	return v, nil
}

// Run runs a program that contains the check of an exercise, with these arguments.
func (g *Grader) Run(ctx context.Context, e Exercise, program string, args ...string) (Result, error) {
	scratch, err := os.MkdirTemp("", "workshop-exercise-")
	if err != nil {
		return Result{}, fmt.Errorf("check %s: %w", e.Name, err)
	}
	defer os.RemoveAll(scratch)
	var cluster string
	if e.Cluster {
		if cluster, err = g.Kubeconfig(ctx); err != nil {
			return Result{}, err
		}
	}
	return g.run(ctx, e, e.Dir, scratch, cluster, program, args...)
}

// run runs the program with the check of the code in dir. cluster is the kubeconfig of a control plane, if it needs one.
func (g *Grader) run(ctx context.Context, e Exercise, dir, scratch, cluster, program string, args ...string) (Result, error) {
	start := time.Now()
	v := Result{Exercise: e.Name}
	work := filepath.Join(scratch, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return v, err
	}
	env, err := environ.Isolated(filepath.Join(scratch, "home"))
	if err != nil {
		return v, err
	}
	file, recordings := filepath.Join(scratch, "verdict"), filepath.Join(scratch, "recordings")
	env = append(env, verdict.FileVariable+"="+file, "WORKSHOP_ROOT="+g.Catalogue.Root, "KUBE_CACHE_MUTATION_DETECTOR=true")
	if g.Recording != "" {
		if err := os.Mkdir(recordings, 0o700); err != nil {
			return v, err
		}
		env = append(env, verdict.RecordingsVariable+"="+recordings)
	}
	allowed := limit
	if e.Cluster {
		allowed = clusterLimit
		cache, err := gobuild.Env(ctx)
		if err != nil {
			return v, err
		}
		env = append(append(env, cache...), "WORKSHOP_KUBECONFIG="+cluster)
	}
	if g.Limit > 0 {
		allowed = g.Limit
	}
	run, err := runLimited(ctx, allowed, guard.Program{
		Path: program, Args: append(args, "-test.timeout=0", "-test.v"), Dir: work, Env: env, Remove: scratch,
	})
	if err != nil {
		return v, fmt.Errorf("check %s: %w", e.Name, err)
	}
	found, err := verdict.ReadFile(file)
	if err != nil {
		return v, fmt.Errorf("check %s: %w", e.Name, err)
	}
	v.Scene, v.Timeline = found.Scene, found.Timeline
	v.Verdict, v.Message = judge(found, run, dir)
	if v.Verdict != Passed {
		v.Output = run.excerpt(dir)
	} else if scene, _ := e.Before(); found.Earlier[scene] != nil {
		v.Scene, v.Timeline = scene, found.Earlier[scene]
	}
	if v.Recorded, err = g.keep(verdict.RecordingOf(recordings, v.Scene)); err != nil {
		return v, err
	}
	v.Seconds = time.Since(start).Seconds()
	return v, nil
}

// restore writes back the files that were deleted from a directory since it had the files before, or the directory itself. It
// says what was deleted, with "was" or "were"; "" if nothing was. It does not touch files that exist, since the participant may
// have saved them meanwhile, and does nothing if there is a new one: then the participant has renamed a file.
func restore(dir string, before files) (deleted string, err error) {
	if !exists(dir) {
		return "the directory was", before.writeTo(dir)
	}
	after, err := readFiles(dir, isKept)
	if err != nil {
		return "", err
	}
	for name := range after {
		if _, known := before[name]; !known {
			return "", nil
		}
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, there := after[name]; there {
			continue
		}
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if errors.Is(err, fs.ErrExist) { // an editor has just saved it
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = file.Write(before[name])
		if err := errors.Join(err, file.Close()); err != nil {
			return "", err
		}
		names = append(names, name)
	}
	switch len(names) {
	case 0:
		return "", nil
	case 1:
		return names[0] + " was", nil
	}
	return strings.Join(names, " and ") + " were", nil
}

func relative(base, path string) string {
	if short, err := filepath.Rel(base, path); err == nil {
		return short
	}
	return path
}

// tidyCompilerOutput leaves what the compiler says about the participant's files.
func tidyCompilerOutput(out, dir string) string {
	var kept []string
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "FAIL") {
			continue
		}
		kept = append(kept, strings.TrimPrefix(strings.TrimPrefix(line, "./"), filepath.ToSlash(dir)+"/"))
	}
	return strings.TrimSpace(strings.Join(kept, "\n"))
}
