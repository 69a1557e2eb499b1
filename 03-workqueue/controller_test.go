package workqueue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientfeatures "k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

var errServer = apierrors.NewInternalError(errors.New("etcd is unavailable"))

// makeStale creates Pods of the frontend, changes their config a minute later, and returns when the second of the
// change is over.
func (w *world) makeStale(names ...string) {
	w.startPods(names...)
	advance(time.Minute)
	w.changeConfig()
	advance(time.Second)
}

// names returns the names of count Pods.
func names(count int) []string {
	var names []string
	for number := range count {
		names = append(names, fmt.Sprint("frontend-", number))
	}
	return names
}

// failFirst returns an onDelete that fails the first requests.
func failFirst(times int) func(context.Context, *corev1.Pod) error {
	return failFirstWith(errServer, times)
}

func failFirstWith(err error, times int) func(context.Context, *corev1.Pod) error {
	var requests atomic.Int64
	return func(context.Context, *corev1.Pod) error {
		if requests.Add(1) > int64(times) {
			return nil
		}
		return err
	}
}

// slowDelete returns an onDelete with which each request takes d, unless its context ends.
func slowDelete(d time.Duration) func(context.Context, *corev1.Pod) error {
	return func(ctx context.Context, _ *corev1.Pod) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// seconds returns durations of whole seconds.
func seconds(counts ...int) []time.Duration {
	var times []time.Duration
	for _, count := range counts {
		times = append(times, time.Duration(count)*time.Second)
	}
	return times
}

func TestReplacesPodsWhenTheConfigChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.changeConfig()
		advance(time.Minute)
		w.startPods("frontend-1", "frontend-2", "frontend-3")
		w.write(newPod(namespace, "backend-1", "backend"))
		elsewhere := newPod("mall", "elsewhere", "frontend")
		w.write(elsewhere)
		stop := w.run()
		defer stop()

		initial := w.reconciles("frontend-1")
		require.Contains(t, []int{1, 2}, initial, "the add events of the Pod and of the config may be reconciled together or one by one")
		advance(time.Hour)
		w.changeOtherConfig(namespace, "backend-config")
		w.changeOtherConfig("mall", ConfigName)
		advance(time.Hour)
		require.Empty(t, w.deleted(), "before any change")
		require.Equal(t, initial, w.reconciles("frontend-1"), "before any change")

		for changes := 1; changes <= 2; changes++ {
			w.changeConfig()
			advance(5 * time.Second)
			w.write(elsewhere)
			advance(5 * time.Second)
			require.ElementsMatch(t, slices.Repeat([]string{"frontend-1", "frontend-2", "frontend-3"}, changes), w.deleted(), "after the change")

			advance(time.Minute)
			w.startPods("frontend-1", "frontend-2", "frontend-3")
			advance(time.Hour)
			require.Len(t, w.deleted(), 3*changes, "Pods that started after the change")
		}
		require.Equal(t, 1, w.reconciles("backend-1"), "a Pod that the config does not concern")
		require.Empty(t, w.loggedErrors())
	})
}

func TestReplacesPodsWhenTheConfigIsCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.startPods("frontend-1")
		stop := w.run()
		defer stop()
		advance(time.Minute)
		require.Empty(t, w.deleted(), "without a config")
		require.Empty(t, w.loggedErrors(), "without a config")
		w.changeConfig()
		advance(time.Minute)
		require.Equal(t, []string{"frontend-1"}, w.deleted())
	})
}

func TestActsOnAChangeMadeWhileItWasDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.changeConfig()
		advance(time.Minute)
		w.startPods("frontend-1")
		stop := w.run()
		advance(time.Minute)
		stop()

		w.changeConfig()
		advance(time.Minute)
		w.startPods("frontend-2")
		require.Empty(t, w.deleted(), "while it is down")

		stop = w.run()
		defer stop()
		advance(time.Minute)
		require.Equal(t, []string{"frontend-1"}, w.deleted(), "after a restart")
	})
}

func TestCatchesUpAfterABrokenWatch(t *testing.T) {
	tests := map[string]struct {
		happens func(w *world)
		want    []string
	}{
		"a change of the config": {func(w *world) {
			w.breakWatch("configmaps")
			w.changeConfig()
		}, []string{"frontend-1"}},
		"a Pod that read the config before it changed": {func(w *world) {
			w.breakWatch("pods")
			w.startPods("frontend-2")
			w.changeConfig()
		}, []string{"frontend-1", "frontend-2"}},
		"both": {func(w *world) {
			w.breakWatch("pods")
			w.breakWatch("configmaps")
			w.startPods("frontend-2")
			w.changeConfig()
		}, []string{"frontend-1", "frontend-2"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.changeConfig()
				advance(time.Minute)
				w.startPods("frontend-1")
				stop := w.run()
				defer stop()
				advance(time.Minute)
				test.happens(w)
				advance(time.Hour)
				require.ElementsMatch(t, test.want, w.deleted())
			})
		})
	}
}

// An informer whose watch broke meanwhile sees an update, from one UID to another.
func TestCatchesUpWithObjectsThatWereRecreatedMeanwhile(t *testing.T) {
	tests := map[string]struct {
		happens func(w *world)
		deleted []string
		logged  string
	}{
		"the config": {func(w *world) {
			w.breakWatch("configmaps")
			require.NoError(w.t, w.objects.Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), namespace, ConfigName))
			w.write(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: ConfigName, UID: "another", CreationTimestamp: thisSecond(),
			}})
		}, []string{"frontend-1"}, "Reconciling pod=shop/frontend-1 node=node-0"},
		"a Pod": {func(w *world) {
			w.breakWatch("pods")
			old, err := w.pod("frontend-1")
			require.NoError(w.t, err)
			w.remove(old)
			another := newPod(namespace, "frontend-1", "frontend")
			another.UID, another.Spec.NodeName = "another", "node-1"
			w.write(another)
		}, []string{}, "Reconciling pod=shop/frontend-1 node=node-1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.changeConfig()
				advance(time.Minute)
				w.startPods("frontend-1")
				stop := w.run()
				defer stop()
				advance(time.Minute)
				test.happens(w)
				advance(time.Hour)
				require.Equal(t, test.deleted, w.deleted())
				require.NotEmpty(t, w.logged(test.logged))
			})
		})
	}
}

func TestReplacesPodsWhateverElseTheConfigHas(t *testing.T) {
	tests := map[string]func(*corev1.ConfigMap){
		"a finalizer that keeps it, after its deletion": func(config *corev1.ConfigMap) {
			config.Finalizers, config.DeletionTimestamp = []string{"example.com/others"}, new(thisSecond())
		},
		"the field immutable": func(config *corev1.ConfigMap) { config.Immutable = new(true) },
		"no field manager":    func(*corev1.ConfigMap) {},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.startPods("frontend-1")
				stop := w.run()
				defer stop()
				advance(time.Minute)
				config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ConfigName, CreationTimestamp: thisSecond()}}
				change(config)
				w.write(config)
				advance(time.Minute)
				require.Equal(t, []string{"frontend-1"}, w.deleted())
			})
		})
	}
}

func TestWaitsUntilTheSecondOfTheChangeIsOver(t *testing.T) {
	for name, up := range map[string]bool{"the controller is running": true, "the controller starts within that second": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.startPods("frontend-1", "frontend-2")
				if up {
					stop := w.run()
					defer stop()
				}
				advance(time.Minute)
				begin := time.Now()
				advance(300 * time.Millisecond)
				w.changeConfig()
				if !up {
					stop := w.run()
					defer stop()
				}
				advance(time.Minute)
				require.Equal(t, seconds(1, 1), w.requestsSince(begin))
			})
		})
	}
}

// All times that are compared are the API server's, so its clock may differ from ours.
func TestTheClockOfTheAPIServerMayDiffer(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				stop := w.run()
				defer stop()
				for number, age := range []time.Duration{time.Minute, 0, -time.Minute} {
					pod := newPod(namespace, fmt.Sprint("frontend-", number), "frontend")
					pod.CreationTimestamp = metav1.NewTime(time.Now().Add(ahead - age))
					w.write(pod)
				}
				w.write(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace, Name: ConfigName, CreationTimestamp: metav1.NewTime(time.Now().Add(ahead)),
				}})
				advance(time.Minute)
				require.ElementsMatch(t, []string{"frontend-0", "frontend-1"}, w.deleted())
			})
		})
	}
}

func TestReplacesAPodThatIsCreatedInTheSecondOfTheChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		defer stop()
		advance(time.Minute)
		begin := time.Now()
		advance(300 * time.Millisecond)
		w.changeConfig()
		advance(300 * time.Millisecond)
		w.startPods("frontend-1")
		advance(time.Minute)
		require.Equal(t, seconds(1), w.requestsSince(begin))
	})
}

func TestRetriesWithExponentialBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		defer stop()

		w.onDelete = failFirst(7)
		w.makeStale("frontend-1")
		begin := time.Now()
		advance(time.Hour)
		require.Equal(t, seconds(0, 1, 3, 7, 15, 25, 35, 45), w.requestsSince(begin))
		var complaints []string
		for failures := range 7 {
			complaints = append(complaints, fmt.Sprintf("Reconcile failed, requeueing with backoff pod=shop/frontend-1 failures=%d: delete Pod shop/frontend-1: %v",
				failures+1, errServer))
		}
		require.Equal(t, complaints, w.loggedErrors())

		// Success resets the backoff: the next Pod of that name starts with the shortest delay.
		w.onDelete = failFirst(2)
		w.makeStale("frontend-1")
		begin = time.Now()
		advance(time.Hour)
		require.Equal(t, seconds(0, 1, 3), w.requestsSince(begin))
	})
}

func TestRetriesAfterAnyError(t *testing.T) {
	pods := corev1.Resource("pods")
	tests := map[string]error{
		"internal error":     errServer,
		"too many requests":  apierrors.NewTooManyRequests("slow down", 1),
		"server timeout":     apierrors.NewServerTimeout(pods, "delete", 1),
		"forbidden":          apierrors.NewForbidden(pods, "frontend-1", errors.New("no role yet")),
		"unauthorized":       apierrors.NewUnauthorized("the token has expired"),
		"timeout":            apierrors.NewTimeoutError("etcd is slow", 0),
		"gone":               apierrors.NewGenericServerResponse(http.StatusGone, "delete", pods, "frontend-1", "", 0, false),
		"invalid":            apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "frontend-1", nil),
		"conflict":           apierrors.NewConflict(pods, "frontend-1", errors.New("the UID is another")),
		"connection refused": &url.Error{Op: "Delete", URL: "https://127.0.0.1", Err: syscall.ECONNREFUSED},
		"unexpected EOF":     &url.Error{Op: "Delete", URL: "https://127.0.0.1", Err: io.ErrUnexpectedEOF},
		"deadline exceeded":  context.DeadlineExceeded,
	}
	for name, failure := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.onDelete = failFirstWith(failure, 2)
				stop := w.run()
				defer stop()
				w.makeStale("frontend-1")
				begin := time.Now()
				advance(time.Hour)
				require.Equal(t, seconds(0, 1, 3), w.requestsSince(begin))
				require.Len(t, w.loggedErrors(), 2)
			})
		})
	}
}

func TestNeverGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.Backoff, w.options.MaxBackoff = 100*time.Millisecond, time.Minute
		recovery := time.Now().Add(24 * time.Hour)
		w.onDelete = func(context.Context, *corev1.Pod) error {
			if time.Now().Before(recovery) {
				return errServer
			}
			return nil
		}
		stop := w.run()
		defer stop()
		w.makeStale("frontend-1")
		advance(24*time.Hour + 2*time.Minute)
		last := w.requestsSince(recovery)
		require.Len(t, last, 1)
		require.LessOrEqual(t, last[0], time.Minute)
		_, err := w.pod("frontend-1")
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
}

func TestOnePodThatCannotBeDeletedDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.Workers = 1
		w.onDelete = func(_ context.Context, pod *corev1.Pod) error {
			if pod.Name == "frontend-2" {
				return errServer
			}
			return nil
		}
		stop := w.run()
		defer stop()
		w.makeStale("frontend-1", "frontend-2", "frontend-3")
		begin := time.Now()
		advance(time.Second / 2)
		require.ElementsMatch(t, []string{"frontend-1", "frontend-2", "frontend-3"}, w.deleted())
		require.Equal(t, seconds(0, 0, 0), w.requestsSince(begin))
	})
}

func TestAnUnobservedDeletionDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.Workers, w.options.MaxBackoff = 1, time.Second
		w.onDelete = func(_ context.Context, pod *corev1.Pod) error {
			if pod.Name == "frontend-2" {
				return errServer
			}
			return nil
		}
		w.startPods("frontend-1", "frontend-2")
		w.watchLag["pods"] = 10 * time.Second
		stop := w.run()
		defer stop()
		advance(time.Minute)
		w.changeConfig()
		advance(time.Second)
		w.changeConfig() // reconciles frontend-1 again, while the cache does not show its deletion yet
		advance(time.Second + time.Millisecond)
		begin := time.Now()
		advance(5 * time.Second)
		requests := w.requestsSince(begin)
		advance(time.Minute) // until the deletion is observed, so that even a worker that blocks on it can stop
		require.Len(t, requests, 5, "to delete frontend-2")
	})
}

func TestAPodThatIsGoneIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.onDelete = func(_ context.Context, pod *corev1.Pod) error {
			return apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
		}
		stop := w.run()
		defer stop()
		w.makeStale("frontend-1")
		advance(time.Hour)
		require.Equal(t, []string{"frontend-1"}, w.deleted())
		require.Empty(t, w.loggedErrors())
	})
}

// The Pod stays, with its deletionTimestamp, until somebody removes the finalizer.
func TestAPodThatAFinalizerKeepsIsDeletedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.startPods("frontend-2")
		kept := newPod(namespace, "frontend-1", "frontend")
		kept.Finalizers = []string{"example.com/others"}
		w.write(kept)
		stop := w.run()
		defer stop()
		advance(time.Minute)
		w.changeConfig()
		advance(time.Hour)
		reconciles := w.reconciles("frontend-1")
		w.changeConfig()
		advance(time.Hour)
		require.ElementsMatch(t, []string{"frontend-1", "frontend-2"}, w.deleted())
		require.Equal(t, reconciles+1, w.reconciles("frontend-1"), "the change of the config is the only reason to reconcile it")
		pod, err := w.pod("frontend-1")
		require.NoError(t, err)
		require.Equal(t, kept.Finalizers, pod.Finalizers)
		require.Empty(t, w.loggedErrors())
		require.Empty(t, w.events())
	})
}

func TestWritesOneEventWhenAPodKeepsFailing(t *testing.T) {
	tests := map[string]struct{ warnAfter, failures, want int }{
		"one failure too few":     {3, 2, 0},
		"just enough failures":    {3, 3, 1},
		"more failures":           {3, 10, 1},
		"after the first failure": {1, 4, 1},
		"never":                   {0, 10, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.options.WarnAfter = test.warnAfter
				stop := w.run()
				defer stop()
				for range 2 { // two Pods of that name
					w.onDelete = failFirst(test.failures)
					w.makeStale("frontend-1")
					advance(time.Hour)
				}
				events := w.events()
				require.Len(t, events, 2*test.want)
				for _, event := range events {
					require.Equal(t, corev1.EventTypeWarning, event.Type)
					require.Equal(t, "NotReplaced", event.Reason)
					require.Equal(t, "Delete", event.Action)
					require.Equal(t, "Pod shop/frontend-1 frontend-1",
						fmt.Sprintf("%s %s/%s %s", event.Regarding.Kind, event.Regarding.Namespace, event.Regarding.Name, event.Regarding.UID))
					require.Equal(t, fmt.Sprint("Runs an old config: delete Pod shop/frontend-1: ", errServer), event.Note)
					require.Nil(t, event.Series, "written once for each Pod")
				}
			})
		})
	}
}

// The API server refuses an Event whose note has more than 1,024 bytes.
func TestShortensALongFailureInTheEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.WarnAfter = 1
		w.onDelete = func(context.Context, *corev1.Pod) error { return errors.New(strings.Repeat("🙂", 1000)) }
		stop := w.run()
		defer stop()
		w.makeStale("frontend-1")
		advance(time.Minute)
		events := w.events()
		require.Len(t, events, 1)
		require.Contains(t, events[0].Note, "Runs an old config: delete Pod shop/frontend-1: 🙂")
		require.LessOrEqual(t, len(events[0].Note), 1024)
	})
}

func TestWritesAnEventForEachPodThatKeepsFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.onDelete = failFirst(100)
		stop := w.run()
		defer stop()
		w.makeStale("frontend-1", "frontend-2")
		advance(time.Hour)
		require.ElementsMatch(t, []string{"frontend-1", "frontend-2"}, w.eventsRegarding())
	})
}

func TestWritesNoEventForAPodThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.WarnAfter = 1
		w.onDelete = func(_ context.Context, pod *corev1.Pod) error {
			w.remove(pod.DeepCopy())
			time.Sleep(time.Millisecond) // until the watch has delivered it
			return errServer
		}
		stop := w.run()
		defer stop()
		w.makeStale("frontend-1")
		advance(time.Hour)
		require.Empty(t, w.events())
		require.Equal(t, []string{"frontend-1"}, w.deleted())
	})
}

func TestWritesEventsWhileItDrainsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.WarnAfter = 1
		w.onDelete = func(_ context.Context, pod *corev1.Pod) error {
			if pod.Name == "frontend-1" {
				time.Sleep(2 * time.Second)
				return errServer
			}
			time.Sleep(5 * time.Second)
			return nil
		}
		stop := w.run()
		w.makeStale("frontend-1", "frontend-2")
		advance(time.Second)
		stop()
		require.Equal(t, []string{"frontend-1"}, w.eventsRegarding())
		require.ElementsMatch(t, []string{"frontend-1", "frontend-2"}, w.deleted(), "a drain does not retry")
	})
}

// eventsRegarding returns the names of the Pods that have Events.
func (w *world) eventsRegarding() []string {
	var names []string
	for _, event := range w.events() {
		names = append(names, event.Regarding.Name)
	}
	return names
}

func (w *world) events() []eventsv1.Event {
	list, err := w.EventsV1().Events(metav1.NamespaceAll).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	return list.Items
}

func TestABurstOfChangesIsReconciledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.startPods("frontend-1", "frontend-2")
		stop := w.run()
		defer stop()
		advance(time.Minute)
		before := w.reconciles("frontend-1") + w.reconciles("frontend-2")
		begin := time.Now()
		for range 200 {
			w.changeConfig()
			advance(time.Millisecond / 2)
		}
		advance(10 * time.Second)
		require.ElementsMatch(t, []string{"frontend-1", "frontend-2"}, w.deleted())
		require.Equal(t, seconds(1, 1), w.requestsSince(begin))
		require.LessOrEqual(t, w.reconciles("frontend-1")+w.reconciles("frontend-2")-before, 4, "each Pod twice: when it is deleted, and when it has its deletionTimestamp")
	})
}

func TestChangesWhileTheWorkersAreBusyAreReconciledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.Workers = 1
		w.onDelete = slowDelete(10 * time.Second)
		w.write(newPod(namespace, "backend-1", "backend"))
		stop := w.run()
		defer stop()
		w.makeStale("frontend-1")
		before := w.reconciles("backend-1")
		for range 200 {
			w.touch("backend-1")
			synctest.Wait()
		}
		require.Equal(t, before, w.reconciles("backend-1"), "while the worker is busy")
		advance(time.Minute)
		require.Equal(t, before+1, w.reconciles("backend-1"))
	})
}

func TestWorkersNeverShareAPod(t *testing.T) {
	for _, test := range []struct{ workers, pods int }{{1, 5}, {2, 5}, {3, 5}, {3, 1}, {3, 2}} {
		t.Run(fmt.Sprintf("%d workers, %d Pods", test.workers, test.pods), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.options.Workers = test.workers
				var mu sync.Mutex
				workersOn, mostOnOne, mostPods := map[string]int{}, 0, 0
				w.onDelete = func(_ context.Context, pod *corev1.Pod) error {
					mu.Lock()
					workersOn[pod.Name]++
					mostOnOne = max(mostOnOne, workersOn[pod.Name])
					mostPods = max(mostPods, len(workersOn))
					mu.Unlock()
					time.Sleep(700 * time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					if workersOn[pod.Name]--; workersOn[pod.Name] == 0 {
						delete(workersOn, pod.Name)
					}
					return errServer // so that the Pod is requeued
				}
				stop := w.run()
				defer stop()
				pods := names(test.pods)
				w.makeStale(pods...)
				for range 100 {
					for _, pod := range pods {
						w.touch(pod)
					}
					advance(100 * time.Millisecond)
				}
				for _, pod := range pods {
					require.Contains(t, w.deleted(), pod)
				}
				require.Equal(t, 1, mostOnOne, "workers on one Pod")
				require.Equal(t, min(test.workers, test.pods), mostPods, "Pods at once")
			})
		})
	}
}

func TestDoesNotActBeforeTheCachesHaveSynced(t *testing.T) {
	for _, resource := range []string{"pods", "configmaps"} {
		t.Run(resource, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.makeStale("frontend-1", "frontend-2")
				w.delayRequests("list", resource, 10*time.Second)
				stop := w.run()
				defer stop()
				advance(9 * time.Second)
				require.Empty(t, w.logged("Reconciling", "Pod", "Caches synced"))
				require.Equal(t, http.StatusServiceUnavailable, w.probe(w.controller.Readyz))

				begin := time.Now()
				advance(time.Minute)
				require.Len(t, w.logged("Caches synced"), 1)
				require.Equal(t, http.StatusOK, w.probe(w.controller.Readyz))
				require.Equal(t, seconds(1, 1), w.requestsSince(begin))
			})
		})
	}
}

func TestDoesNotModifyCachedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		advance(time.Minute)
		bare := newPod(namespace, "frontend-1", "frontend")
		bare.Spec.NodeName = "" // not scheduled yet
		w.write(bare)
		w.startPods("frontend-2")
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: ConfigName,
			// The API server sorts managers that apply before those that update.
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "applier", Operation: metav1.ManagedFieldsOperationApply, Time: new(metav1.NewTime(time.Now().Add(-time.Second)))},
				{Manager: "editor", Operation: metav1.ManagedFieldsOperationUpdate, Time: new(metav1.NewTime(time.Now().Add(-time.Minute)))},
			},
		}}
		w.write(config)
		stop := w.run()
		defer stop() // before the mutation detector compares again, which would end the process
		for _, want := range []string{"frontend-1", "frontend-2"} {
			require.NotZero(t, w.reconciles(want))
			pod, err := w.pod(want)
			require.NoError(t, err)
			got, err := w.controller.podLister.Pods(namespace).Get(want)
			require.NoError(t, err)
			require.Equal(t, pod, got)
		}
		got, err := w.controller.config.Get(ConfigName)
		require.NoError(t, err)
		require.Equal(t, config, got)
	})
}

func TestMakesOnlyRequestsThatItsRoleAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.onDelete = failFirst(5)
		stop := w.run()
		defer stop()
		w.makeStale("frontend-1", "frontend-2")
		advance(time.Minute)
		w.breakWatch("pods")
		w.breakWatch("configmaps")
		advance(time.Hour)
		// What manifests/rbac.yaml allows, besides deleting Pods.
		allowed := []string{"list pods", "watch pods", "list configmaps", "watch configmaps", "create events", "patch events"}
		for _, action := range w.Actions() {
			require.Contains(t, allowed, action.GetVerb()+" "+action.GetResource().Resource)
		}
	})
}

// probe returns the status code of the response to a probe.
func (w *world) probe(handler http.HandlerFunc) int {
	recorder := httptest.NewRecorder()
	handler(recorder, httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, "/", nil))
	return recorder.Code
}

func TestIsReadyFromSyncToShutdownAndAlwaysHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.makeStale("frontend-1")
		w.delayRequests("list", "pods", 10*time.Second)
		w.onDelete = slowDelete(5 * time.Second)
		stop := w.run()
		probe := func(ready int, when string) {
			t.Helper()
			require.Equal(t, ready, w.probe(w.controller.Readyz), when)
			require.Equal(t, http.StatusOK, w.probe(w.controller.Healthz), when)
		}
		probe(http.StatusServiceUnavailable, "before the caches have synced")
		advance(11 * time.Second)
		probe(http.StatusOK, "caches synced")

		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			stop()
		}()
		advance(time.Second)
		probe(http.StatusServiceUnavailable, "while it drains the queue")
		<-stopped
		probe(http.StatusServiceUnavailable, "stopped")
	})
}

// stalePodIsReconciledAgain runs a controller whose watch of Pods is ten seconds late, and has it reconcile a Pod again
// that it has just deleted, and then the next Pod of that name.
func stalePodIsReconciledAgain(w *world) (stop func()) {
	w.watchLag["pods"] = 10 * time.Second
	stop = w.run()
	for range 2 {
		w.startPods("frontend-1")
		advance(time.Minute)
		w.changeConfig()
		advance(2 * time.Second)
		w.changeConfig()
		advance(time.Minute)
	}
	return stop
}

func TestDeletesAPodOnceHoweverLateTheWatchIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer stalePodIsReconciledAgain(w)()
		require.Equal(t, []string{"frontend-1", "frontend-1"}, w.deleted())
		advance(time.Hour)
		require.Equal(t, []string{"frontend-1", "frontend-1"}, w.deleted())
		require.Empty(t, w.loggedErrors())
		require.Len(t, w.logged("Pod is gone"), 2)
	})
}

// Without the feature gate, the guard compares the Pod's own resourceVersion.
func TestDeletesAPodOnceWithoutAtomicFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		featurestesting.SetFeatureDuringTest(t, clientfeatures.AtomicFIFO, false)
		w := newWorld(t)
		defer stalePodIsReconciledAgain(w)()
		require.Len(t, w.logged("The cache reports no resourceVersion, so the guard against a stale cache looks at each Pod's"), 1)
		require.Equal(t, []string{"frontend-1", "frontend-1"}, w.deleted())
		advance(time.Hour)
		require.Equal(t, []string{"frontend-1", "frontend-1"}, w.deleted())
		require.Empty(t, w.loggedErrors())
	})
}

func TestReconcilesAgainWhenItsWriteIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.startPods("frontend-0")
		w.watchLag["pods"] = 10 * time.Second
		stop := w.run()
		defer stop()
		advance(time.Minute)
		w.changeConfig()
		advance(2 * time.Second)
		require.Equal(t, []string{"frontend-0"}, w.deleted())

		// Before the watch delivers the deletion, there is another stale Pod of that name.
		old, err := w.pod("frontend-0")
		require.NoError(t, err)
		w.remove(old)
		new := old.DeepCopy()
		new.UID, new.DeletionTimestamp, new.CreationTimestamp = "another frontend-0", nil, thisSecond()
		w.write(new)
		advance(time.Second)
		w.changeConfig()
		advance(5 * time.Second)
		require.Equal(t, []string{"frontend-0"}, w.deleted())
		advance(time.Minute)
		require.Equal(t, []string{"frontend-0", "another frontend-0"}, w.deleted())
		require.Empty(t, w.loggedErrors())
	})
}

// unobservedWrites counts the Pods for which the controller takes its cache to be stale.
func (w *world) unobservedWrites() int {
	w.controller.ownWrites.mu.Lock()
	defer w.controller.ownWrites.mu.Unlock()
	return len(w.controller.ownWrites.last)
}

func TestForgetsWritesThatItHasObserved(t *testing.T) {
	tests := map[string]func(w *world){
		"the watch delivers it": func(*world) {},
		"the watch breaks":      func(w *world) { w.breakWatch("pods") },
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.watchLag["pods"] = time.Second
				stop := w.run()
				defer stop()
				pods := []string{"frontend-1", "frontend-2", "frontend-3"}
				w.makeStale(pods...)
				require.Equal(t, 3, w.unobservedWrites())
				happens(w)
				for _, name := range pods {
					pod, err := w.pod(name)
					require.NoError(t, err)
					w.remove(pod)
				}
				advance(20 * time.Second)
				require.Zero(t, w.unobservedWrites())
				require.Len(t, w.logged("Pod is gone"), 3)
			})
		})
	}
}

func TestShutdownWaitsForInFlightRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.onDelete = slowDelete(3 * time.Second)
		stop := w.run()
		w.makeStale("frontend-1")
		advance(time.Second)
		begin := time.Now()
		stop()
		require.Equal(t, 2*time.Second, time.Since(begin))
		pod, err := w.pod("frontend-1")
		require.NoError(t, err)
		require.NotNil(t, pod.DeletionTimestamp, "the request succeeded")
		require.Empty(t, w.loggedErrors())
	})
}

func TestShutdownDrainsTheQueue(t *testing.T) {
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.options.Workers = workers
				w.onDelete = slowDelete(2 * time.Second)
				w.prepare = func(c *Controller) { c.queue = pausingQueue{c.queue} }
				stop := w.run()
				pods := names(5)
				w.makeStale(pods...)
				advance(time.Second)
				require.Len(t, w.deleted(), workers)
				stop()
				require.ElementsMatch(t, pods, w.deleted())
				require.Empty(t, w.loggedErrors())
				require.Len(t, w.logged("Stopped"), 1)
			})
		})
	}
}

// pausingQueue pauses a worker between two items.
type pausingQueue struct {
	workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

func (q pausingQueue) Done(key cache.ObjectName) {
	q.TypedRateLimitingInterface.Done(key)
	time.Sleep(time.Millisecond)
}

func TestShutdownCancelsInFlightRequestsAfterGrace(t *testing.T) {
	for _, grace := range seconds(0, 10) {
		t.Run(grace.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.options.Grace = grace
				w.onDelete = slowDelete(time.Hour)
				stop := w.run()
				w.makeStale("frontend-1", "frontend-2", "frontend-3")
				advance(time.Second)
				begin := time.Now()
				stop()
				require.Equal(t, grace, time.Since(begin))
				require.Len(t, w.loggedErrors(), 3)
				require.Contains(t, w.loggedErrors()[0], context.Canceled.Error())
			})
		})
	}
}

func TestStopsImmediatelyWhenNothingIsInFlight(t *testing.T) {
	tests := map[string]func(w *world){
		"the caches have synced":         func(*world) {},
		"the list of Pods fails":         func(w *world) { w.failRequests("list", "pods", errServer) },
		"the list of configs fails":      func(w *world) { w.failRequests("list", "configmaps", errServer) },
		"the list of Pods takes long":    func(w *world) { w.delayRequests("list", "pods", time.Hour) },
		"the list of configs takes long": func(w *world) { w.delayRequests("list", "configmaps", time.Hour) },
		"a retry waits for its backoff":  func(w *world) { w.onDelete = failFirst(100) },
		"no Event can be written": func(w *world) {
			w.onDelete = failFirst(100)
			w.failRequests("create", "events", errors.New("connection refused"))
		},
	}
	for name, prepare := range tests {
		for _, after := range []time.Duration{0, 90*time.Second + time.Millisecond} {
			t.Run(fmt.Sprintf("%s, after %s", name, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.makeStale("frontend-1", "frontend-2", "frontend-3")
					prepare(w)
					stop := w.run()
					advance(after)
					begin := time.Now()
					stop()
					require.Zero(t, time.Since(begin), "shutdown waits for nothing")
					requests := w.deleted()
					advance(time.Hour) // until a list request that was abandoned has ended
					require.Equal(t, requests, w.deleted())
				})
			})
		}
	}
}

func TestDoesNothingIfItIsStoppedBeforeItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.makeStale("frontend-1")
		ctx, cancel := context.WithCancel(w.context())
		controller, err := New(ctx, w.Clientset, w.options)
		require.NoError(t, err)
		controller.deletePod = w.deletePod
		cancel()
		begin := time.Now()
		require.NoError(t, controller.Run(ctx))
		require.Zero(t, time.Since(begin))
		require.Empty(t, w.deleted())
		require.Equal(t, http.StatusServiceUnavailable, w.probe(controller.Readyz))
	})
}

func TestShutdownWaitsForTheInformers(t *testing.T) {
	for _, resource := range []string{"pods", "configmaps"} {
		t.Run(resource, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.delayWatchStop(resource, 6*time.Second)
				stop := w.run()
				begin := time.Now()
				stop()
				require.Equal(t, 6*time.Second, time.Since(begin))
			})
		})
	}
}

func TestLeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.onDelete = failFirst(100)
		w.failRequests("create", "events", errors.New("connection refused"))
		stop := w.run()
		w.makeStale("frontend-1", "frontend-2", "frontend-3")
		advance(time.Minute)
		stop()
		// synctest.Test fails if goroutines are left when the bubble ends.
	})
}
