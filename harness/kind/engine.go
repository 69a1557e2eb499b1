package kind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	kind "sigs.k8s.io/kind/pkg/cluster"
	kindexec "sigs.k8s.io/kind/pkg/exec"
	"sigs.k8s.io/kind/pkg/log"
)

// engineVariable is the name of the environment variable that chooses among several container engines; it is kind's.
const engineVariable = "KIND_EXPERIMENTAL_PROVIDER"

// engine is a container engine that is installed.
type engine struct {
	name    string // for messages
	command string
}

var engines = map[string]struct {
	name   string
	option func(command string) kind.ProviderOption
}{
	"docker":       {"Docker", func(string) kind.ProviderOption { return kind.ProviderWithDocker() }},
	"podman":       {"Podman", func(string) kind.ProviderOption { return kind.ProviderWithPodman() }},
	"nerdctl":      {"nerdctl", kind.ProviderWithNerdctl},
	"finch":        {"Finch", kind.ProviderWithNerdctl},
	"nerdctl.lima": {"nerdctl", kind.ProviderWithNerdctl},
}

// Check returns an error if neither Docker nor Podman can be used. It says what to do.
func Check(ctx context.Context) error {
	_, _, err := findEngine(ctx)
	return err
}

// findEngine returns a container engine that works. It takes the first that is installed, unless the user has chosen one.
func findEngine(ctx context.Context) (engine, kind.ProviderOption, error) {
	candidates := []string{"docker", "podman", "nerdctl"}
	if chosen := os.Getenv(engineVariable); chosen != "" {
		if _, ok := engines[chosen]; !ok {
			return engine{}, nil, fmt.Errorf("%s is %q; it must be docker, podman or nerdctl", engineVariable, chosen)
		}
		candidates = []string{chosen}
	}
	for _, command := range candidates {
		if _, err := exec.LookPath(command); err != nil {
			continue
		}
		e := engine{engines[command].name, command}
		// Podman comes with a docker command, which kind cannot use.
		if version, err := e.run(ctx, "--version"); command == "docker" && err == nil && !strings.HasPrefix(version, "Docker version") {
			continue
		}
		return e, engines[command].option(command), e.check(ctx)
	}
	return engine{}, nil, fmt.Errorf("kind needs Docker or Podman, and there is no %s command; install Docker: https://docs.docker.com/engine/install",
		strings.Join(candidates, " or "))
}

// check returns an error unless the engine works.
func (e engine) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, fmt.Errorf("%s has not answered for 30 seconds; restart it", e.name))
	defer cancel()
	if _, err := e.run(ctx, "ps", "--quiet"); err != nil {
		return e.explain(err)
	}
	return nil
}

// cures says what to do about the errors of container engines. Each has texts of which the error contains one, in lower
// case, and a sentence, in which ENGINE is its name.
var cures = []struct {
	texts []string
	cure  string
}{
	{[]string{"permission denied while trying to connect", "connect: permission denied", "got permission denied"},
		"you may not use ENGINE; add yourself to its group with \"sudo usermod -aG docker $USER\", and log in again"},
	{[]string{"cannot connect to the docker daemon", "failed to connect to the docker api", "is the docker daemon running", "cannot connect to podman", "is containerd running"},
		"ENGINE is installed but not running; start it, with \"sudo systemctl start docker\" or by opening Docker Desktop"},
	{[]string{"no space left on device", "disk quota exceeded"},
		"ENGINE has no disk space left; free some, for example with \"docker system prune\""},
	{[]string{"failed to pull image"},
		"the node image can be neither found on this computer nor pulled; check the network, or set " + ImageVariable + " to an image that \"docker images\" lists"},
	{[]string{"too many open files"},
		"the limits on inotify are too low for kind; see https://kind.sigs.k8s.io/docs/user/known-issues/#pod-errors-due-to-too-many-open-files"},
}

// explain returns an error that begins with what to do about err, if that is known.
func (e engine) explain(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if run := kindexec.RunErrorForError(err); run != nil {
		text += "\n" + strings.TrimSpace(string(run.Output))
	}
	for _, c := range cures {
		for line := range strings.Lines(text) {
			isKnown := func(fragment string) bool { return strings.Contains(strings.ToLower(line), fragment) }
			if slices.ContainsFunc(c.texts, isKnown) {
				return fmt.Errorf("%s (%s)", strings.ReplaceAll(c.cure, "ENGINE", e.name), strings.TrimSpace(line))
			}
		}
	}
	return errors.New(text)
}

// logger is a logger of kind's library. It writes a line for each step.
type logger struct{ out io.Writer }

var _ log.Logger = &logger{}

func (l *logger) Warn(message string)               { l.line(message) }
func (l *logger) Warnf(format string, args ...any)  { l.line(fmt.Sprintf(format, args...)) }
func (l *logger) Error(message string)              { l.line(message) }
func (l *logger) Errorf(format string, args ...any) { l.line(fmt.Sprintf(format, args...)) }

// V returns a logger of the messages for users, which are those of level 0.
func (l *logger) V(level log.Level) log.InfoLogger { return steps{l, level == 0} }

func (l *logger) line(text string) { fmt.Fprintf(l.out, "kind: %s\n", text) }

// steps writes the beginning of each step, and nothing else.
type steps struct {
	*logger
	enabled bool
}

func (s steps) Enabled() bool { return s.enabled }

func (s steps) Info(message string) {
	step, isStep := strings.CutPrefix(strings.TrimSpace(message), "• ")
	if !s.enabled || !isStep {
		return
	}
	// "Preparing nodes 📦 📦  ..."
	step = strings.Map(func(r rune) rune {
		if r > 126 {
			return -1
		}
		return r
	}, strings.TrimSuffix(step, "..."))
	s.line(strings.ToLower(step[:1]) + strings.Join(strings.Fields(step[1:]), " "))
}

func (s steps) Infof(format string, args ...any) { s.Info(fmt.Sprintf(format, args...)) }
