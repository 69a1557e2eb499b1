package exercise

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/exercise/verdict"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/guard"
)

// Outcome is what a check found.
type Outcome string

// The outcomes of a check.
const (
	Passed         Outcome = "passed"
	Failed         Outcome = "failed"           // the controller did something wrong
	DoesNotCompile Outcome = "does not compile" // or its directory is gone
	Panicked       Outcome = "panicked"         // or the Go runtime gave up, as after a data race in a map
	Hung           Outcome = "hung"             // the check did not end within its limit
	Exited         Outcome = "exited"           // the program ended before the check was over
	Broken         Outcome = "broken"           // the check itself made a mistake, which says nothing about the controller
)

// Verdict is the result of a check, for the participant.
type Verdict struct {
	Exercise string         `json:"exercise"`
	Outcome  Outcome        `json:"outcome"`
	Message  string         `json:"message"`            // what went wrong, in one or two sentences; "" if it has passed
	Scene    string         `json:"scene,omitempty"`    // that failed; if all have passed, that which fails as shipped
	Timeline []verdict.Line `json:"timeline,omitempty"` // of the scene
	Output   string         `json:"output,omitempty"`   // the end of what the compiler or the program has printed
	Seconds  float64        `json:"seconds"`            // how long it took to build and to run
}

// Passed says whether the exercise is solved.
func (v Verdict) Passed() bool { return v.Outcome == Passed }

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
}

// Check builds and checks the participant's copy of an exercise. The error is not nil only if the check could not be
// made; what is wrong with the participant's code is in the verdict.
func (g *Grader) Check(ctx context.Context, e Exercise) (Verdict, error) {
	if _, err := e.Copy(); err != nil {
		return Verdict{}, err
	}
	return g.check(ctx, e, e.Mine)
}

// CheckSolution checks the exercise's own solution.
func (g *Grader) CheckSolution(ctx context.Context, e Exercise) (Verdict, error) {
	return g.checkCode(ctx, e, e.solved)
}

// CheckShipped checks the exercise as shipped, which must fail.
func (g *Grader) CheckShipped(ctx context.Context, e Exercise) (Verdict, error) {
	return g.checkCode(ctx, e, func() (files, error) { return readFiles(e.Dir, isCode) })
}

// checkCode checks code that is not the participant's, from a directory next to the participant's copies.
func (g *Grader) checkCode(ctx context.Context, e Exercise, read func() (files, error)) (v Verdict, err error) {
	code, err := read()
	if err != nil {
		return Verdict{}, err
	}
	if err := os.MkdirAll(filepath.Join(g.Catalogue.Dir, mineDir), 0o755); err != nil {
		return Verdict{}, err
	}
	dir, err := os.MkdirTemp(filepath.Join(g.Catalogue.Dir, mineDir), ".check-")
	if err != nil {
		return Verdict{}, err
	}
	defer os.RemoveAll(dir)
	if err := code.writeTo(dir); err != nil {
		return Verdict{}, err
	}
	return g.check(ctx, e, dir)
}

// check checks the code in dir, which is in the module of the exercises.
func (g *Grader) check(ctx context.Context, e Exercise, dir string) (Verdict, error) {
	start := time.Now()
	v := Verdict{Exercise: e.Name}
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
		v.Outcome, v.Message = Failed, "go vet finds a mistake in the code: "+complaints
		v.Seconds = time.Since(start).Seconds()
		return v, nil
	}
	if complaints != "" {
		v.Outcome, v.Message, v.Output = DoesNotCompile, "The code does not compile.", complaints
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
		v.Outcome = Failed
		v.Message = strings.TrimSpace(fmt.Sprintf("%s While the check ran, %s deleted from your copy, perhaps by your code. It has been restored.", v.Message, deleted))
	}
	v.Seconds = time.Since(start).Seconds()
	return v, nil
}

// Run runs a program that contains the check of an exercise, with these arguments.
func (g *Grader) Run(ctx context.Context, e Exercise, program string, args ...string) (Verdict, error) {
	scratch, err := os.MkdirTemp("", "workshop-exercise-")
	if err != nil {
		return Verdict{}, fmt.Errorf("check %s: %w", e.Name, err)
	}
	defer os.RemoveAll(scratch)
	var cluster string
	if e.Cluster {
		if cluster, err = g.Kubeconfig(ctx); err != nil {
			return Verdict{}, err
		}
	}
	return g.run(ctx, e, e.Dir, scratch, cluster, program, args...)
}

// run runs the program with the check of the code in dir. cluster is the kubeconfig of a control plane, if it needs one.
func (g *Grader) run(ctx context.Context, e Exercise, dir, scratch, cluster, program string, args ...string) (Verdict, error) {
	start := time.Now()
	v := Verdict{Exercise: e.Name}
	work := filepath.Join(scratch, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return v, err
	}
	env, err := environ.Isolated(filepath.Join(scratch, "home"))
	if err != nil {
		return v, err
	}
	file := filepath.Join(scratch, "verdict")
	env = append(env, verdict.FileVariable+"="+file, "WORKSHOP_ROOT="+g.Catalogue.Root, "KUBE_CACHE_MUTATION_DETECTOR=true")
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
	v.Outcome, v.Message = judge(found, run, dir)
	if v.Outcome != Passed {
		v.Output = run.excerpt(dir)
	} else if scene, _ := e.Before(); found.Earlier[scene] != nil {
		v.Scene, v.Timeline = scene, found.Earlier[scene]
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

// build compiles the check of the code in dir. It returns what the compiler complains about, or go vet, or "".
func (g *Grader) build(ctx context.Context, e Exercise, dir, scratch, program string) (complaints string, isVet bool, err error) {
	// The participant's own tests and a copy of the grader that has been edited are left out.
	replace := map[string]string{filepath.Join(dir, graderFile): filepath.Join(e.Dir, graderFile)}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", false, err
	}
	for _, entry := range entries {
		if isTest(entry.Name()) && entry.Name() != graderFile {
			replace[filepath.Join(dir, entry.Name())] = ""
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", false, err
	}
	overlay := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", false, err
	}
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return "", false, fmt.Errorf("find the go command: %w", err)
	}
	var out output
	status, err := guard.Exec(ctx, guard.Program{
		Path: goCommand,
		Args: []string{"test", "-c", "-vet=" + cmp.Or(e.Vet, "off"), "-ldflags=-s -w", "-tags", "exercise", "-overlay", overlay, "-o", program,
			"./" + filepath.ToSlash(relative(g.Catalogue.Dir, dir))},
		Dir: g.Catalogue.Dir,
		// The go command leaves its temporary files behind if it is killed.
		Env: append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS="+keptFlags(os.Getenv("GOFLAGS")), "GOTMPDIR="+scratch,
			"PWD="+g.Catalogue.Dir), // if a symbolic link leads there, the paths in the overlay have it
		Remove: scratch,
	}, &out)
	if ctx.Err() != nil {
		return "", false, context.Cause(ctx)
	}
	if err != nil {
		return "", false, fmt.Errorf("run the go command: %w", err)
	}
	if full := syscall.ENOSPC.Error(); status != 0 && strings.Contains(out.String(), full) {
		return "", false, fmt.Errorf("compile %s: %s; free some, and check again", e.Name, full)
	}
	if status != 0 {
		return tidyCompilerOutput(out.String(), relative(g.Catalogue.Dir, dir)), vetHeading.MatchString(out.String()), nil
	}
	if !exists(program) {
		return "There is no Go code in " + dir + ".", false, nil
	}
	return "", false, nil
}

// vetHeading is the line before what go vet complains about. The compiler's has no brackets.
var vetHeading = regexp.MustCompile(`(?m)^# \[`)

// keptFlags returns those of the flags in the variable GOFLAGS that decide which compiled packages the go command finds, as the
// ones in a bundle (package offline). Others, such as -mod or -race, could break the build.
func keptFlags(flags string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(flags), func(flag string) bool {
		return flag != "-trimpath" && flag != "-modcacherw"
	}), " ")
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

var (
	panicLine   = regexp.MustCompile(`(?m)^panic: (.*)$`)
	fatalLine   = regexp.MustCompile(`(?m)^fatal error: (.*)$`)
	panicSuffix = regexp.MustCompile(`( \[recovered[^\]]*\])+$`)
	// mutexWait is a goroutine that waits for a mutex, in a stack trace.
	mutexWait = regexp.MustCompile(`(?m)^goroutine \d+ \[sync\.(RW)?Mutex\.`)
)

// asleep is the fatal error if no goroutine can run and none waits for a timer.
const asleep = "all goroutines are asleep"

// notYours ends a message about a mistake of the check.
const notYours = " This is a mistake in the exercise, and says nothing about your code."

// judge combines what the check of the code in dir has written with how its process has ended.
func judge(found verdict.Found, run finished, dir string) (Outcome, string) {
	if found.Failure != "" {
		return Failed, found.Failure
	}
	if found.Passed && run.status == 0 && !run.timedOut {
		return Passed, "" // whatever it has printed
	}
	text := run.output.String()
	if run.timedOut {
		message := fmt.Sprintf("The check did not end within %s.", run.allowed)
		if _, trace, _ := strings.Cut(text, verdict.Quit); isGradersHang(trace, dir) {
			return Broken, message + notYours
		}
		return Hung, message + " Something in the controller never returns, or never waits."
	}
	if match := panicLine.FindStringSubmatchIndex(text); match != nil {
		cause := panicSuffix.ReplaceAllString(text[match[2]:match[3]], "")
		switch {
		case strings.Contains(cause, "blocked goroutines remain"):
			return Failed, "The controller has stopped, but goroutines that it started are still blocked: it leaks them."
		case strings.Contains(cause, "all goroutines in bubble are blocked"):
			return Hung, "Nothing can happen any more: all goroutines wait for each other."
		}
		if stacks := goroutines(text[match[0]:]); len(stacks) > 0 && judgeStack(stacks[0], dir) == graders {
			return Broken, "The check panicked: " + cause + "." + notYours
		}
		return Panicked, "The controller panicked: " + cause + "."
	}
	if match := fatalLine.FindStringSubmatch(text); match != nil {
		if strings.HasPrefix(match[1], asleep) && mutexWait.MatchString(text) {
			// In synctest, time does not pass while a goroutine waits for a mutex. So this need not be a deadlock in a cluster.
			return Hung, "A goroutine waits for a mutex, and the one that holds it waits too, as during a call. That may work in a cluster, but the check's virtual time stands still meanwhile. Don't hold a mutex during a call."
		}
		if isGradersHang(text, dir) {
			return Broken, "The Go runtime stopped the check: " + match[1] + "." + notYours
		}
		return Panicked, "The Go runtime stopped the controller: " + match[1] + "."
	}
	switch {
	case found.Passed:
		return Failed, fmt.Sprintf("The check passed, but then its program exited with status %d.", run.status)
	case strings.Contains(text, "--- FAIL: TestExercise"):
		return Broken, "The check could not go on: something that it works with is not there, or is not as it was. Either the controller has changed that, or the check has a mistake. Its output says what it was."
	}
	return Exited, fmt.Sprintf("The program exited with status %d before the check was over.", run.status)
}

// mostOutput is how many lines of a program's output are in a verdict.
const mostOutput = 40

// excerpt returns what the program has printed: the stack of the goroutine that panicked, or else the last lines.
func (f finished) excerpt(dir string) string {
	text := f.output.String()
	before, trace, hasTrace := strings.Cut(text, verdict.Quit)
	if f.timedOut && hasTrace {
		text = before
		if busy := busyGoroutine(trace, dir); busy != "" {
			text = "panic: \n" + busy
		}
	}
	// With -trimpath, a path begins with the name of the module.
	own := regexp.MustCompile(`[^\s"]*/` + regexp.QuoteMeta(filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir)+"/"))
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if !testOutput.MatchString(line) {
			lines = append(lines, own.ReplaceAllLiteralString(line, ""))
		}
	}
	if first := slices.IndexFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
	}); first >= 0 {
		if strings.Contains(lines[first], asleep) {
			first += max(0, slices.IndexFunc(lines[first:], mutexWait.MatchString)-1)
		}
		return stack(lines[first+1:])
	}
	return strings.TrimSpace(strings.Join(lines[max(0, len(lines)-mostOutput):], "\n"))
}

var (
	frameArguments = regexp.MustCompile(`\([^()]*(\([^()]*\)[^()]*)*\)$`)
	framePlace     = regexp.MustCompile(`^\t(\S+:\d+)`)
	modulePlace    = regexp.MustCompile(`^(?:[^/@]*/)*([^/@]+)@[^/]+/`)
	// toolPlace matches the places of the Go runtime, of package testing, of the grader and of the world in which it runs.
	toolPlace = regexp.MustCompile(`^(.*/src/)?(runtime|testing|internal)/|^(.*/)?harness/|^` + graderFile + `:`)
)

// stack makes the first goroutine of a stack trace readable: a line for each function of the participant and of the libraries,
// with its place.
func stack(trace []string) string {
	type frame struct{ place, function string }
	var frames []frame
	var function string
	width := 0
	for _, line := range trace {
		place := framePlace.FindStringSubmatch(line)
		if line == "" && len(frames) > 0 {
			break
		}
		switch {
		case place != nil && function != "":
			at := modulePlace.ReplaceAllString(place[1], "$1/")
			if !toolPlace.MatchString(at) && len(frames) < mostOutput {
				if !strings.Contains(at, "/") { // in the participant's own package
					_, function, _ = strings.Cut(function, ".")
				}
				frames = append(frames, frame{at, function})
				width = max(width, len(at))
			}
			function = ""
		case strings.HasPrefix(line, "goroutine "), strings.HasPrefix(line, "created by "):
			function = ""
		default:
			function = frameArguments.ReplaceAllString(line, "")
			function = function[strings.LastIndex(function, "/")+1:]
		}
	}
	var text strings.Builder
	for _, f := range frames {
		fmt.Fprintf(&text, "%-*s  %s\n", width, f.place, f.function)
	}
	return strings.TrimSpace(text.String())
}

// testOutput matches the lines that package testing prints about a test, without what the test itself has to say.
var testOutput = regexp.MustCompile(`^(=== |\s*--- |FAIL|PASS|ok )`)

// output keeps the beginning and the end of what is written to it.
type output struct {
	head, tail bytes.Buffer
	dropped    int
}

// Write implements io.Writer.
func (o *output) Write(text []byte) (int, error) {
	n := len(text)
	if room := outputLimit - o.head.Len(); room > 0 {
		part := text[:min(room, len(text))]
		o.head.Write(part)
		text = text[len(part):]
	}
	o.tail.Write(text)
	if excess := o.tail.Len() - outputLimit; excess > outputLimit {
		o.dropped += excess
		o.tail.Next(excess)
	}
	return n, nil
}

// String implements fmt.Stringer.
func (o *output) String() string {
	if o.dropped == 0 {
		return o.head.String() + o.tail.String()
	}
	return fmt.Sprintf("%s\n... %d bytes ...\n%s", o.head.String(), o.dropped, o.tail.String())
}
