package crd_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
)

var (
	errBadDay  = apierrors.NewInternalError(errors.New("the API server has a bad day"))
	errNoCloud = errors.New("read tcp 127.0.0.1:4711: connection reset")
	errQuota   = &crd.RefusedError{Reason: samplecrdv1.ReasonQuotaExceeded, Message: "no more networks"}
)

const (
	isReady     = "Normal Ready: the network is as it should be"
	isDown      = "Warning BackendUnavailable: the cloud does not answer, or not as it should; it is tried again"
	isOverQuota = "Warning QuotaExceeded: no more networks"
)

func TestMakesWhatANetworkSays(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("front")
		later(time.Second)
		n, ready := w.now("front")
		require.Equal(t, []string{crd.Finalizer}, n.Finalizers)
		require.Equal(t, metav1.ConditionTrue, ready.Status)
		require.Equal(t, samplecrdv1.ReasonReady, ready.Reason)
		require.EqualValues(t, 1, ready.ObservedGeneration)
		require.EqualValues(t, 1, n.Status.ObservedGeneration)
		require.Equal(t, "n-front", n.Status.NetworkID)
		require.Equal(t, "s-front", n.Status.SubnetID)
		require.Equal(t, map[types.UID]string{"front": "10.0.0.1"}, w.gateways())
		require.Equal(t, map[string]int{"patch ": 1, "patch status": 1}, w.writes())
		require.Equal(t, []string{"front " + isReady}, w.announced())
	})
}

func TestLooksAgainAndWritesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("front")
		later(time.Second)
		w.took()
		w.writes()
		said := w.announced()
		later(time.Hour)
		calls := w.took()
		require.GreaterOrEqual(t, len(calls), 5)
		require.LessOrEqual(t, len(calls), 6)
		for _, pause := range pauses(calls) {
			require.GreaterOrEqual(t, pause, 10*time.Minute)
			require.LessOrEqual(t, pause, 12*time.Minute)
		}
		require.Greater(t, len(slices.Compact(pauses(calls))), 1, "not all at once")

		w.lose() // Nobody tells us.
		later(12 * time.Minute)
		require.Equal(t, map[types.UID]string{"front": "10.0.0.1"}, w.gateways())
		require.Empty(t, w.writes())
		require.Equal(t, said, w.announced())
	})
}

func TestMakesNothingBeforeTheFinalizerIsOn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.fail("patch", "", 5, false, apierrors.NewForbidden(resource.GroupResource(), "front", errors.New("no role yet")))
		w.create("front")
		later(time.Second)
		require.Empty(t, w.took())
		require.Equal(t, map[string]int{"patch ": 4}, w.writes(), "it tries")
		later(time.Minute)
		require.Equal(t, map[string]int{"patch ": 2, "patch status": 1}, w.writes())
		require.NotEmpty(t, w.gateways())
	})
}

func TestTheGatewayChanges(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("front")
		later(time.Minute)
		_, before := w.now("front")
		w.writes()
		w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = "10.0.0.254" })
		later(time.Second)
		n, ready := w.now("front")
		require.Equal(t, map[types.UID]string{"front": "10.0.0.254"}, w.gateways())
		require.EqualValues(t, 2, n.Status.ObservedGeneration)
		require.EqualValues(t, 2, ready.ObservedGeneration)
		require.Equal(t, before.LastTransitionTime, ready.LastTransitionTime)
		require.Equal(t, map[string]int{"patch status": 1}, w.writes())
		require.Len(t, w.announced(), 1, "it was ready before")
	})
}

func TestTheCloudIsDown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var tries atomic.Int64
		w.meets(func(context.Context) error {
			return fmt.Errorf("%w: try %d", errNoCloud, tries.Add(1))
		})
		w.create("front")
		later(time.Second)
		n, ready := w.now("front")
		require.Equal(t, metav1.ConditionFalse, ready.Status)
		require.Equal(t, samplecrdv1.ReasonUnavailable, ready.Reason)
		require.NotContains(t, ready.Message, "4711")
		require.NotContains(t, ready.Message, "try ")
		require.Empty(t, n.Status.NetworkID)
		require.Equal(t, map[string]int{"patch ": 1, "patch status": 1}, w.writes())
		w.took()

		later(time.Hour)
		require.Empty(t, w.writes(), "it is said once")
		require.Equal(t, []string{"front " + isDown}, w.announced())
		calls := w.took()
		require.Greater(t, len(calls), 60)
		pauses := pauses(calls)
		for i := 1; i < len(pauses); i++ {
			require.Equal(t, min(2*pauses[i-1], time.Minute), pauses[i])
		}
		require.Equal(t, time.Minute, pauses[len(pauses)-1])

		w.fails(nil)
		later(time.Minute)
		n, ready = w.now("front")
		require.Equal(t, metav1.ConditionTrue, ready.Status)
		require.Equal(t, "n-front", n.Status.NetworkID)
		require.WithinDuration(t, time.Now(), ready.LastTransitionTime.Time, time.Minute)
		require.Equal(t, map[string]int{"patch status": 1}, w.writes())

		// The next time, it begins with short pauses again.
		later(time.Hour)
		w.took()
		w.fails(errNoCloud)
		w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = "10.0.0.254" })
		later(time.Second)
		require.GreaterOrEqual(t, len(w.took()), 4)
	})
}

func TestOneThatFailsDoesNotHoldUpTheOthers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.fails(errNoCloud)
		w.create("front")
		later(10 * time.Minute)
		w.fails(nil)
		w.create("back")
		later(time.Second / 2)
		_, ready := w.now("back")
		require.Equal(t, metav1.ConditionTrue, ready.Status)
	})
}

func TestRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.fails(fmt.Errorf("create the network: %w", errQuota))
		w.create("front")
		later(time.Second)
		_, ready := w.now("front")
		require.Equal(t, metav1.ConditionFalse, ready.Status)
		require.Equal(t, samplecrdv1.ReasonQuotaExceeded, ready.Reason)
		require.Equal(t, "no more networks", ready.Message)
		since := ready.LastTransitionTime

		w.fails(crd.InUse([]string{"web-1", "web-2"}, nil))
		later(5 * time.Minute)
		_, ready = w.now("front")
		require.Equal(t, samplecrdv1.ReasonInUse, ready.Reason)
		require.Contains(t, ready.Message, "web-1, web-2")
		require.Equal(t, since, ready.LastTransitionTime, "the status of the condition is the same")
		require.Equal(t, map[string]int{"patch ": 1, "patch status": 2}, w.writes())

		w.fails(nil) // Somebody has made room, and we are not told.
		later(time.Minute)
		_, ready = w.now("front")
		require.Equal(t, metav1.ConditionTrue, ready.Status)
		require.True(t, since.Before(&ready.LastTransitionTime))
	})
}

// A cloud puts the ID of the request into each of its errors, so the status changes at each attempt.
func TestARefusalThatIsWordedDifferentlyEachTimeIsRetriedWithBackoff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.refusesDifferently()
		w.create("front")
		later(time.Hour)
		_, ready := w.now("front")
		require.Equal(t, samplecrdv1.ReasonQuotaExceeded, ready.Reason)
		require.NotContains(t, ready.Message, "(req-1)", "the status must have the latest message")
		pauses := pauses(w.took())
		require.Greater(t, len(pauses), 60)
		require.Equal(t, 100*time.Millisecond, pauses[0])
		for i := 1; i < len(pauses); i++ {
			require.Equal(t, min(2*pauses[i-1], time.Minute), pauses[i])
		}
		require.Equal(t, []string{"front Warning QuotaExceeded: no more networks (req-1)"}, w.announced())
	})
}

// While its cache is stale, the controller waits. That is neither a failure nor a success, so the backoff goes on growing.
func TestAStaleCacheDoesNotResetTheBackoff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.refusesDifferently()
		w.create("front")
		for range 300 { // Each event of the watch is up to 2s late.
			goOn := w.delayWatch()
			later(2 * time.Second)
			goOn()
			synctest.Wait()
		}
		calls := len(w.took())
		require.Greater(t, calls, 10)
		require.Less(t, calls, 25, "in ten minutes")
	})
}

func TestAProblemDoesNotForgetWhatIsThere(t *testing.T) {
	for name, problem := range map[string]error{"down": errNoCloud, "refused": errQuota} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.create("front")
				later(time.Second)
				w.fails(problem)
				w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = "10.0.0.254" })
				later(time.Second)
				n, ready := w.now("front")
				require.Equal(t, metav1.ConditionFalse, ready.Status)
				require.EqualValues(t, 2, n.Status.ObservedGeneration)
				require.Equal(t, "n-front", n.Status.NetworkID)
				require.Equal(t, "s-front", n.Status.SubnetID)
			})
		})
	}
}

func TestAnEventForEachTransition(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		want := []string{}
		for _, step := range []struct {
			problem error
			says    string
		}{{nil, isReady}, {errNoCloud, isDown}, {errQuota, isOverQuota}, {nil, isReady}, {errQuota, isOverQuota}} {
			w.fails(step.problem)
			if len(want) == 0 {
				w.create("front")
			}
			later(time.Hour)
			want = append(want, "front "+step.says)
			require.Equal(t, want, w.announced())
		}
	})
}

func TestDeletion(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("front")
		later(time.Minute)
		w.fails(crd.InUse([]string{"web-1"}, nil))
		w.took()
		w.writes()
		w.delete("front")
		later(time.Minute)
		n, ready := w.now("front")
		require.Equal(t, []string{crd.Finalizer}, n.Finalizers)
		require.Equal(t, metav1.ConditionFalse, ready.Status)
		require.Equal(t, samplecrdv1.ReasonInUse, ready.Reason)
		require.Contains(t, ready.Message, "web-1")
		require.EqualValues(t, 2, n.Status.ObservedGeneration)
		require.Equal(t, "n-front", n.Status.NetworkID, "what is there is not forgotten")
		require.Equal(t, "s-front", n.Status.SubnetID)
		require.Equal(t, map[string]int{"patch status": 1}, w.writes())

		w.fails(errNoCloud)
		later(10 * time.Minute)
		n, ready = w.now("front")
		require.Equal(t, []string{crd.Finalizer}, n.Finalizers)
		require.Equal(t, samplecrdv1.ReasonUnavailable, ready.Reason)
		require.Equal(t, "n-front", n.Status.NetworkID)
		require.Equal(t, map[string]int{"patch status": 1}, w.writes())

		w.fails(nil)
		later(time.Minute)
		_, err := w.get("front")
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		require.Empty(t, w.gateways())
		require.Equal(t, map[string]int{"patch ": 1}, w.writes())
		require.Equal(t, []string{"delete"}, verbs(w.took()))

		later(time.Hour)
		require.Empty(t, w.took(), "it is nobody's business any more")
		require.Empty(t, w.writes())
	})
}

func TestDeletionWhileTheCloudIsDown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.fails(errNoCloud)
		w.create("front") // Something may be there, and nobody knows.
		later(time.Minute)
		w.delete("front")
		later(time.Hour)
		n, _ := w.now("front")
		require.Equal(t, []string{crd.Finalizer}, n.Finalizers)
		w.took()
		w.fails(nil)
		later(time.Minute)
		require.Equal(t, []string{"delete"}, verbs(w.took()))
		_, err := w.get("front")
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
}

const others = "example.com/others"

func TestLeavesTheFinalizersOfOthersAlone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("front", others)
		later(time.Second)
		n, _ := w.now("front")
		require.Equal(t, []string{others, crd.Finalizer}, n.Finalizers)
		w.writes()
		w.delete("front")
		later(time.Second)
		n, _ = w.now("front")
		require.Equal(t, []string{others}, n.Finalizers)
		require.Empty(t, w.gateways())
		require.Equal(t, map[string]int{"patch ": 1}, w.writes())

		w.took()
		w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = "10.0.0.254" })
		later(time.Hour)
		require.Empty(t, w.took())
		require.Empty(t, w.writes())
	})
}

func TestOneThatIsDeletedBeforeItIsOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("front", others)
		w.delete("front")
		stop := w.run()
		defer stop()
		later(time.Hour)
		require.Empty(t, w.took())
		require.Empty(t, w.writes())
	})
}

func TestDoesNotTakeOffAFinalizerThatItHasNotSeen(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		goOn := w.delayWatch()
		w.create("front")
		w.change("front", func(n *samplecrdv1.Network) { n.Finalizers = append(n.Finalizers, others) })
		goOn = w.bringOne(goOn)
		later(time.Second)
		require.Equal(t, map[string]int{"patch ": 4}, w.writes(), "it tries")
		goOn()
		later(time.Minute)
		n, err := w.get("front")
		require.NoError(t, err)
		require.Equal(t, []string{others, crd.Finalizer}, n.Finalizers)
	})
}

func TestAWriteThatFails(t *testing.T) {
	for _, write := range []struct {
		name, subresource string
		goes              bool // the Network is deleted
	}{{"finalizer on", "", false}, {"status", "status", false}, {"finalizer off", "", true}} {
		for name, wrong := range map[string]struct {
			done bool
			err  error
		}{
			"the API server has a bad day": {false, errBadDay},
			"it has been changed":          {false, apierrors.NewConflict(resource.GroupResource(), "front", errors.New("changed"))},
			"the answer is lost":           {true, context.DeadlineExceeded},
		} {
			t.Run(write.name+", "+name, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					if write.goes {
						w.create("front")
						later(time.Second)
					}
					w.fail("patch", write.subresource, 3, wrong.done, wrong.err)
					if write.goes {
						w.delete("front")
					} else {
						w.create("front")
					}
					later(time.Minute)
					if write.goes {
						_, err := w.get("front")
						require.True(t, apierrors.IsNotFound(err), "%v", err)
						require.Empty(t, w.gateways())
						return
					}
					n, ready := w.now("front")
					require.Equal(t, metav1.ConditionTrue, ready.Status)
					require.Equal(t, []string{crd.Finalizer}, n.Finalizers)
					require.NotEmpty(t, w.gateways())
				})
			})
		}
	}
}

// The world says when the controller acts on what it has changed itself since.
func TestWritesOnceHoweverLateTheWatchIs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("front")
		later(time.Minute)
		w.writes()
		w.took()
		goOn := w.delayWatch()
		w.fails(errQuota)
		later(time.Hour) // It is looked at again, and then the controller's own write does not come.
		require.Equal(t, map[string]int{"patch status": 1}, w.writes())
		require.Len(t, w.took(), 1)
		require.Equal(t, []string{"front " + isReady, "front " + isOverQuota}, w.announced())

		w.fails(nil)
		goOn()
		later(time.Second)
		_, ready := w.now("front")
		require.Equal(t, metav1.ConditionTrue, ready.Status, "it goes on when the write has come")
	})
}

func TestMakesNothingAgainHoweverLateTheWatchIs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("front")
		w.create("back")
		later(time.Minute)
		goOn := w.delayWatch()
		w.delete("front")
		goOn = w.bringOne(goOn)
		w.took()
		w.writes()
		later(time.Hour) // The recheck comes, and the cache still has the Network.
		require.Equal(t, map[types.UID]string{"back": "10.0.0.1"}, w.gateways())
		require.Equal(t, []string{"ensure"}, verbs(w.took()), "back")
		require.Empty(t, w.writes())
		goOn()
		later(time.Hour)
		require.Equal(t, []string{"ensure"}, verbs(w.took()), "back")
	})
}

// The API server has another Network of the name before the watch brings it.
func TestSaysNothingOfOneAboutAnother(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("front")
		later(time.Minute)
		w.meets(taking(5 * time.Second))
		w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = "10.0.0.254" })
		later(time.Second)
		w.delayWatch()
		w.change("front", func(n *samplecrdv1.Network) { n.Finalizers = nil })
		w.delete("front")
		w.create("front")
		w.change("front", func(n *samplecrdv1.Network) { n.UID = "another" })
		later(10 * time.Second)
		n, err := w.get("front")
		require.NoError(t, err)
		require.Empty(t, n.Status)
	})
}

func TestOneThatIsGoneIsNoFailure(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("front")
		later(time.Minute)
		w.meets(taking(5 * time.Second))
		w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = "10.0.0.254" })
		later(time.Second)
		w.change("front", func(n *samplecrdv1.Network) { n.Finalizers = nil }) // by force
		w.delete("front")
		w.took()
		later(time.Hour)
		require.Equal(t, []string{"delete"}, verbs(w.took()), "only what is left of it is of interest")
		require.Empty(t, w.gateways())
		require.Empty(t, w.complaints())
		_, err := w.get("front")
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
}

func TestFinishesWhatItIsAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("front", crd.Finalizer)
		w.meets(taking(3 * time.Second))
		stop := w.run()
		later(time.Second)
		begin := time.Now()
		stop()
		require.Equal(t, 2*time.Second, time.Since(begin))
		_, ready := w.now("front")
		require.Equal(t, metav1.ConditionTrue, ready.Status)
		require.NotEmpty(t, w.gateways())
		require.Len(t, w.took(), 1)
	})
}

func TestGivesUpWhenTheTimeOfGraceIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.meets(taking(time.Hour))
		stop := w.run()
		w.create("front")
		w.create("back")
		w.create("middle")
		later(time.Second)
		begin := time.Now()
		stop()
		require.Equal(t, w.options.Grace, time.Since(begin))
	})
}

func TestStopsAtAnyTime(t *testing.T) {
	tests := map[string]func(w *world){
		"at rest":                  func(*world) {},
		"the cloud is down":        func(w *world) { w.fails(errNoCloud) },
		"the watch is late":        func(w *world) { w.delayWatch() },
		"a list fails":             func(w *world) { w.refuse("list", errBadDay) },
		"no status can be written": func(w *world) { w.refuse("patch", errBadDay) },
		"no Event can be written": func(w *world) {
			w.kube.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("connection refused")
			})
		},
	}
	for name, trouble := range tests {
		for _, after := range []time.Duration{0, 90*time.Second + time.Millisecond} {
			t.Run(fmt.Sprintf("%s, after %s", name, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.create("front")
					w.create("back")
					trouble(w)
					stop := w.run()
					later(after)
					begin := time.Now()
					stop()
					require.Zero(t, time.Since(begin), "it waits for nothing when it is asked to stop")
					w.took()
					w.writes()
					later(time.Hour)
					require.Empty(t, w.took())
					require.Empty(t, w.writes())
					// The bubble complains of goroutines that wait for something when it ends.
				})
			})
		}
	}
}

func TestStopsWhenItsInformerHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.slowToStop(6 * time.Second)
		stop := w.run()
		begin := time.Now()
		stop()
		require.Equal(t, 6*time.Second, time.Since(begin))
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
		w.create("front")
		w.delay("list", 10*time.Second)
		w.meets(taking(5 * time.Second))
		stop := w.run()
		probe := func(ready int, when string) {
			t.Helper()
			require.Equal(t, ready, w.probe(w.controller.Readyz), when)
			require.Equal(t, http.StatusOK, w.probe(w.controller.Healthz), when)
		}
		probe(http.StatusServiceUnavailable, "before it is in step")
		require.Empty(t, w.took())
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

func TestGoesOnWhereAnotherStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		w.create("front")
		w.create("back")
		later(time.Minute)
		stop()
		w.delete("front")
		w.writes()
		said := w.announced()
		stop = w.run()
		defer stop()
		later(time.Second)
		require.Equal(t, map[types.UID]string{"back": "10.0.0.1"}, w.gateways())
		require.Equal(t, map[string]int{"patch ": 1}, w.writes())
		require.Equal(t, said, w.announced())
	})
}

func TestWritesNothingIntoItsCache(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		// The mutation detector ends the process if it does.
		w.create("front", others)
		later(time.Minute)
		w.fails(errNoCloud)
		later(time.Hour)
		w.delete("front")
		later(time.Minute)
		w.fails(nil)
		later(time.Hour)
	})
}

func TestWorkersShareTheWorkButNoNetwork(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		now, most := 0, 0
		w.meets(func(context.Context) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return errNoCloud
		})
		w.create("front")
		for i := range 20 {
			later(300 * time.Millisecond)
			w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = fmt.Sprintf("10.0.0.%d", 2+i) })
		}
		require.Equal(t, 1, most)
		w.create("back")
		w.create("middle")
		later(10 * time.Second)
		require.Equal(t, 2, most)
	})
}
