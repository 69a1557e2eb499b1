package live

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/exercise/verdict"
	"example.com/controllers/harness/history"
)

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// idle runs until it is asked to stop.
func idle(ctx context.Context, _ *rest.Config) error {
	<-ctx.Done()
	return nil
}

// creator returns a program that creates ConfigMaps, each as soon as it receives its name, and returns what the API server
// answers.
func (w *World) creator(names <-chan string, answers chan<- error) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, config *rest.Config) error {
		client := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(w.Namespace)
		for {
			select {
			case name := <-names:
				_, err := client.Create(ctx, configMap(name), metav1.CreateOptions{})
				answers <- err
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// recorded waits until a successful creation is in the timeline. The client gets its answer a little earlier.
func (w *World) recorded(name string) {
	w.Await(time.Minute, func() bool {
		return slices.ContainsFunc(w.History().Writes(), func(r history.Request) bool { return r.Name == name && r.Status == http.StatusCreated })
	}, "the creation of %s was not recorded", name)
}

// scenes are played in a process of their own, each in a new world.
var scenes = map[string]struct {
	play     func(w *World)
	failure  string   // "" if the check passes
	timeline []string // lines that it has, in this order
}{
	"records what programs and the user do, and nobody else": {func(w *World) {
		names, answers := make(chan string), make(chan error)
		p := w.StartNamed("agent", "", w.creator(names, answers))
		names <- "a"
		require.NoError(w.T, <-answers)
		_, err := w.Client.CoreV1().ConfigMaps(w.Namespace).Create(w.T.Context(), configMap("b"), metav1.CreateOptions{})
		require.NoError(w.T, err)
		w.recorded("a")
		_, err = w.User.CoreV1().ConfigMaps(w.Namespace).Create(w.T.Context(), configMap("c"), metav1.CreateOptions{})
		require.NoError(w.T, err)
		w.recorded("c")
		p.Stop()
		<-p.Done()
		require.Len(w.T, w.Writes(), 1, "what the user writes does not count")
		require.Equal(w.T, "agent a", w.Writes()[0].Who+" "+w.Writes()[0].Name)
		for _, r := range w.History().Requests {
			require.NotEqual(w.T, "b", r.Name)
		}
	}, "", []string{"world starts the agent", "agent create configmap a: 201", "user create configmap c: 201", "world asks the agent to stop"}},

	"has the rights of a ServiceAccount": {func(w *World) {
		_, err := w.Client.CoreV1().ServiceAccounts(w.Namespace).Create(w.T.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "weak"}}, metav1.CreateOptions{})
		require.NoError(w.T, err)
		names, answers := make(chan string), make(chan error)
		w.Start("weak", w.creator(names, answers))
		names <- "a"
		require.True(w.T, apierrors.IsForbidden(<-answers))
	}, "", []string{"controller create configmap a: 403"}},

	"injects faults into running and into later programs, until they are replaced": {func(w *World) {
		names, answers := make(chan string), make(chan error)
		w.Start("", w.creator(names, answers))
		w.Inject("verb=create,refuse=500")
		names <- "a"
		require.True(w.T, apierrors.IsInternalError(<-answers))
		later, itsAnswers := make(chan string), make(chan error)
		w.StartNamed("later", "", w.creator(later, itsAnswers))
		later <- "a"
		require.True(w.T, apierrors.IsInternalError(<-itsAnswers))
		_, err := w.User.CoreV1().ConfigMaps(w.Namespace).Create(w.T.Context(), configMap("user"), metav1.CreateOptions{})
		require.NoError(w.T, err, "a fault is for programs")
		w.recorded("user")
		w.Inject()
		names <- "a"
		require.NoError(w.T, <-answers)
		w.recorded("a")
		later <- "b"
		require.NoError(w.T, <-itsAnswers)
	}, "", []string{"controller create configmap: refused with 500", "later create configmap: refused with 500", "user create configmap user: 201", "controller create configmap a: 201", "later create configmap b: 201"}},

	"kills a program": {func(w *World) {
		w.Inject("verb=create,kill=after")
		names, answers := make(chan string), make(chan error, 1)
		p := w.Start("", w.creator(names, answers))
		names <- "a"
		<-p.Done()
		_, err := w.Client.CoreV1().ConfigMaps(w.Namespace).Get(w.T.Context(), "a", metav1.GetOptions{})
		require.NoError(w.T, err)
		w.Await(time.Minute, func() bool { return true }, "a program that was killed is no failure")
		w.Inject()
		again := w.Start("", idle)
		again.Kill()
		<-again.Done()
	}, "", []string{"world starts the controller", "world kills the controller", "world starts the controller", "world kills the controller"}},

	"fails when what should happen does not": {func(w *World) {
		w.Start("", idle)
		w.Await(100*time.Millisecond, func() bool { return false }, "%d Pods are left.", 3)
	}, "3 Pods are left.", []string{"world starts the controller"}},
	"fails when something happens that should not": {func(w *World) {
		w.Never(time.Hour, func() bool { return true }, "A Pod was deleted.")
	}, "A Pod was deleted.", nil},
	"goes on when nothing happens": {func(w *World) {
		w.Never(100*time.Millisecond, func() bool { return false }, "A Pod was deleted.")
	}, "", nil},
	"fails when a program returns early": {func(w *World) {
		w.Start("", func(context.Context, *rest.Config) error { return nil })
		w.Await(time.Minute, func() bool { return false }, "it was not noticed")
	}, "The controller returned although nobody had asked it to stop.", nil},
	"fails when a program has returned at the end of the scene": {func(w *World) {
		<-w.Start("", func(context.Context, *rest.Config) error { return nil }).Done()
	}, "The controller returned although nobody had asked it to stop.", nil},
	"fails when a program exits with an error": {func(w *World) {
		w.StartNamed("agent", "", func(context.Context, *rest.Config) error { return errors.New("no such luck") })
		w.Never(time.Hour, func() bool { return false }, "")
	}, "The agent exited with an error: no such luck.", nil},
	"fails when a program does not stop": {func(w *World) {
		stopLimit = 100 * time.Millisecond
		w.Start("", func(context.Context, *rest.Config) error { select {} }).Stop()
	}, "The controller was still running 100ms after its context had been cancelled.", []string{"world asks the controller to stop"}},
	"concludes with what a conformance suite has found": {func(w *World) {
		recorded := &history.History{Requests: []history.Request{{Who: "system:serviceaccount:test-ab1cd:x", Verb: "delete", Resource: "pods", Namespace: "test-ab1cd", Name: "web-0", Status: 200}}}
		w.Conclude(recorded, errors.New("pod web-0 was deleted"))
	}, "Pod web-0 was deleted.", []string{"controller delete pod web-0: 200"}},
	"concludes with success": {func(w *World) { w.Conclude(nil, nil) }, "", nil},
}

const sceneVariable = "LIVE_TEST_SCENE"

// TestOneScene is run by TestScenes.
func TestOneScene(t *testing.T) {
	name := os.Getenv(sceneVariable)
	if name == "" {
		t.Skip("TestScenes runs it in a process of its own")
	}
	Run(t, Scene{Name: "a scene", Play: scenes[name].play}, Scene{Name: "the end", Play: func(*World) {}})
}

func TestScenes(t *testing.T) {
	shared, err := cluster.Shared()
	require.NoError(t, err)
	for name, want := range scenes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, dir := filepath.Join(t.TempDir(), "verdict"), t.TempDir()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOneScene$")
			cmd.Env = append(os.Environ(), sceneVariable+"="+name, verdict.FileVariable+"="+file, verdict.RecordingsVariable+"="+dir, cluster.SharedVariable+"="+shared.Kubeconfig)
			out, err := cmd.CombinedOutput()
			require.Equal(t, want.failure == "", err == nil, "%s", out)
			require.NotContains(t, string(out), "_test.go:", "a failure of the test itself")
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			first, rest, _ := strings.Cut(string(text), `{"scene":"the end"}`+"\n")
			require.Equal(t, want.failure == "", rest != "", "the next scene is played if this one passes")
			found, err := verdict.Read(strings.NewReader(first + rest))
			require.NoError(t, err)
			require.Equal(t, want.failure, found.Failure)
			require.Equal(t, want.failure == "", found.Passed)
			scene, err := verdict.Read(strings.NewReader(first))
			require.NoError(t, err)
			require.Equal(t, "a scene", scene.Scene)
			for _, line := range scene.Timeline {
				text := strings.TrimSuffix(line.Who+" "+line.What+": "+line.Note, ": ")
				if len(want.timeline) > 0 && text == want.timeline[0] {
					want.timeline = want.timeline[1:]
				}
				require.NotContains(t, text, "test-", "a generated namespace says nothing to a participant")
			}
			require.Empty(t, want.timeline, "missing in the timeline:\n%s", first)
			requireRecorded(t, verdict.RecordingOf(dir, "a scene"), scene)
		})
	}
}

// requireRecorded requires that a recording has what is in the timeline.
func requireRecorded(t *testing.T, path string, scene verdict.Found) {
	t.Helper()
	recorded, err := history.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "a scene", recorded.Steps[0].Name)
	var programs, lines []string
	for _, r := range recorded.Requests {
		lines = append(lines, r.Program+" "+r.Verb)
	}
	for _, p := range recorded.Processes {
		programs = append(programs, p.Program+" "+string(p.State))
	}
	for _, line := range scene.Timeline {
		verb, rest, _ := strings.Cut(line.What, " ")
		if line.Who != "world" {
			require.Contains(t, lines, line.Who+" "+verb)
			continue
		}
		program, _, _ := strings.Cut(strings.TrimPrefix(rest, "the "), " ")
		state := map[string]history.ProcessState{"starts": history.Running, "kills": history.Killed, "asks": history.Stopping}[verb]
		require.Contains(t, programs, program+" "+string(state))
	}
}

func TestPath(t *testing.T) {
	t.Setenv("WORKSHOP_ROOT", "")
	require.Equal(t, filepath.Join("..", "..", "a", "b"), Path("a/b"), "from the directory of an exercise")
	t.Setenv("WORKSHOP_ROOT", "/repository")
	require.Equal(t, filepath.Join("/repository", "a", "b"), Path("a/b"))
}
