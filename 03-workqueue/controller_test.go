package workqueue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

var errBadDay = apierrors.NewInternalError(errors.New("the API server has a bad day"))

// stale makes Pods of the frontend that are older than their config, and comes back when the second of
// the change is over.
func (w *world) stale(names ...string) {
	w.startPods(names...)
	later(time.Minute)
	w.changeConfig()
	later(time.Second)
}

// names returns the names of so many Pods.
func names(count int) []string {
	var names []string
	for number := range count {
		names = append(names, fmt.Sprint("frontend-", number))
	}
	return names
}

// failing returns a trouble that the first requests meet.
func failing(times int) func(context.Context, *corev1.Pod) error {
	return failingWith(errBadDay, times)
}

func failingWith(err error, times int) func(context.Context, *corev1.Pod) error {
	var requests atomic.Int64
	return func(context.Context, *corev1.Pod) error {
		if requests.Add(1) > int64(times) {
			return nil
		}
		return err
	}
}

// taking returns a trouble with which a request takes time, if nobody gives up on it.
func taking(d time.Duration) func(context.Context, *corev1.Pod) error {
	return func(ctx context.Context, _ *corev1.Pod) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// seconds returns so many seconds, each.
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
		later(time.Minute)
		w.startPods("frontend-1", "frontend-2", "frontend-3")
		w.write(newPod(namespace, "backend-1", "backend"))
		elsewhere := newPod("mall", "elsewhere", "frontend")
		w.write(elsewhere)
		stop := w.run()
		defer stop()

		looks := w.looks("frontend-1")
		require.Contains(t, []int{1, 2}, looks, "the Pod is new, and so is the config; a worker may look in between")
		later(time.Hour)
		w.changeOtherConfig(namespace, "backend-config")
		w.changeOtherConfig("mall", ConfigName)
		later(time.Hour)
		require.Empty(t, w.deleted(), "before any change")
		require.Equal(t, looks, w.looks("frontend-1"), "before any change")

		w.changeConfig()
		later(5 * time.Second)
		w.write(elsewhere)
		later(5 * time.Second)
		require.ElementsMatch(t, []string{"frontend-1", "frontend-2", "frontend-3"}, w.deleted(), "after the change")

		w.startPods("frontend-4")
		later(time.Hour)
		require.Len(t, w.deleted(), 3, "a Pod that started after the change")
		require.Equal(t, 1, w.looks("backend-1"), "a Pod that the config does not concern")
		require.Empty(t, w.complaints())
	})
}

func TestReplacesPodsWhenTheConfigIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.startPods("frontend-1")
		stop := w.run()
		defer stop()
		later(time.Minute)
		require.Empty(t, w.deleted(), "there is no config")
		require.Empty(t, w.complaints(), "there is no config")
		w.changeConfig()
		later(time.Minute)
		require.Equal(t, []string{"frontend-1"}, w.deleted())
	})
}

func TestActsOnAChangeMadeWhileItWasDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.changeConfig()
		later(time.Minute)
		w.startPods("frontend-1")
		stop := w.run()
		later(time.Minute)
		stop()

		w.changeConfig()
		later(time.Minute)
		w.startPods("frontend-2")
		require.Empty(t, w.deleted(), "while it is down")

		stop = w.run()
		defer stop()
		later(time.Minute)
		require.Equal(t, []string{"frontend-1"}, w.deleted(), "after it has come back")
	})
}

func TestFindsOutWhatTheWatchesMissed(t *testing.T) {
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
				later(time.Minute)
				w.startPods("frontend-1")
				stop := w.run()
				defer stop()
				later(time.Minute)
				test.happens(w)
				later(time.Hour)
				require.ElementsMatch(t, test.want, w.deleted())
			})
		})
	}
}

func TestWaitsUntilTheSecondOfTheChangeIsOver(t *testing.T) {
	for name, up := range map[string]bool{"it is told": true, "it starts within that second": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.startPods("frontend-1", "frontend-2")
				if up {
					stop := w.run()
					defer stop()
				}
				later(time.Minute)
				begin := time.Now()
				later(300 * time.Millisecond)
				w.changeConfig()
				if !up {
					stop := w.run()
					defer stop()
				}
				later(time.Minute)
				require.Equal(t, seconds(1, 1), w.requestsSince(begin))
			})
		})
	}
}

func TestReplacesAPodThatIsMadeInTheSecondOfTheChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		defer stop()
		later(time.Minute)
		begin := time.Now()
		later(300 * time.Millisecond)
		w.changeConfig()
		later(300 * time.Millisecond)
		w.startPods("frontend-1")
		later(time.Minute)
		require.Equal(t, seconds(1), w.requestsSince(begin))
	})
}

func TestTriesAgainLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		defer stop()

		w.trouble = failing(7)
		w.stale("frontend-1")
		begin := time.Now()
		later(time.Hour)
		require.Equal(t, seconds(0, 1, 3, 7, 15, 25, 35, 45), w.requestsSince(begin))
		var complaints []string
		for failures := range 7 {
			complaints = append(complaints, fmt.Sprintf("Failed, will try again pod=shop/frontend-1 failures=%d: delete Pod shop/frontend-1: %v",
				failures+1, errBadDay))
		}
		require.Equal(t, complaints, w.complaints())

		// The next Pod of that name is none the worse for it.
		w.trouble = failing(2)
		w.stale("frontend-1")
		begin = time.Now()
		later(time.Hour)
		require.Equal(t, seconds(0, 1, 3), w.requestsSince(begin))
	})
}

func TestTriesAgainWhateverWentWrong(t *testing.T) {
	pods := corev1.Resource("pods")
	tests := map[string]error{
		"the API server has a bad day":  errBadDay,
		"the API server is overloaded":  apierrors.NewTooManyRequests("slow down", 1),
		"it takes the API server long":  apierrors.NewServerTimeout(pods, "delete", 1),
		"we may not, for now":           apierrors.NewForbidden(pods, "frontend-1", errors.New("no role yet")),
		"it is another Pod":             apierrors.NewConflict(pods, "frontend-1", errors.New("the UID is another")),
		"nobody is there":               &url.Error{Op: "Delete", URL: "https://127.0.0.1", Err: syscall.ECONNREFUSED},
		"the connection breaks halfway": &url.Error{Op: "Delete", URL: "https://127.0.0.1", Err: io.ErrUnexpectedEOF},
		"there is no answer in time":    context.DeadlineExceeded,
	}
	for name, wrong := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.trouble = failingWith(wrong, 2)
				stop := w.run()
				defer stop()
				w.stale("frontend-1")
				begin := time.Now()
				later(time.Hour)
				require.Equal(t, seconds(0, 1, 3), w.requestsSince(begin))
				require.Len(t, w.complaints(), 2)
			})
		})
	}
}

func TestNeverGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.Backoff, w.options.MaxBackoff = 100*time.Millisecond, time.Minute
		recovery := time.Now().Add(24 * time.Hour)
		w.trouble = func(context.Context, *corev1.Pod) error {
			if time.Now().Before(recovery) {
				return errBadDay
			}
			return nil
		}
		stop := w.run()
		defer stop()
		w.stale("frontend-1")
		later(24*time.Hour + 2*time.Minute)
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
		w.trouble = func(_ context.Context, pod *corev1.Pod) error {
			if pod.Name == "frontend-2" {
				return errBadDay
			}
			return nil
		}
		stop := w.run()
		defer stop()
		w.stale("frontend-1", "frontend-2", "frontend-3")
		begin := time.Now()
		later(time.Second / 2)
		require.ElementsMatch(t, []string{"frontend-1", "frontend-2", "frontend-3"}, w.deleted())
		require.Equal(t, seconds(0, 0, 0), w.requestsSince(begin))
	})
}

func TestAPodWhoseEndItHasNotSeenDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.Workers, w.options.MaxBackoff = 1, time.Second
		w.trouble = func(_ context.Context, pod *corev1.Pod) error {
			if pod.Name == "frontend-2" {
				return errBadDay
			}
			return nil
		}
		w.startPods("frontend-1", "frontend-2")
		w.lag["pods"] = 10 * time.Second
		stop := w.run()
		defer stop()
		later(time.Minute)
		w.changeConfig()
		later(time.Second)
		w.changeConfig() // frontend-1 is looked at again, and the cache does not know yet that it is ending.
		later(time.Second + time.Millisecond)
		begin := time.Now()
		later(5 * time.Second)
		requests := w.requestsSince(begin)
		later(time.Minute) // until it has seen it; only then can a worker that waits for that stop
		require.Len(t, requests, 5, "to delete frontend-2")
	})
}

func TestAPodThatIsGoneIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.trouble = func(_ context.Context, pod *corev1.Pod) error {
			return apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
		}
		stop := w.run()
		defer stop()
		w.stale("frontend-1")
		later(time.Hour)
		require.Equal(t, []string{"frontend-1"}, w.deleted())
		require.Empty(t, w.complaints())
	})
}

func TestAnEventSaysOnceThatAPodIsNotReplaced(t *testing.T) {
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
				w.trouble = failing(test.failures)
				w.stale("frontend-1")
				later(time.Hour)
				events := w.events()
				require.Len(t, events, test.want)
				for _, event := range events {
					require.Equal(t, corev1.EventTypeWarning, event.Type)
					require.Equal(t, "NotReplaced", event.Reason)
					require.Equal(t, "Delete", event.Action)
					require.Equal(t, "Pod shop/frontend-1 frontend-1",
						fmt.Sprintf("%s %s/%s %s", event.Regarding.Kind, event.Regarding.Namespace, event.Regarding.Name, event.Regarding.UID))
					require.Equal(t, fmt.Sprint("Runs an old config: delete Pod shop/frontend-1: ", errBadDay), event.Note)
					require.Nil(t, event.Series, "said once")
				}
			})
		})
	}
}

func (w *world) events() []eventsv1.Event {
	list, err := w.EventsV1().Events(metav1.NamespaceAll).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	return list.Items
}

func TestABurstOfChangesIsLookedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.startPods("frontend-1", "frontend-2")
		stop := w.run()
		defer stop()
		later(time.Minute)
		before := w.looks("frontend-1") + w.looks("frontend-2")
		begin := time.Now()
		for range 200 {
			w.changeConfig()
			later(time.Millisecond / 2)
		}
		later(10 * time.Second)
		require.ElementsMatch(t, []string{"frontend-1", "frontend-2"}, w.deleted())
		require.Equal(t, seconds(1, 1), w.requestsSince(begin))
		require.LessOrEqual(t, w.looks("frontend-1")+w.looks("frontend-2")-before, 4, "to delete it, and when it is marked")
	})
}

func TestWhatChangesWhileTheWorkersAreBusyIsLookedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.Workers = 1
		w.trouble = taking(10 * time.Second)
		w.write(newPod(namespace, "backend-1", "backend"))
		stop := w.run()
		defer stop()
		w.stale("frontend-1")
		before := w.looks("backend-1")
		for range 200 {
			w.touch("backend-1")
			synctest.Wait()
		}
		require.Equal(t, before, w.looks("backend-1"), "while the worker is busy")
		later(time.Minute)
		require.Equal(t, before+1, w.looks("backend-1"))
	})
}

func TestWorkersShareTheWorkButNoPod(t *testing.T) {
	for _, test := range []struct{ workers, pods int }{{1, 5}, {2, 5}, {3, 5}, {3, 1}, {3, 2}} {
		t.Run(fmt.Sprintf("%d workers, %d Pods", test.workers, test.pods), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.options.Workers = test.workers
				var mu sync.Mutex
				workersOn, mostOnOne, mostPods := map[string]int{}, 0, 0
				w.trouble = func(_ context.Context, pod *corev1.Pod) error {
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
					return errBadDay // so that there always is something to do
				}
				stop := w.run()
				defer stop()
				pods := names(test.pods)
				w.stale(pods...)
				for range 100 {
					for _, pod := range pods {
						w.touch(pod)
					}
					later(100 * time.Millisecond)
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

func TestDoesNotActOnHalfACache(t *testing.T) {
	for _, resource := range []string{"pods", "configmaps"} {
		t.Run(resource, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.stale("frontend-1", "frontend-2")
				w.delay("list", resource, 10*time.Second)
				stop := w.run()
				defer stop()
				later(9 * time.Second)
				require.Empty(t, w.said("Pod", "In step"))
				require.Equal(t, http.StatusServiceUnavailable, w.probe(w.controller.Readyz))

				begin := time.Now()
				later(time.Minute)
				require.Len(t, w.said("In step"), 1)
				require.Equal(t, http.StatusOK, w.probe(w.controller.Readyz))
				require.Equal(t, seconds(1, 1), w.requestsSince(begin))
			})
		})
	}
}

func TestWritesNothingIntoItsCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		later(time.Minute)
		bare := newPod(namespace, "frontend-1", "frontend")
		bare.Spec.NodeName = "" // not yet
		w.write(bare)
		w.startPods("frontend-2")
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: ConfigName,
			// The API server sorts those who apply before those who update.
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "applier", Operation: metav1.ManagedFieldsOperationApply, Time: new(metav1.NewTime(time.Now().Add(-time.Second)))},
				{Manager: "editor", Operation: metav1.ManagedFieldsOperationUpdate, Time: new(metav1.NewTime(time.Now().Add(-time.Minute)))},
			},
		}}
		w.write(config)
		stop := w.run()
		defer stop() // at once, before the mutation detector looks again, which would end the process
		for _, want := range []string{"frontend-1", "frontend-2"} {
			require.NotZero(t, w.looks(want))
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

func TestAsksOnlyForWhatItsAccountMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.trouble = failing(5)
		stop := w.run()
		defer stop()
		w.stale("frontend-1", "frontend-2")
		later(time.Minute)
		w.breakWatch("pods")
		w.breakWatch("configmaps")
		later(time.Hour)
		// These, and to delete Pods, are what manifests/rbac.yaml allows.
		may := []string{"list pods", "watch pods", "list configmaps", "watch configmaps", "create events", "patch events"}
		for _, action := range w.Actions() {
			require.Contains(t, may, action.GetVerb()+" "+action.GetResource().Resource)
		}
	})
}

// probe returns the status code with which a request is answered.
func (w *world) probe(handler http.HandlerFunc) int {
	recorder := httptest.NewRecorder()
	handler(recorder, httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, "/", nil))
	return recorder.Code
}

func TestIsReadyWhileItWorksAndHealthyAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.stale("frontend-1")
		w.delay("list", "pods", 10*time.Second)
		w.trouble = taking(5 * time.Second)
		stop := w.run()
		probe := func(ready int, when string) {
			t.Helper()
			require.Equal(t, ready, w.probe(w.controller.Readyz), when)
			require.Equal(t, http.StatusOK, w.probe(w.controller.Healthz), when)
		}
		probe(http.StatusServiceUnavailable, "before it is in step")
		later(11 * time.Second)
		probe(http.StatusOK, "in step")

		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			stop()
		}()
		later(time.Second)
		probe(http.StatusServiceUnavailable, "while it finishes what it is at")
		<-stopped
		probe(http.StatusServiceUnavailable, "stopped")
	})
}

func TestDeletesAPodOnceHoweverLateTheWatchIs(t *testing.T) {
	tests := map[string]struct {
		trustCache bool
		want       []string
	}{
		"it knows what it wrote": {false, []string{"frontend-1"}},
		"it trusts the cache":    {true, []string{"frontend-1", "frontend-1"}}, // the mistake
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.options.TrustCache = test.trustCache
				w.startPods("frontend-1")
				w.lag["pods"] = 10 * time.Second
				stop := w.run()
				defer stop()
				later(time.Minute)
				w.changeConfig()
				later(2 * time.Second)
				require.Equal(t, []string{"frontend-1"}, w.deleted())

				w.changeConfig() // The Pod is looked at again, and the cache does not know yet that it is ending.
				later(5 * time.Second)
				require.Equal(t, test.want, w.deleted())
				later(time.Hour)
				require.Equal(t, test.want, w.deleted())
				require.Empty(t, w.complaints())
				require.Len(t, w.said("Pod is gone"), 1)
			})
		})
	}
}

func TestLooksAgainWhenItsOwnWriteHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.startPods("frontend-0")
		w.lag["pods"] = 10 * time.Second
		stop := w.run()
		defer stop()
		later(time.Minute)
		w.changeConfig()
		later(2 * time.Second)
		require.Equal(t, []string{"frontend-0"}, w.deleted())

		// Before we hear of its end, there is another Pod of that name, and it is stale, too.
		old, err := w.pod("frontend-0")
		require.NoError(t, err)
		w.remove(old)
		new := old.DeepCopy()
		new.UID, new.DeletionTimestamp, new.CreationTimestamp = "another frontend-0", nil, thisSecond()
		w.write(new)
		later(time.Second)
		w.changeConfig()
		later(5 * time.Second)
		require.Equal(t, []string{"frontend-0"}, w.deleted())
		later(time.Minute)
		require.Equal(t, []string{"frontend-0", "another frontend-0"}, w.deleted())
		require.Empty(t, w.complaints())
	})
}

// unseenWrites counts the Pods of which the controller believes that its cache is out of date.
func (w *world) unseenWrites() int {
	w.controller.ownWrites.mu.Lock()
	defer w.controller.ownWrites.mu.Unlock()
	return len(w.controller.ownWrites.last)
}

func TestRemembersNoWriteThatItHasSeen(t *testing.T) {
	tests := map[string]func(w *world){
		"the watch brings it": func(*world) {},
		"the watch misses it": func(w *world) { w.breakWatch("pods") },
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.lag["pods"] = time.Second
				stop := w.run()
				defer stop()
				pods := []string{"frontend-1", "frontend-2", "frontend-3"}
				w.stale(pods...)
				require.Equal(t, 3, w.unseenWrites())
				happens(w)
				for _, name := range pods {
					pod, err := w.pod(name)
					require.NoError(t, err)
					w.remove(pod)
				}
				later(20 * time.Second)
				require.Zero(t, w.unseenWrites())
				require.Len(t, w.said("Pod is gone"), 3)
			})
		})
	}
}

func TestFinishesWhatItIsAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.trouble = taking(3 * time.Second)
		stop := w.run()
		w.stale("frontend-1")
		later(time.Second)
		begin := time.Now()
		stop()
		require.Equal(t, 2*time.Second, time.Since(begin))
		pod, err := w.pod("frontend-1")
		require.NoError(t, err)
		require.NotNil(t, pod.DeletionTimestamp, "the request was made")
		require.Empty(t, w.complaints())
	})
}

func TestFinishesWhatIsInTheQueue(t *testing.T) {
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.options.Workers = workers
				w.trouble = taking(2 * time.Second)
				w.prepare = func(c *Controller) { c.queue = pausingQueue{c.queue} }
				stop := w.run()
				pods := names(5)
				w.stale(pods...)
				later(time.Second)
				require.Len(t, w.deleted(), workers)
				stop()
				require.ElementsMatch(t, pods, w.deleted())
				require.Empty(t, w.complaints())
				require.Len(t, w.said("Stopped"), 1)
			})
		})
	}
}

// pausingQueue has a worker pause when it is done with one Pod, and not yet at the next.
type pausingQueue struct {
	workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

func (q pausingQueue) Done(key cache.ObjectName) {
	q.TypedRateLimitingInterface.Done(key)
	time.Sleep(time.Millisecond)
}

func TestGivesUpWhenTheTimeOfGraceIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.trouble = taking(time.Hour)
		stop := w.run()
		w.stale("frontend-1", "frontend-2", "frontend-3")
		later(time.Second)
		begin := time.Now()
		stop()
		require.Equal(t, w.options.Grace, time.Since(begin))
		require.Len(t, w.complaints(), 3)
		require.Contains(t, w.complaints()[0], context.Canceled.Error())
	})
}

func TestStopsAtAnyTime(t *testing.T) {
	tests := map[string]func(w *world){
		"it is in step":                  func(*world) {},
		"the list of Pods fails":         func(w *world) { w.fail("list", "pods", errBadDay) },
		"the list of configs fails":      func(w *world) { w.fail("list", "configmaps", errBadDay) },
		"the list of Pods takes long":    func(w *world) { w.delay("list", "pods", time.Hour) },
		"the list of configs takes long": func(w *world) { w.delay("list", "configmaps", time.Hour) },
		"it waits to try again":          func(w *world) { w.trouble = failing(100) },
		"no Event can be written": func(w *world) {
			w.trouble = failing(100)
			w.fail("create", "events", errors.New("connection refused"))
		},
	}
	for name, trouble := range tests {
		for _, after := range []time.Duration{0, 90*time.Second + time.Millisecond} {
			t.Run(fmt.Sprintf("%s, after %s", name, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.stale("frontend-1", "frontend-2", "frontend-3")
					trouble(w)
					stop := w.run()
					later(after)
					begin := time.Now()
					stop()
					require.Zero(t, time.Since(begin), "it waits for nothing when it is asked to stop")
					requests := w.deleted()
					later(time.Hour) // until a list that nobody waits for has ended
					require.Equal(t, requests, w.deleted())
				})
			})
		}
	}
}

func TestStopsWhenItsInformersHaveStopped(t *testing.T) {
	for _, resource := range []string{"pods", "configmaps"} {
		t.Run(resource, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.slowToStop(resource, 6*time.Second)
				stop := w.run()
				begin := time.Now()
				stop()
				require.Equal(t, 6*time.Second, time.Since(begin))
			})
		})
	}
}

func TestNothingOfItIsLeftWhenItHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.trouble = failing(100)
		w.fail("create", "events", errors.New("connection refused"))
		stop := w.run()
		w.stale("frontend-1", "frontend-2", "frontend-3")
		later(time.Minute)
		stop()
		// The bubble complains of goroutines that wait for something when it ends.
	})
}
