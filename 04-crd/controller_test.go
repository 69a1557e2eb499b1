package crd_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
	samplecrdv1ac "example.com/controllers/crd/generated/applyconfiguration/samplecrd/v1"
)

var (
	errInternal = apierrors.NewInternalError(errors.New("internal error"))
	errNoCloud  = errors.New("read tcp 127.0.0.1:4711: connection reset")
	errQuota    = &crd.RefusedError{Reason: samplecrdv1.ReasonQuotaExceeded, Message: "no more networks"}
)

const (
	readyEvent       = "Normal Ready: the network in the cloud matches the spec"
	unavailableEvent = "Warning BackendUnavailable: calls to the cloud fail; the controller keeps retrying"
	quotaEvent       = "Warning QuotaExceeded: no more networks"
)

func TestCreatesTheNetwork(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.create("front")
		advance(time.Second)
		n, ready := w.current("front")
		require.Equal(t, []string{crd.Finalizer}, n.Finalizers)
		require.Equal(t, metav1.ConditionTrue, ready.Status)
		require.Equal(t, samplecrdv1.ReasonReady, ready.Reason)
		require.EqualValues(t, 1, ready.ObservedGeneration)
		require.EqualValues(t, 1, n.Status.ObservedGeneration)
		require.Equal(t, "n-front", n.Status.NetworkID)
		require.Equal(t, "s-front", n.Status.SubnetID)
		require.Equal(t, map[types.UID]string{"front": "10.0.0.1"}, w.gateways())
		require.Equal(t, map[string]int{"patch ": 1, "patch status": 1}, w.takeWrites())
		require.Equal(t, []string{"front " + readyEvent}, w.events())
	})
}

func TestRechecksWithoutWriting(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.create("front")
		advance(time.Second)
		w.takeCalls()
		w.takeWrites()
		eventsBefore := w.events()
		advance(time.Hour)
		calls := w.takeCalls()
		require.GreaterOrEqual(t, len(calls), 5)
		require.LessOrEqual(t, len(calls), 6)
		for _, pause := range intervals(calls) {
			require.GreaterOrEqual(t, pause, 10*time.Minute)
			require.LessOrEqual(t, pause, 12*time.Minute)
		}
		require.Greater(t, len(slices.Compact(intervals(calls))), 1, "the interval must be jittered")

		w.loseAll() // there is no watch that would report this
		advance(12 * time.Minute)
		require.Equal(t, map[types.UID]string{"front": "10.0.0.1"}, w.gateways())
		require.Empty(t, w.takeWrites())
		require.Equal(t, eventsBefore, w.events())
	})
}

func TestCreatesNothingBeforeTheFinalizer(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.fail("patch", "", 5, false, apierrors.NewForbidden(resource.GroupResource(), "front", errors.New("no role yet")))
		w.create("front")
		advance(time.Second)
		require.Empty(t, w.takeCalls())
		require.Equal(t, map[string]int{"patch ": 4, "get ": 3}, w.takeWrites(), "it must retry")
		advance(time.Minute)
		require.Equal(t, map[string]int{"patch ": 2, "get ": 2, "patch status": 1}, w.takeWrites())
		require.NotEmpty(t, w.gateways())
	})
}

// Whoever used the network or the subnet that is gone has to know.
func TestReportsWhatWasReplaced(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.create("front")
		advance(time.Minute)
		w.takeWrites()
		want := []string{"front " + readyEvent}
		for _, change := range [][2]string{{"", "x"}, {"x", "y"}} {
			w.replaceAll(change[1])
			advance(w.options.Recheck * 2)
			n, _ := w.current("front")
			require.Equal(t, "n-front"+change[1], n.Status.NetworkID)
			require.Equal(t, map[string]int{"patch status": 1}, w.takeWrites())
			want = append(want, fmt.Sprintf("front Warning Replaced: gone from the cloud, and replaced: network n-front%[1]s by n-front%[2]s, subnet s-front%[1]s by s-front%[2]s", change[0], change[1]))
			require.Equal(t, want, w.events())
			advance(time.Hour)
			require.Len(t, w.events(), len(want))
		}
	})
}

func TestTheGatewayChanges(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.create("front")
		advance(time.Minute)
		_, before := w.current("front")
		w.takeWrites()
		w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = "10.0.0.254" })
		advance(time.Second)
		n, ready := w.current("front")
		require.Equal(t, map[types.UID]string{"front": "10.0.0.254"}, w.gateways())
		require.EqualValues(t, 2, n.Status.ObservedGeneration)
		require.EqualValues(t, 2, ready.ObservedGeneration)
		require.Equal(t, before.LastTransitionTime, ready.LastTransitionTime)
		require.Equal(t, map[string]int{"patch status": 1}, w.takeWrites())
		require.Len(t, w.events(), 1, "the condition was already True")
	})
}

func TestTheCloudIsDown(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		var attempts atomic.Int64
		w.intercept(func(context.Context) error {
			return fmt.Errorf("%w: attempt %d", errNoCloud, attempts.Add(1))
		})
		w.create("front")
		advance(time.Second)
		n, ready := w.current("front")
		require.Equal(t, metav1.ConditionFalse, ready.Status)
		require.Equal(t, samplecrdv1.ReasonUnavailable, ready.Reason)
		require.NotContains(t, ready.Message, "4711")
		require.NotContains(t, ready.Message, "attempt ")
		require.Empty(t, n.Status.NetworkID)
		require.Equal(t, map[string]int{"patch ": 1, "patch status": 1}, w.takeWrites())
		w.takeCalls()

		advance(time.Hour)
		require.Empty(t, w.takeWrites(), "it is eventsBefore once")
		require.Equal(t, []string{"front " + unavailableEvent}, w.events())
		calls := w.takeCalls()
		require.Greater(t, len(calls), 60)
		pauses := intervals(calls)
		for i := 1; i < len(pauses); i++ {
			require.Equal(t, min(2*pauses[i-1], time.Minute), pauses[i])
		}
		require.Equal(t, time.Minute, pauses[len(pauses)-1])

		w.failAll(nil)
		advance(time.Minute)
		n, ready = w.current("front")
		require.Equal(t, metav1.ConditionTrue, ready.Status)
		require.Equal(t, "n-front", n.Status.NetworkID)
		require.WithinDuration(t, time.Now(), ready.LastTransitionTime.Time, time.Minute)
		require.Equal(t, map[string]int{"patch status": 1}, w.takeWrites())

		w.takeCalls()
		advance(time.Hour)
		require.GreaterOrEqual(t, len(w.takeCalls()), 5, "it is checked for drift again")
		// The success has reset the backoff.
		w.failAll(errNoCloud)
		w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = "10.0.0.254" })
		advance(time.Second)
		require.GreaterOrEqual(t, len(w.takeCalls()), 4)
	})
}

func TestLogsHowOftenInARowANetworkHasFailed(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		failures := func() []any { return w.logged("Reconcile failed, will retry", "failures") }
		w.failAll(errNoCloud)
		w.create("front", crd.Finalizer)
		advance(time.Second)
		require.Equal(t, []any{1, 2, 3, 4}, failures())
		w.failAll(nil)
		advance(time.Minute)
		w.failAll(errNoCloud)
		w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = "10.0.0.254" })
		advance(time.Second / 2)
		require.Equal(t, []any{1, 2, 3, 4, 1, 2, 3}, failures())
	})
}

func TestAFailingNetworkDoesNotDelayOthers(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.failAll(errNoCloud)
		w.create("front")
		advance(10 * time.Minute)
		w.failAll(nil)
		w.create("back")
		advance(time.Second / 2)
		_, ready := w.current("back")
		require.Equal(t, metav1.ConditionTrue, ready.Status)
	})
}

func TestRefused(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.failAll(fmt.Errorf("create the network: %w", errQuota))
		w.create("front")
		advance(time.Second)
		_, ready := w.current("front")
		require.Equal(t, metav1.ConditionFalse, ready.Status)
		require.Equal(t, samplecrdv1.ReasonQuotaExceeded, ready.Reason)
		require.Equal(t, "no more networks", ready.Message)
		since := ready.LastTransitionTime

		w.failAll(crd.InUse([]string{"web-1", "web-2"}, nil))
		advance(5 * time.Minute)
		_, ready = w.current("front")
		require.Equal(t, samplecrdv1.ReasonInUse, ready.Reason)
		require.Contains(t, ready.Message, "web-1, web-2")
		require.Equal(t, since, ready.LastTransitionTime, "the condition's status has not changed")
		require.Equal(t, map[string]int{"patch ": 1, "patch status": 2}, w.takeWrites())

		w.failAll(nil) // as if the quota had been raised
		advance(time.Minute)
		_, ready = w.current("front")
		require.Equal(t, metav1.ConditionTrue, ready.Status)
		require.True(t, since.Before(&ready.LastTransitionTime))
	})
}

// The API server refuses an Event of more than 1,024 bytes, and the definition a message of more than 32,768 characters.
func TestLongRefusals(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.failAll(&crd.RefusedError{Reason: samplecrdv1.ReasonRefused, Message: strings.Repeat("é", 20_000)})
		w.create("front")
		advance(time.Second)
		_, ready := w.current("front")
		require.Greater(t, len(ready.Message), 4000)
		require.LessOrEqual(t, len(ready.Message), 4096)
		require.True(t, utf8.ValidString(ready.Message))
		require.Len(t, w.events(), 1)
		require.Less(t, len(w.events()[0]), 1100, "with its type and reason")
	})
	withController(t, func(t *testing.T, w *world) {
		longest := strings.Repeat("e", 4096)
		w.failAll(&crd.RefusedError{Reason: samplecrdv1.ReasonRefused, Message: longest})
		w.create("front")
		advance(time.Second)
		_, ready := w.current("front")
		require.Equal(t, longest, ready.Message)
	})
	ports := slices.Repeat([]string{"web"}, 1000)
	require.Equal(t, "ports still use the network; delete them first: "+strings.Repeat("web, ", 9)+"web, and 990 more", crd.InUse(ports, nil).Error())
	require.Equal(t, "ports still use the network; delete them first: "+strings.Repeat("web, ", 9)+"web", crd.InUse(ports[:10], nil).Error())
}

// Many a cloud puts a request ID into its errors, so the status changes at each attempt.
func TestARefusalWithARequestIDIsRetriedWithBackoff(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.refuseWithRequestIDs()
		w.create("front")
		advance(time.Hour)
		_, ready := w.current("front")
		require.Equal(t, samplecrdv1.ReasonQuotaExceeded, ready.Reason)
		require.NotContains(t, ready.Message, "(req-1)", "the status must have the latest message")
		pauses := intervals(w.takeCalls())
		require.Greater(t, len(pauses), 60)
		require.Equal(t, 100*time.Millisecond, pauses[0])
		for i := 1; i < len(pauses); i++ {
			require.Equal(t, min(2*pauses[i-1], time.Minute), pauses[i])
		}
		require.Equal(t, []string{"front Warning QuotaExceeded: no more networks (req-1)"}, w.events())
	})
}

// Waiting for a stale cache is neither a failure nor a success, so the backoff keeps growing.
func TestAStaleCacheDoesNotResetTheBackoff(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.refuseWithRequestIDs()
		w.create("front")
		for range 300 { // each event of the watch is up to 2s late
			resume := w.delayWatch()
			advance(2 * time.Second)
			resume()
			synctest.Wait()
		}
		calls := len(w.takeCalls())
		require.Greater(t, calls, 10)
		require.Less(t, calls, 25, "in ten minutes")
	})
}

func TestAFailureKeepsTheIDsInTheStatus(t *testing.T) {
	for name, problem := range map[string]error{"down": errNoCloud, "refused": errQuota} {
		t.Run(name, func(t *testing.T) {
			withController(t, func(t *testing.T, w *world) {
				w.create("front")
				advance(time.Second)
				w.failAll(problem)
				w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = "10.0.0.254" })
				advance(time.Second)
				n, ready := w.current("front")
				require.Equal(t, metav1.ConditionFalse, ready.Status)
				require.EqualValues(t, 2, n.Status.ObservedGeneration)
				require.Equal(t, "n-front", n.Status.NetworkID)
				require.Equal(t, "s-front", n.Status.SubnetID)
			})
		})
	}
}

func TestAnEventForEachTransition(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		want := []string{}
		for _, step := range []struct {
			problem error
			event   string
		}{{nil, readyEvent}, {errNoCloud, unavailableEvent}, {errQuota, quotaEvent}, {nil, readyEvent}, {errQuota, quotaEvent}, {errNoCloud, unavailableEvent}, {nil, readyEvent}} {
			w.failAll(step.problem)
			if len(want) == 0 {
				w.create("front")
			}
			advance(time.Hour)
			want = append(want, "front "+step.event)
			require.Equal(t, want, w.events())
		}
	})
}

func TestNoEventForAStatusThatWasNotWritten(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.fail("patch", "status", 5, false, errInternal)
		w.create("front")
		advance(time.Second)
		require.Equal(t, 4, w.takeWrites()["patch status"])
		require.Empty(t, w.events())
		advance(time.Minute)
		require.Equal(t, []string{"front " + readyEvent}, w.events())
	})
}

func TestNoEventForANetworkThatIsGone(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.intercept(takes(5 * time.Second))
		w.create("front", crd.Finalizer)
		advance(time.Second)
		w.change("front", func(n *samplecrdv1.Network) { n.Finalizers = nil })
		w.delete("front")
		advance(time.Minute)
		require.Empty(t, w.events())
		require.Empty(t, w.loggedErrors())
	})
}

// Conditions of other types are other managers'.
func TestKeepsTheConditionsOfOtherManagers(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.create("front")
		advance(time.Second)
		other := metav1.Condition{Type: "Billed", Status: metav1.ConditionTrue, Reason: "Paid", LastTransitionTime: metav1.Now()}
		w.change("front", func(n *samplecrdv1.Network) { n.Status.Conditions = slices.Insert(n.Status.Conditions, 0, other) })
		w.takeWrites()
		advance(time.Hour)
		require.Empty(t, w.takeWrites())

		w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = "10.0.0.2" })
		advance(time.Second)
		for _, action := range w.Actions() {
			if patch, ok := action.(clienttesting.PatchAction); ok {
				require.NotContains(t, string(patch.GetPatch()), "Billed", "it must not take over the condition")
			}
		}
		require.Equal(t, map[string]int{"patch status": 1}, w.takeWrites())
		require.Equal(t, []string{"front " + readyEvent}, w.events())

		w.failAll(errNoCloud)
		w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = "10.0.0.254" })
		advance(time.Hour)
		require.Equal(t, map[string]int{"patch status": 1}, w.takeWrites())
		require.Equal(t, []string{"front " + readyEvent, "front " + unavailableEvent}, w.events())
		n, err := w.get("front")
		require.NoError(t, err)
		require.Len(t, n.Status.Conditions, 2)
		require.Equal(t, "Paid", meta.FindStatusCondition(n.Status.Conditions, "Billed").Reason)
		require.Equal(t, samplecrdv1.ReasonUnavailable, meta.FindStatusCondition(n.Status.Conditions, samplecrdv1.ConditionReady).Reason)
	})
}

func TestTakesOverAConditionThatAnotherManagerWrote(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.create("front")
		advance(time.Second)
		_, err := w.SamplecrdV1().Networks(namespace).ApplyStatus(t.Context(), samplecrdv1ac.Network("front", namespace).WithStatus(
			samplecrdv1ac.NetworkStatus().WithNetworkID("mine").WithConditions(metav1ac.Condition().WithType(samplecrdv1.ConditionReady).
				WithStatus(metav1.ConditionFalse).WithReason("Mine").WithMessage("mine").WithLastTransitionTime(metav1.Now()))),
			metav1.ApplyOptions{FieldManager: "another", Force: true})
		require.NoError(t, err)
		advance(time.Hour)
		n, ready := w.current("front")
		require.Equal(t, samplecrdv1.ReasonReady, ready.Reason)
		require.Equal(t, metav1.ConditionTrue, ready.Status)
		require.Equal(t, "n-front", n.Status.NetworkID)
		require.Empty(t, w.loggedErrors())
	})
}

func TestDeletion(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.create("front")
		advance(time.Minute)
		w.failAll(crd.InUse([]string{"web-1"}, nil))
		w.takeCalls()
		w.takeWrites()
		w.delete("front")
		advance(time.Minute)
		n, ready := w.current("front")
		require.Equal(t, []string{crd.Finalizer}, n.Finalizers)
		require.Equal(t, metav1.ConditionFalse, ready.Status)
		require.Equal(t, samplecrdv1.ReasonInUse, ready.Reason)
		require.Contains(t, ready.Message, "web-1")
		require.EqualValues(t, 2, n.Status.ObservedGeneration)
		require.Equal(t, "n-front", n.Status.NetworkID, "the IDs must stay in the status")
		require.Equal(t, "s-front", n.Status.SubnetID)
		require.Equal(t, map[string]int{"patch status": 1}, w.takeWrites())

		w.failAll(errNoCloud)
		advance(10 * time.Minute)
		n, ready = w.current("front")
		require.Equal(t, []string{crd.Finalizer}, n.Finalizers)
		require.Equal(t, samplecrdv1.ReasonUnavailable, ready.Reason)
		require.Equal(t, "n-front", n.Status.NetworkID)
		require.Equal(t, map[string]int{"patch status": 1}, w.takeWrites())

		w.failAll(nil)
		advance(time.Minute)
		_, err := w.get("front")
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		require.Empty(t, w.gateways())
		require.Equal(t, map[string]int{"patch ": 1}, w.takeWrites())
		require.Equal(t, []string{"delete"}, verbs(w.takeCalls()))

		advance(time.Hour)
		require.Empty(t, w.takeCalls(), "there is nothing left to do")
		require.Empty(t, w.takeWrites())
	})
}

func TestDeletionWhileTheCloudIsDown(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		for range 2 { // two Networks of that name
			w.failAll(errNoCloud)
			w.create("front") // the cloud may or may not have created the network
			advance(time.Minute)
			w.delete("front")
			advance(time.Hour)
			n, _ := w.current("front")
			require.Equal(t, []string{crd.Finalizer}, n.Finalizers)
			w.takeCalls()
			w.failAll(nil)
			advance(time.Minute)
			require.Equal(t, []string{"delete"}, verbs(w.takeCalls()))
			_, err := w.get("front")
			require.True(t, apierrors.IsNotFound(err), "%v", err)
		}
	})
}

const others = "example.com/others"

func TestKeepsOtherFinalizers(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.create("front", others)
		advance(time.Second)
		n, _ := w.current("front")
		require.Equal(t, []string{others, crd.Finalizer}, n.Finalizers)
		w.takeWrites()
		w.delete("front")
		advance(time.Second)
		n, _ = w.current("front")
		require.Equal(t, []string{others}, n.Finalizers)
		require.Empty(t, w.gateways())
		require.Equal(t, map[string]int{"patch ": 1}, w.takeWrites())

		w.takeCalls()
		w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = "10.0.0.254" })
		advance(time.Hour)
		require.Empty(t, w.takeCalls())
		require.Empty(t, w.takeWrites())
	})
}

func TestRemovesOnlyItsOwnFinalizer(t *testing.T) {
	for _, finalizers := range [][]string{{crd.Finalizer, others}, {others, crd.Finalizer}} {
		t.Run(fmt.Sprint(finalizers), func(t *testing.T) {
			withController(t, func(t *testing.T, w *world) {
				w.create("front", finalizers...)
				advance(time.Second)
				w.delete("front")
				advance(time.Second)
				n, err := w.get("front")
				require.NoError(t, err)
				require.Equal(t, []string{others}, n.Finalizers)
			})
		})
	}
}

func TestIgnoresANetworkDeletedBeforeItHadTheFinalizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("front", others)
		w.delete("front")
		stop := w.run()
		defer stop()
		advance(time.Hour)
		require.Empty(t, w.takeCalls())
		require.Empty(t, w.takeWrites())
	})
}

func TestKeepsAFinalizerThatTheCacheDoesNotHaveYet(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		resume := w.delayWatch()
		w.create("front")
		w.change("front", func(n *samplecrdv1.Network) { n.Finalizers = append(n.Finalizers, others) })
		resume = w.deliverOne(resume)
		advance(time.Second)
		require.Equal(t, map[string]int{"patch ": 2, "get ": 1}, w.takeWrites(), "it must retry with what the API server has")
		resume()
		advance(time.Minute)
		n, err := w.get("front")
		require.NoError(t, err)
		require.Equal(t, []string{others, crd.Finalizer}, n.Finalizers)
	})
}

func TestFailedWrites(t *testing.T) {
	for _, write := range []struct {
		name, subresource string
		deletion          bool // the write is part of the deletion
	}{{"add the finalizer", "", false}, {"status", "status", false}, {"remove the finalizer", "", true}} {
		for name, wrong := range map[string]struct {
			done bool
			err  error
		}{
			"internal error":       {false, errInternal},
			"forbidden":            {false, apierrors.NewForbidden(resource.GroupResource(), "front", errors.New("no role yet"))},
			"conflict":             {false, apierrors.NewConflict(resource.GroupResource(), "front", errors.New("changed"))},
			"the response is lost": {true, context.DeadlineExceeded},
		} {
			t.Run(write.name+", "+name, func(t *testing.T) {
				withController(t, func(t *testing.T, w *world) {
					if write.deletion {
						w.create("front")
						advance(time.Second)
					}
					w.fail("patch", write.subresource, 3, wrong.done, wrong.err)
					if write.deletion {
						w.delete("front")
					} else {
						w.create("front")
					}
					advance(time.Minute)
					if write.deletion {
						_, err := w.get("front")
						require.True(t, apierrors.IsNotFound(err), "%v", err)
						require.Empty(t, w.gateways())
						return
					}
					n, ready := w.current("front")
					require.Equal(t, metav1.ConditionTrue, ready.Status)
					require.Equal(t, []string{crd.Finalizer}, n.Finalizers)
					require.NotEmpty(t, w.gateways())
				})
			})
		}
	}
}

// world checks that the controller never acts on an object older than its own last write.
func TestWritesOnceWhenTheWatchIsLate(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.create("front")
		advance(time.Minute)
		w.takeWrites()
		w.takeCalls()
		want := []string{"front " + readyEvent}
		for range 2 {
			resume := w.delayWatch()
			w.failAll(errQuota)
			advance(time.Hour) // the watch does not deliver the controller's own write
			require.Equal(t, map[string]int{"patch status": 1}, w.takeWrites())
			require.Len(t, w.takeCalls(), 1)
			want = append(want, "front "+quotaEvent)
			require.Equal(t, want, w.events())

			w.failAll(nil)
			resume()
			advance(time.Second)
			_, ready := w.current("front")
			require.Equal(t, metav1.ConditionTrue, ready.Status, "it must continue once the watch delivers the write")
			want = append(want, "front "+readyEvent)
			w.takeWrites()
			w.takeCalls()
		}
	})
}

// Whether a failed write has been stored is not in the cache while the watch is late.
func TestAsksTheAPIServerAfterAFailedWrite(t *testing.T) {
	for name, answers := range map[string]func(w *world){
		"at once":                nil,
		"once it is there again": func(w *world) { w.fail("get", "", 2, false, errInternal) },
	} {
		t.Run(name, func(t *testing.T) {
			withController(t, func(t *testing.T, w *world) {
				w.create("front")
				for range 2 {
					w.failAll(nil)
					advance(time.Minute)
					w.takeWrites()
					resume := w.delayWatch()
					if answers != nil {
						answers(w)
					}
					w.fail("patch", "status", 1, true, context.DeadlineExceeded)
					w.failAll(errQuota)
					advance(time.Hour)
					sent := w.takeWrites()
					require.Equal(t, 1, sent["patch status"])
					want := 1 // after that, it waits for the watch
					if answers != nil {
						want = 3
					}
					require.Equal(t, want, sent["get "])
					resume()
				}
			})
		})
	}
}

func TestDoesNotRecreateWhenTheWatchIsLate(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.create("front")
		w.create("back")
		advance(time.Minute)
		resume := w.delayWatch()
		w.delete("front")
		resume = w.deliverOne(resume)
		w.takeCalls()
		w.takeWrites()
		advance(time.Hour) // a recheck is due while the cache still has the Network
		require.Equal(t, map[types.UID]string{"back": "10.0.0.1"}, w.gateways())
		require.Equal(t, []string{"ensure"}, verbs(w.takeCalls()), "back")
		require.Empty(t, w.takeWrites())
		resume()
		advance(time.Hour)
		require.Equal(t, []string{"ensure"}, verbs(w.takeCalls()), "back")
	})
}

// The API server has a new Network of that name before the watch delivers it.
func TestDoesNotWriteTheStatusOfANewNetworkWithTheSameName(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.create("front")
		advance(time.Minute)
		w.intercept(takes(5 * time.Second))
		w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = "10.0.0.254" })
		advance(time.Second)
		w.delayWatch()
		w.change("front", func(n *samplecrdv1.Network) { n.Finalizers = nil })
		w.delete("front")
		w.create("front")
		w.change("front", func(n *samplecrdv1.Network) { n.UID = "another" })
		advance(10 * time.Second)
		n, err := w.get("front")
		require.NoError(t, err)
		require.Empty(t, n.Status)
	})
}

func TestADeletedNetworkIsNoFailure(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.create("front")
		advance(time.Minute)
		w.intercept(takes(5 * time.Second))
		w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = "10.0.0.254" })
		advance(time.Second)
		w.change("front", func(n *samplecrdv1.Network) { n.Finalizers = nil }) // as with kubectl patch
		w.delete("front")
		w.takeCalls()
		advance(time.Hour)
		require.Equal(t, []string{"delete"}, verbs(w.takeCalls()), "only the sweep may make calls")
		require.Empty(t, w.gateways())
		require.Empty(t, w.loggedErrors())
		_, err := w.get("front")
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
}

func TestFinishesInFlightWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("front", crd.Finalizer)
		w.intercept(takes(3 * time.Second))
		stop := w.run()
		advance(time.Second)
		begin := time.Now()
		stop()
		require.Equal(t, 2*time.Second, time.Since(begin))
		_, ready := w.current("front")
		require.Equal(t, metav1.ConditionTrue, ready.Status)
		require.NotEmpty(t, w.gateways())
		require.Len(t, w.takeCalls(), 1)
	})
}

func TestCancelsInFlightWorkAfterGrace(t *testing.T) {
	for _, grace := range []time.Duration{0, 10 * time.Second} {
		t.Run(grace.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.options.Grace = grace
				w.intercept(takes(time.Hour))
				stop := w.run()
				w.create("front")
				w.create("back")
				w.create("middle")
				advance(time.Second)
				begin := time.Now()
				stop()
				require.Equal(t, grace, time.Since(begin))
			})
		})
	}
}

func TestDoesNothingIfItIsStoppedBeforeItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("front")
		w.addOrphan("back", "late")
		ctx, cancel := context.WithCancel(t.Context())
		controller, err := crd.New(ctx, w.kube, w, w.cloud, w.options)
		require.NoError(t, err)
		cancel()
		begin := time.Now()
		require.NoError(t, controller.Run(ctx))
		require.Zero(t, time.Since(begin))
		require.Empty(t, w.takeCalls())
		require.Empty(t, w.takeWrites())
		require.Equal(t, http.StatusServiceUnavailable, w.probe(controller.Readyz))
	})
}

func TestReportsAFailureWhileItDrainsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var calls atomic.Int64
		stop := w.run()
		w.intercept(func(context.Context) error {
			if calls.Add(1) == 1 {
				time.Sleep(2 * time.Second)
				return errQuota
			}
			time.Sleep(5 * time.Second)
			return nil
		})
		w.create("front", crd.Finalizer)
		w.create("back", crd.Finalizer)
		advance(time.Second)
		stop()
		reasons := []string{}
		for _, name := range []string{"front", "back"} {
			_, ready := w.current(name)
			reasons = append(reasons, ready.Reason)
		}
		require.ElementsMatch(t, []string{samplecrdv1.ReasonQuotaExceeded, samplecrdv1.ReasonReady}, reasons)
		// The Event of the last reconcile may be lost: client-go does not wait for Events when it stops.
		require.True(t, slices.ContainsFunc(w.events(), func(event string) bool { return strings.HasSuffix(event, quotaEvent) }), "%s", w.events())
	})
}

func TestStopsAtAnyTime(t *testing.T) {
	tests := map[string]func(w *world){
		"at rest":                  func(*world) {},
		"the cloud is down":        func(w *world) { w.failAll(errNoCloud) },
		"the watch is late":        func(w *world) { w.delayWatch() },
		"a list fails":             func(w *world) { w.refuse("list", errInternal) },
		"no status can be written": func(w *world) { w.refuse("patch", errInternal) },
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
					advance(after)
					begin := time.Now()
					stop()
					require.Zero(t, time.Since(begin), "it must stop without waiting for anything")
					w.takeCalls()
					w.takeWrites()
					advance(time.Hour)
					require.Empty(t, w.takeCalls())
					require.Empty(t, w.takeWrites())
					// synctest.Test fails if goroutines are still blocked at the end.
				})
			})
		}
	}
}

func TestWaitsForItsInformerToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.slowToStop(6 * time.Second)
		stop := w.run()
		begin := time.Now()
		stop()
		require.Equal(t, 6*time.Second, time.Since(begin))
	})
}

// probe returns the status code of a handler's response.
func (w *world) probe(handler http.HandlerFunc) int {
	recorder := httptest.NewRecorder()
	handler(recorder, httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, "/", nil))
	return recorder.Code
}

func TestHealthAndReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("front")
		w.delay("list", 10*time.Second)
		w.intercept(takes(5 * time.Second))
		stop := w.run()
		probe := func(ready int, when string) {
			t.Helper()
			require.Equal(t, ready, w.probe(w.controller.Readyz), when)
			require.Equal(t, http.StatusOK, w.probe(w.controller.Healthz), when)
		}
		probe(http.StatusServiceUnavailable, "before the cache has synced")
		require.Empty(t, w.takeCalls())
		advance(11 * time.Second)
		probe(http.StatusOK, "synced")

		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			stop()
		}()
		advance(time.Second)
		probe(http.StatusServiceUnavailable, "during shutdown")
		<-stopped
		probe(http.StatusServiceUnavailable, "stopped")
	})
}

func TestContinuesAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		w.create("front")
		w.create("back")
		advance(time.Minute)
		stop()
		w.delete("front")
		w.takeWrites()
		eventsBefore := w.events()
		stop = w.run()
		defer stop()
		advance(time.Second)
		require.Equal(t, map[types.UID]string{"back": "10.0.0.1"}, w.gateways())
		require.Equal(t, map[string]int{"patch ": 1}, w.takeWrites())
		require.Equal(t, eventsBefore, w.events())
	})
}

// client-go's mutation detector compares the cached objects with copies, once a second, and panics if one has changed.
func TestDoesNotModifyItsCache(t *testing.T) {
	if on, _ := strconv.ParseBool(os.Getenv("KUBE_CACHE_MUTATION_DETECTOR")); !on {
		t.Fatal("set KUBE_CACHE_MUTATION_DETECTOR=true to run this test, as make test does: client-go reads it when the process starts")
	}
	withController(t, func(t *testing.T, w *world) {
		w.create("front", others)
		advance(time.Minute)
		w.failAll(errNoCloud)
		advance(time.Hour)
		w.delete("front")
		advance(time.Minute)
		w.failAll(nil)
		advance(time.Hour)
	})
}

func TestWorkersNeverShareANetwork(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		running, maxRunning := 0, 0
		w.intercept(func(context.Context) error {
			mu.Lock()
			running++
			maxRunning = max(maxRunning, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return errNoCloud
		})
		w.create("front")
		for i := range 20 {
			advance(300 * time.Millisecond)
			w.change("front", func(n *samplecrdv1.Network) { n.Spec.Gateway = fmt.Sprintf("10.0.0.%d", 2+i) })
		}
		require.Equal(t, 1, maxRunning)
		w.create("back")
		w.create("middle")
		advance(10 * time.Second)
		require.Equal(t, 2, maxRunning)
	})
}
