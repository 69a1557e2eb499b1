package check_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/exercise/check"
	"example.com/controllers/harness/exercise/verdict"
	"example.com/controllers/harness/history"
)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: corev1.PodStatus{PodIP: "10.0.0.1"}}
}

// idle waits until it is asked to stop.
func idle(ctx context.Context, _ kubernetes.Interface) error {
	<-ctx.Done()
	return nil
}

// A check that passes, and what its world does.
func TestWorld(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(verdict.RecordingsVariable, dir)
	check.Run(t,
		check.Scene{Name: "objects", Play: func(w *check.World) {
			w.Given(pod("web-0"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}})
			got := check.Must(w.Client.CoreV1().Pods("shop").Get(w.T.Context(), "web-0", metav1.GetOptions{}))
			require.Equal(w.T, "10.0.0.1", got.Status.PodIP, "Given keeps the status")
			require.True(w.T, w.Exists("nodes", "", "node-0"))
			w.Delete("pods", "shop", "web-0")
			w.Delete("nodes", "", "node-0")
			require.False(w.T, w.Exists("pods", "shop", "web-0"))
			require.False(w.T, w.Exists("deployments.apps", "shop", "web-0"))
			require.Empty(w.T, w.Writes(), "the user's writes do not count")
		}},
		check.Scene{Name: "time and faults", Play: func(w *check.World) {
			w.Inject("verb=create,refuse=500")
			check.Must(w.Client.CoreV1().Pods("shop").Create(w.T.Context(), pod("web-0"), metav1.CreateOptions{}))
			p := w.Start(func(ctx context.Context, client kubernetes.Interface) error {
				for ctx.Err() == nil {
					_, err := client.CoreV1().Pods("shop").Create(ctx, pod("web-1"), metav1.CreateOptions{})
					if err == nil {
						break
					}
					time.Sleep(time.Minute)
				}
				<-ctx.Done()
				return nil
			})
			w.Advance(10*time.Minute + time.Second)
			require.Equal(w.T, 10*time.Minute+time.Second, w.Since())
			require.Len(w.T, w.Writes(), 11)
			w.Never(time.Minute, func() bool { return w.Exists("pods", "shop", "web-1") }, "it was created")
			w.Heal()
			w.Eventually(time.Minute, func() bool { return w.Exists("pods", "shop", "web-1") }, "it was not created")
			require.NoError(w.T, p.Err())
			p.Stop()
		}},
		check.Scene{Name: "broken watches", Play: func(w *check.World) {
			w.Given(pod("web-0"), pod("web-1"))
			var events []string // of an informer
			w.Start(func(ctx context.Context, client kubernetes.Interface) error {
				factory := informers.NewSharedInformerFactory(client, 0)
				informer := factory.Core().V1().Pods().Informer()
				_, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
					AddFunc: func(object any, _ bool) { events = append(events, "add "+object.(*corev1.Pod).Name) },
					DeleteFunc: func(object any) {
						tombstone, missed := object.(cache.DeletedFinalStateUnknown)
						if missed {
							object = tombstone.Obj
						}
						events = append(events, fmt.Sprintf("delete %s, missed: %t", object.(*corev1.Pod).Name, missed))
					},
				})
				factory.Start(ctx.Done())
				<-ctx.Done()
				factory.Shutdown()
				return err
			})
			for range 2 { // each time, an informer misses what happens meanwhile
				w.Advance(time.Minute)
				events = nil
				before := check.Must(w.Client.CoreV1().Pods("shop").List(w.T.Context(), metav1.ListOptions{})).ResourceVersion
				w.BreakWatches("pods", func() {
					w.Delete("pods", "shop", "web-0")
					w.Delete("pods", "shop", "web-1")
					w.Given(pod("web-1"))
				})
				w.Advance(time.Minute)
				require.Equal(w.T, []string{"delete web-0, missed: true"}, events, "it lists again; web-1 is an update")
				again := check.Must(w.Client.CoreV1().Pods("shop").Watch(w.T.Context(), metav1.ListOptions{ResourceVersion: before}))
				first := <-again.ResultChan()
				again.Stop()
				require.True(w.T, apierrors.IsResourceExpired(apierrors.FromObject(first.Object)), "a watch does not go on where it was")
				w.Given(pod("web-0"))
				w.Advance(time.Minute)
				require.Equal(w.T, "add web-0", events[1])
			}
		}},
		check.Scene{Name: "killed programs", Play: func(w *check.World) {
			w.InjectFault(apiproxy.Fault{Match: apiproxy.Match{Verb: "create", To: 1}, Effect: apiproxy.Effect{Kill: apiproxy.After}})
			var started atomic.Int64
			run := func(ctx context.Context, config *rest.Config) error {
				started.Add(1)
				_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Pods("shop").Create(ctx, pod("web-0"), metav1.CreateOptions{})
				if err != nil {
					return err
				}
				<-ctx.Done()
				return nil
			}
			p := w.StartNamed("agent", run)
			w.Advance(time.Second)
			require.True(w.T, w.Exists("pods", "shop", "web-0"))
			<-p.Done()
			w.Delete("pods", "shop", "web-0")
			p = w.StartNamed("agent", run)
			w.Advance(time.Second)
			p.Kill()
			w.Advance(time.Second)
			require.EqualValues(w.T, 2, started.Load())
			require.Len(w.T, w.Requests("agent").Writes(), 2)
		}},
	)
	recorded, err := history.ReadFile(verdict.RecordingOf(dir, "objects"))
	require.NoError(t, err)
	var seen []string
	for _, e := range recorded.Seen {
		seen = append(seen, e.Type+" "+e.Name)
	}
	require.Equal(t, []string{"ADDED web-0", "ADDED node-0", "DELETED web-0", "DELETED node-0"}, seen, "also what nobody watches")
	recorded, err = history.ReadFile(verdict.RecordingOf(dir, "killed programs"))
	require.NoError(t, err)
	var states []string
	for _, p := range recorded.Processes {
		states = append(states, strings.TrimSpace(p.Program+" "+string(p.State)+" "+p.Why))
	}
	require.Equal(t, []string{"agent running", "agent killed by a fault", "agent running", "agent killed"}, states)
}

// scenes end in a verdict whatever the program does. Each runs in a process of its own.
var scenes = map[string]struct {
	play    func(w *check.World)
	failure string               // "" if the process ends without one
	last    string               // the last line of the timeline
	before  func(w *check.World) // what another scene plays before; nil if there is none
}{
	"passes": {func(w *check.World) { w.Start(idle); w.Advance(time.Hour) }, "", "", nil},
	"fails": {func(w *check.World) {
		w.Say("so far, so good")
		w.Failf("%d Pods are left.", 3)
	}, "3 Pods are left.", "so far, so good", nil},
	"happens at the last moment": {func(w *check.World) {
		end := time.Now().Add(time.Minute)
		w.Never(time.Minute, func() bool { return !time.Now().Before(end) }, "it happened")
	}, "it happened", "", nil},
	"has happened already": {func(w *check.World) {
		w.Never(0, func() bool { return true }, "it has happened")
	}, "it has happened", "", nil},
	"happens too late to be seen": {func(w *check.World) {
		end := time.Now().Add(time.Minute)
		w.Never(time.Minute, func() bool { return time.Now().After(end) }, "it happened")
	}, "", "", nil},
	"never waits": {func(w *check.World) {
		w.Start(func(ctx context.Context, client kubernetes.Interface) error {
			for {
				_, _ = client.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{})
			}
		})
		w.Advance(time.Second)
	}, "The controller made 3000 requests without ever waiting: it never came to rest.", "list pods shop", nil},
	"never waits for a machine": {func(w *check.World) {
		w.Start(func(context.Context, kubernetes.Interface) error {
			for {
				w.Say("the machine refuses")
			}
		})
		w.Advance(time.Second)
	}, "3000 things happened without any time passing, the last one: the machine refuses. The controller never waits.", "the machine refuses", nil},
	"returns early": {func(w *check.World) {
		w.Start(func(context.Context, kubernetes.Interface) error { return nil })
		w.Advance(time.Second)
	}, "The controller returned although nobody had asked it to stop.", "starts the controller", nil},
	"exits with an error": {func(w *check.World) {
		w.Start(func(context.Context, kubernetes.Interface) error { return errors.New("no such luck") })
		w.Advance(time.Second)
	}, "The controller exited with an error: no such luck.", "starts the controller", nil},
	"ignores its context": {func(w *check.World) {
		p := w.Start(func(context.Context, kubernetes.Interface) error { select {} })
		w.Advance(time.Second)
		p.Stop()
	}, "The controller was still running 1m0s after its context had been cancelled.", "asks the controller to stop", nil},
	"swallows an error": {func(w *check.World) {
		w.Inject("verb=create,resource=pods,refuse=403")
		w.Start(func(ctx context.Context, client kubernetes.Interface) error {
			_, _ = client.CoreV1().Pods("shop").Create(ctx, pod("web-0"), metav1.CreateOptions{})
			return idle(ctx, client)
		})
		w.Advance(2 * time.Minute)
	}, "The controller could not create pod shop/web-0: the API server answered 403. It has not succeeded since, and no error was logged: nobody will know.", "create pod shop/web-0", nil},
	"swallows an error, and reads what it could not write": {func(w *check.World) {
		w.Given(pod("web-0"))
		w.Inject("verb=delete,resource=pods,refuse=403")
		w.Start(func(ctx context.Context, client kubernetes.Interface) error {
			_ = client.CoreV1().Pods("shop").Delete(ctx, "web-0", metav1.DeleteOptions{})
			_, _ = client.CoreV1().Pods("shop").Get(ctx, "web-0", metav1.GetOptions{})
			return idle(ctx, client)
		})
		w.Advance(2 * time.Minute)
	}, "The controller could not delete pod shop/web-0: the API server answered 403. It has not succeeded since, and no error was logged: nobody will know.", "get pod shop/web-0", nil},
	"swallows an error, after it has logged another one": {func(w *check.World) {
		w.Inject("verb=create,resource=pods,refuse=403")
		w.Start(func(ctx context.Context, client kubernetes.Interface) error {
			klog.FromContext(ctx).Error(errors.New("of another object"), "It failed")
			time.Sleep(time.Second)
			_, _ = client.CoreV1().Pods("shop").Create(ctx, pod("web-0"), metav1.CreateOptions{})
			return idle(ctx, client)
		})
		w.Advance(2 * time.Minute)
	}, "The controller could not create pod shop/web-0: the API server answered 403. It has not succeeded since, and no error was logged: nobody will know.", "create pod shop/web-0", nil},
	"reports, repeats, or need not": {func(w *check.World) {
		w.Inject("verb=create,resource=pods,name=web-0,refuse=500", "verb=create,resource=pods,name=web-1,nth=1,lost=reply", "verb=delete,refuse=404", "verb=update,refuse=409")
		w.Start(func(ctx context.Context, client kubernetes.Interface) error {
			pods := client.CoreV1().Pods("shop")
			_, err := pods.Create(ctx, pod("web-0"), metav1.CreateOptions{})
			klog.FromContext(ctx).Error(err, "It failed")
			time.Sleep(time.Second)
			for range 2 {
				created, _ := pods.Create(ctx, pod("web-1"), metav1.CreateOptions{})
				_ = pods.Delete(ctx, "web-2", metav1.DeleteOptions{})
				_, _ = pods.Update(ctx, created, metav1.UpdateOptions{})
			}
			_, _ = pods.Get(ctx, "web-1", metav1.GetOptions{})
			return idle(ctx, client)
		})
		w.Advance(2 * time.Minute)
	}, "", "", nil},
	"updates blindly": {func(w *check.World) {
		w.Given(pod("web-0"))
		w.Start(func(ctx context.Context, client kubernetes.Interface) error {
			_, _ = client.CoreV1().Pods("shop").Update(ctx, pod("web-0"), metav1.UpdateOptions{})
			return idle(ctx, client)
		})
		w.Advance(time.Second)
	}, "The controller replaced pod shop/web-0 without saying which version it had read: a change that somebody else made in the meantime would be lost.", "", nil},
	"replaces finalizers blindly": {func(w *check.World) {
		w.Given(pod("web-0"))
		w.Start(func(ctx context.Context, client kubernetes.Interface) error {
			pods := client.CoreV1().Pods("shop")
			_, _ = pods.Patch(ctx, "web-0", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
			_, _ = pods.Patch(ctx, "web-0", types.MergePatchType, []byte(`{"metadata":{"finalizers":["a.b/c"]}}`), metav1.PatchOptions{})
			return idle(ctx, client)
		})
		w.Advance(time.Second)
	}, "The controller replaced pod shop/web-0 without saying which version it had read: a change that somebody else made in the meantime would be lost.", "", nil},
	"does not stop while the API server hangs": {func(w *check.World) {
		ask := make(chan struct{})
		p := w.Start(func(_ context.Context, client kubernetes.Interface) error {
			<-ask
			_, err := client.CoreV1().Pods("shop").List(context.Background(), metav1.ListOptions{})
			return err
		})
		w.StopWhileHanging(p, func() { close(ask) })
	}, "The controller was still running 1m0s after its context had been cancelled.", "asks the controller to stop", nil},
	"a Pod is replaced before it is deleted": {func(w *check.World) {
		w.Given(pod("web-0"))
		w.Before("delete", "pods", func() {
			w.Delete("pods", "shop", "web-0")
			w.Given(pod("web-0"))
		})
		w.Start(func(ctx context.Context, client kubernetes.Interface) error {
			for range 2 {
				_ = client.CoreV1().Pods("shop").Delete(ctx, "web-0", metav1.DeleteOptions{})
			}
			return idle(ctx, client)
		})
		w.Advance(time.Second)
		require.False(w.T, w.Exists("pods", "shop", "web-0"))
		require.Len(w.T, w.History().Where(func(r history.Request) bool { return r.Verb == "delete" && r.Status == 200 }).Requests, 2, "it happens once")
		w.Failf("Its successor was deleted.")
	}, "Its successor was deleted.", "", nil},
	// The race detector fails a test, too.
	"fails after a data race": {func(w *check.World) {
		w.Failf("3 Pods are left.")
	}, "3 Pods are left.", "", func(w *check.World) { w.T.Fail() }},
	"does not pass after a data race": {func(*check.World) {}, "", "", func(w *check.World) { w.T.Fail() }},
	"logs": {func(w *check.World) {
		klog.Background().Info("Deleting", "pod", klog.KObj(pod("web-0")), "because", "it is\nold")
		require.Zero(w.T, w.Errors())
		klog.Background().Error(errors.New("it is stuck"), "Deletion failed")
		klog.Background().WithName("x").Error(nil, "Deletion failed", "pod", klog.KObj(pod("web-0")))
		klog.Background().V(1).Info("Not an error", "error", "none")
		require.Equal(w.T, 2, w.Errors())
		w.Failf("It is gone.")
	}, "It is gone.", "Deletion failed pod=shop/web-0", nil},
}

const sceneVariable = "CHECK_TEST_SCENE"

// TestOneScene is run by TestVerdicts.
func TestOneScene(t *testing.T) {
	name := os.Getenv(sceneVariable)
	if name == "" {
		t.Skip("TestVerdicts runs it in a process of its own")
	}
	played := []check.Scene{{Name: "a scene", Play: scenes[name].play}}
	if scene, ok := broken[name]; ok {
		played[0].Play = scene.play
	}
	if before := scenes[name].before; before != nil {
		played = append([]check.Scene{{Name: "before", Play: before}}, played...)
	}
	check.Run(t, played...)
}

func TestVerdicts(t *testing.T) {
	for name, want := range scenes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "verdict")
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOneScene$")
			dir := t.TempDir()
			cmd.Env = append(os.Environ(), sceneVariable+"="+name, verdict.FileVariable+"="+file, verdict.RecordingsVariable+"="+dir)
			out, err := cmd.CombinedOutput()
			passes := want.failure == "" && want.before == nil
			require.Equal(t, passes, err == nil, "%s", out)
			found, err := verdict.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, want.failure, found.Failure)
			require.Equal(t, passes, found.Passed)
			require.Equal(t, "a scene", found.Scene)
			if want.last != "" {
				require.Equal(t, want.last, found.Timeline[len(found.Timeline)-1].What)
			}
			requireRecorded(t, dir, found)
		})
	}
}

// requireRecorded requires that a recording has what is in the timeline, as far as a recording can have it.
func requireRecorded(t *testing.T, dir string, found verdict.Found) {
	t.Helper()
	recorded, err := history.ReadFile(verdict.RecordingOf(dir, found.Scene))
	require.NoError(t, err)
	require.Equal(t, found.Scene, recorded.Steps[0].Name)
	var steps, states, requests []string
	for _, s := range recorded.Steps[1:] {
		steps = append(steps, s.Name)
	}
	for _, p := range recorded.Processes {
		states = append(states, p.Program+" "+string(p.State))
	}
	for _, line := range found.Timeline {
		switch {
		case line.What == "starts the controller":
			require.Contains(t, states, "controller running")
		case line.What == "asks the controller to stop":
			require.Contains(t, states, "controller stopping")
		case line.Who == "world":
			require.Contains(t, steps, line.What)
		case line.Who == check.ControllerName:
			requests = append(requests, line.What)
		}
	}
	require.GreaterOrEqual(t, len(recorded.Requests), len(requests))
	for _, r := range recorded.Requests {
		require.Equal(t, r.Who, r.Program)
	}
}

// broken are scenes that break off, and what the program then prints: it says where the mistake is, and nothing about the controller.
var broken = map[string]struct {
	play   func(w *check.World)
	output string
}{
	"panics": {func(*check.World) {
		nothing()["web-0"]++
	}, "panic: assignment to entry in nil map\n\ngoroutine "},
	"misses an object": {func(w *check.World) {
		check.Must(w.Client.CoreV1().Pods("shop").Get(w.T.Context(), "web-0", metav1.GetOptions{}))
	}, `a request of the check failed: pods "web-0" not found`},
	"deletes what is not there": {func(w *check.World) { w.Delete("pods", "shop", "web-0") }, `delete pods shop/web-0: pods "web-0" not found`},
	"asks for a fault that does not exist here": {func(w *check.World) { w.Inject("verb=create,down=1s") },
		"the API server in memory cannot play verb=create,down=1s: it has no down"},
	neverEnds: {func(w *check.World) {
		w.Start(idle)
		w.Settle()
		w.Say("from here on, nothing happens")
		for w.Since() == 0 { // no time passes
		}
	}, verdict.Quit},
}

const neverEnds = "never ends"

func nothing() map[string]int { return nil }

func TestBrokenChecks(t *testing.T) {
	for name, want := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "verdict")
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOneScene$")
			dir := t.TempDir()
			cmd.Env = append(os.Environ(), sceneVariable+"="+name, verdict.FileVariable+"="+file, verdict.RecordingsVariable+"="+dir)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			require.NoError(t, cmd.Start())
			if name == neverEnds {
				require.Eventually(t, func() bool {
					found, err := verdict.ReadFile(file)
					return err == nil && len(found.Timeline) > 1
				}, time.Minute, 10*time.Millisecond)
				require.NoError(t, cmd.Process.Signal(syscall.SIGQUIT))
			}
			require.Error(t, cmd.Wait())
			require.Contains(t, out.String(), want.output)
			require.Contains(t, out.String(), "check_test.go:")
			found, err := verdict.ReadFile(file)
			require.NoError(t, err)
			require.Empty(t, found.Failure)
			require.False(t, found.Passed)
			requireRecorded(t, dir, found)
		})
	}
}
