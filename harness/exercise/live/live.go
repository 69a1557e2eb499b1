// Package live is package check for exercises whose bug shows only on a real control plane. Time is real there, so a scene
// waits for what should happen, up to a limit.
//
// The tool runs such a check on a control plane that it keeps running. The environment variables that it sets say where
// that is.
package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/exercise/verdict"
	"example.com/controllers/harness/history"
)

// Scene is one part of a check. It gets a new namespace.
type Scene struct {
	Name string
	Play func(w *World)
}

// Run plays the scenes one after the other, up to the first that fails, and reports the verdict.
func Run(t *testing.T, scenes ...Scene) {
	t.Helper()
	out, err := verdict.NewWriter(func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	klog.LogToStderr(true)
	for _, scene := range scenes {
		out.Scene(scene.Name)
		if !t.Run(strings.ReplaceAll(scene.Name, " ", "_"), func(t *testing.T) { play(t, scene, out) }) {
			return
		}
	}
	out.Pass()
}

func play(t *testing.T, scene Scene, out *verdict.Writer) {
	w := &World{Env: clustertest.New(t), T: t, out: out, start: time.Now()}
	proxy := w.proxy(verdict.UserName, nil)
	config, err := w.Config()
	if err != nil {
		t.Fatal(err)
	}
	if config, err = proxy.ConfigFor(config); err != nil {
		t.Fatal(err)
	}
	w.User = kubernetes.NewForConfigOrDie(config)
	out.Record(history.Record{Step: &history.Step{Time: w.start, Name: scene.Name}})
	scene.Play(w)
	w.check()
}

// Path returns the path of a file or directory of the repository: Path("03-workqueue/manifests").
func Path(name string) string {
	return filepath.Join(cmp.Or(os.Getenv("WORKSHOP_ROOT"), "../.."), filepath.FromSlash(name))
}

// World is a namespace on a control plane. The embedded Env has an administrator's client, whose requests are not in the
// timeline, and Kubectl. Methods must be called by the scene's own goroutine.
type World struct {
	*clustertest.Env
	// T is the scene's test. Report what the participant did wrong with Failf, and everything else with T.Fatal.
	T *testing.T
	// User is a client whose requests are in the timeline.
	User kubernetes.Interface

	out       *verdict.Writer
	start     time.Time
	recording history.Memory
	faults    []apiproxy.Fault
	processes []*Process
	proxies   int64 // so far
}

// Process is a program that runs in the world.
type Process struct {
	w      *World
	name   string
	proxy  *apiproxy.Proxy
	cancel context.CancelFunc
	done   chan struct{}
	err    error // returned by the program, once done

	mu     sync.Mutex
	asked  bool // to stop, or killed
	killed bool
}

// Start starts the participant's controller with the rights of a ServiceAccount of the world's namespace, or with those of
// an administrator if account is "". Its requests are recorded, and are subject to the faults of Inject.
func (w *World) Start(account string, run func(ctx context.Context, config *rest.Config) error) *Process {
	w.T.Helper()
	return w.StartNamed("controller", account, run)
}

// StartNamed is Start with a name for the timeline, such as "agent".
func (w *World) StartNamed(name, account string, run func(ctx context.Context, config *rest.Config) error) *Process {
	w.T.Helper()
	config, err := w.Config()
	if account != "" {
		config, err = w.ServiceAccountConfig(w.T.Context(), w.Namespace, account)
	}
	if err != nil {
		w.T.Fatal(err)
	}
	p := &Process{w: w, name: name, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.proxy = w.proxy(name, func() {
		w.say("kills the %s", name)
		p.ask(history.Killed, "by a fault")
		cancel()
	})
	if config, err = p.proxy.ConfigFor(config); err != nil {
		w.T.Fatal(err)
	}
	w.processes = append(w.processes, p)
	w.say("starts the %s", name)
	p.becomes(history.Running, "")
	go func() {
		defer close(p.done)
		p.err = run(ctx, config)
		if !p.wasKilled() {
			p.becomes(history.Ended, "")
		}
	}()
	w.T.Cleanup(func() {
		if w.T.Failed() {
			p.Kill()
			return
		}
		p.Stop()
	})
	return p
}

// proxy starts a proxy that records the requests of a program. Faults apply if kill is not nil.
func (w *World) proxy(name string, kill func()) *apiproxy.Proxy {
	w.T.Helper()
	config, err := w.Config()
	if err != nil {
		w.T.Fatal(err)
	}
	w.proxies++
	firstID := w.proxies << 32
	options := apiproxy.Options{Upstream: config, Kill: kill, Record: func(r history.Record) { w.record(name, firstID, r) }}
	if kill != nil {
		options.Faults = w.faults
	}
	proxy, err := apiproxy.Start(context.Background(), options)
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { _ = proxy.Stop() }) // what has gone wrong on its connections is in the timeline
	return proxy
}

// record adds a record to the timeline and then to the recording, so that what is in History is in the timeline. It must not be
// called for two records of a program at once. Each proxy numbers its requests from 1, so firstID is added to the numbers.
func (w *World) record(program string, firstID int64, r history.Record) {
	if r.Request != nil {
		named := *r.Request
		named.Who = program
		named.ID += firstID
		r.Request = &named
	}
	if r.Event != nil {
		numbered := *r.Event
		numbered.Request += firstID
		r.Event = &numbered
	}
	if line, ok := verdict.OfRecord(r); ok {
		line.At = time.Since(w.start)
		line.What = strings.TrimSuffix(strings.ReplaceAll(line.What, w.Namespace+"/", ""), " "+w.Namespace)
		w.out.Line(line)
	}
	w.recording.Record(r)
	w.out.Record(r)
}

// becomes records what the program does from now on, and why if it was made to.
func (p *Process) becomes(state history.ProcessState, why string) {
	p.w.out.Record(history.Record{Process: &history.Process{Time: time.Now(), Program: p.name, State: state, Why: why}})
}

// ask notes that the program was asked to stop, or killed.
func (p *Process) ask(state history.ProcessState, why string) {
	p.becomes(state, why)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked, p.killed = true, state == history.Killed
}

func (p *Process) wasKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

func (p *Process) wasAsked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// stopLimit is how long a program may take to stop.
var stopLimit = time.Minute // a test makes it shorter

// Stop asks the program to stop, as SIGTERM does, and waits until it has.
func (p *Process) Stop() {
	if p.ended() {
		return
	}
	p.w.say("asks the %s to stop", p.name)
	p.ask(history.Stopping, "")
	p.cancel()
	select {
	case <-p.done:
	case <-time.After(stopLimit):
		p.w.Failf("The %s was still running %s after its context had been cancelled.", p.name, stopLimit)
	}
}

// Kill kills the program: its connections break. Kill does not wait until it has returned.
func (p *Process) Kill() {
	if p.ended() || p.wasAsked() {
		return
	}
	p.w.say("kills the %s", p.name)
	p.ask(history.Killed, "")
	_ = p.proxy.Stop()
	p.cancel()
}

// Done is closed when the program has returned.
func (p *Process) Done() <-chan struct{} { return p.done }

func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Inject makes something go wrong with the requests of all programs, those that are started later included:
// "verb=delete,resource=pods,nth=2,refuse=500". See apiproxy.FaultUsage. It replaces earlier faults; without any, all is
// well again.
func (w *World) Inject(faults ...string) {
	w.T.Helper()
	w.faults = nil
	for _, text := range faults {
		fault, err := apiproxy.ParseFault(text)
		if err != nil {
			w.T.Fatal(err)
		}
		w.faults = append(w.faults, fault)
	}
	for _, p := range w.processes {
		if p.ended() {
			continue
		}
		if err := p.proxy.SetFaults(w.faults...); err != nil {
			w.T.Fatal(err)
		}
	}
}

// interval is the pause between two looks at the world.
const interval = 50 * time.Millisecond

// Await waits until holds returns true. After the limit, the check fails with the message. The limit is counted in calls of
// holds, so that it is longer on a machine that is slow: a request to the API server in holds takes longer then.
func (w *World) Await(limit time.Duration, holds func() bool, format string, args ...any) {
	w.T.Helper()
	for calls := limit / interval; !holds(); calls-- {
		w.check()
		if calls <= 0 {
			w.Failf(format, args...)
		}
		time.Sleep(interval)
	}
}

// Never watches for a while, and fails the check with the message as soon as happens returns true.
func (w *World) Never(during time.Duration, happens func() bool, format string, args ...any) {
	w.T.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(interval) {
		w.check()
		if happens() {
			w.Failf(format, args...)
		}
	}
}

// History returns the recording of all requests and watch events so far. The field Who of a request is the name of the
// program.
func (w *World) History() *history.History { return w.recording.History() }

// Writes returns the write requests of all programs but the user, except those for Events.
func (w *World) Writes() []history.Request {
	return w.History().Where(func(r history.Request) bool { return r.Who != verdict.UserName && r.Resource != "events" }).Writes()
}

// Say adds a line to the timeline, and a step to the recording: something that the check did or found out. It should name objects,
// but not quote what is in them.
func (w *World) Say(format string, args ...any) {
	w.out.Record(history.Record{Step: &history.Step{Time: time.Now(), Name: fmt.Sprintf(format, args...)}})
	w.say(format, args...)
}

// say adds a line to the timeline.
func (w *World) say(format string, args ...any) {
	w.out.Line(verdict.Line{At: time.Since(w.start), Who: "world", What: fmt.Sprintf(format, args...)})
}

// Failf ends the check. The message says in one or two sentences what went wrong in the world, to somebody who has not
// read the check, and not how to repair it.
func (w *World) Failf(format string, args ...any) {
	w.T.Helper()
	w.out.Fail(fmt.Sprintf(format, args...))
	w.T.FailNow()
}

// Conclude ends the check with the result of a conformance suite: how the controller failed, or nil, and the recording of
// what it did.
func (w *World) Conclude(recorded *history.History, err error) {
	w.T.Helper()
	if recorded != nil {
		for _, line := range verdict.OfHistory(recorded) {
			line.What = strings.TrimSpace(testNamespace.ReplaceAllString(line.What, "$1"))
			w.out.Line(line)
		}
		for _, r := range recorded.Records() {
			w.out.Record(r)
		}
	}
	if err != nil {
		w.Failf("%s.", strings.TrimSuffix(strings.ToUpper(err.Error()[:1])+err.Error()[1:], "."))
	}
}

// testNamespace is the generated name of a test's namespace, which says nothing to a participant.
var testNamespace = regexp.MustCompile(`( |\b)test-[a-z0-9]{5}(/|$)`)

// check fails the check if a program has ended by itself.
func (w *World) check() {
	w.T.Helper()
	for _, p := range w.processes {
		if !p.ended() || p.wasAsked() {
			continue
		}
		if p.err != nil && !errors.Is(p.err, context.Canceled) {
			w.Failf("The %s exited with an error: %v.", p.name, p.err)
		}
		w.Failf("The %s returned although nobody had asked it to stop.", p.name)
	}
}
