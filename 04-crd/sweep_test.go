package crd_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
)

func TestDeletesOrphans(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.create("front")
		deleted := []any{}
		for range 2 { // the cloud may complete two creations late for the same owner
			w.addOrphan("back", "late")
			w.addOrphan("front", "earlier") // an earlier Network with the same name
			advance(w.options.Recheck * 2)
			require.Equal(t, map[types.UID]string{"front": "10.0.0.1"}, w.gateways())
			deleted = append(deleted, "shop/back", "shop/front")
			require.ElementsMatch(t, deleted, w.logged("Deleted an orphaned network in the cloud", "network"))
		}
		w.takeWrites()

		// Without orphans, a sweep makes no requests to the API server.
		advance(time.Hour)
		require.Empty(t, w.takeWrites())
		require.Empty(t, w.loggedErrors())
	})
}

// The name of an owner is from a description that anybody may edit. What is in the cloud for a Network that exists stays, by
// whatever name.
func TestAnEditedNameIsNoOrphan(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.create("front")
		w.addOrphan("front - prod", "front")
		advance(w.options.Recheck * 2)
		require.Empty(t, w.logged("Deleted an orphaned network in the cloud", "network"))
		require.Contains(t, w.gateways(), types.UID("front"))
	})
}

// If the cloud does not know the name of the owner, because somebody has edited it, a list tells whether the owner exists.
func TestOrphansWithoutAName(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		resume := w.delayWatch()
		w.create("front")
		w.addAnonymous("front")
		w.addAnonymous("late")
		advance(w.options.Recheck * 2)
		require.Contains(t, w.gateways(), types.UID("front"), "it exists, although the cache does not have it yet")
		require.NotContains(t, w.gateways(), types.UID("late"))
		require.Empty(t, w.loggedErrors())
		resume()
		advance(time.Second)

		w.refuse("list", apierrors.NewInternalError(errors.New("internal error")))
		w.addAnonymous("later")
		advance(w.options.Recheck * 2)
		require.Contains(t, w.gateways(), types.UID("later"), "nobody knows")
		require.Contains(t, w.loggedErrors()[0], "internal error")
	})
}

// Removing the finalizer by hand does not delete the network in the cloud.
func TestDeletesOrphansAfterTheFinalizerWasRemovedByHand(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		w.create("front")
		advance(time.Minute)
		w.failAll(crd.InUse([]string{"web-1"}, nil))
		w.delete("front")
		advance(time.Minute)
		w.change("front", func(n *samplecrdv1.Network) { n.Finalizers = nil })
		advance(time.Hour)
		require.Contains(t, w.gateways(), types.UID("front"), "a port still uses it")
		require.Contains(t, w.loggedErrors()[len(w.loggedErrors())-1], "web-1")
		w.failAll(nil)
		advance(w.options.Recheck * 2)
		require.Empty(t, w.gateways())
	})
}

// The cache may not have a Network yet whose network an earlier instance of the controller created.
func TestAsksTheAPIServerBeforeItDeletesAnOrphan(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		resume := w.delayWatch()
		w.create("front")
		w.addOrphan("front", "front")
		advance(w.options.Recheck * 2)
		require.Contains(t, w.gateways(), types.UID("front"))
		require.Greater(t, w.takeWrites()["get "], 0)
		resume()
	})
}

// Only 404 says that a Network does not exist.
func TestDeletesNothingIfItCannotGetTheNetwork(t *testing.T) {
	for name, failure := range map[string]error{
		"internal error": apierrors.NewInternalError(errors.New("internal error")),
		"forbidden":      apierrors.NewForbidden(resource.GroupResource(), "back", errors.New("no role any more")),
		"unauthorized":   apierrors.NewUnauthorized("the token has expired"),
		"gone":           apierrors.NewGenericServerResponse(http.StatusGone, "get", resource.GroupResource(), "back", "", 0, false),
		"no response":    context.DeadlineExceeded,
	} {
		t.Run(name, func(t *testing.T) {
			withController(t, func(t *testing.T, w *world) {
				w.refuse("get", failure)
				w.addOrphan("back", "late")
				advance(time.Hour)
				require.Contains(t, w.gateways(), types.UID("late"))
				require.Contains(t, w.loggedErrors()[0], failure.Error())
			})
		})
	}
}

func TestContinuesTheSweepAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.addOrphan("a", "1")
		w.addOrphan("b", "2")
		w.addOrphan("c", "3")
		calls := 0
		w.intercept(func(context.Context) error {
			if calls++; calls == 3 { // after the list of owners and a deletion
				return errNoCloud
			}
			return nil
		})
		stop := w.run()
		defer stop()
		require.Equal(t, map[types.UID]string{"2": "10.0.0.1"}, w.gateways())
		require.Len(t, w.loggedErrors(), 1)
		require.Equal(t, []any{types.UID("1"), types.UID("3")}, w.logged("Deleted an orphaned network in the cloud", "uid"))
		advance(w.options.Recheck * 2)
		require.Empty(t, w.gateways())
	})
}

func TestRetriesTheSweep(t *testing.T) {
	withController(t, func(t *testing.T, w *world) {
		for range 2 {
			before := len(w.loggedErrors())
			w.failAll(errNoCloud)
			w.addOrphan("back", "late")
			advance(time.Hour)
			failures := w.loggedErrors()[before:]
			require.NotEmpty(t, failures)
			require.Contains(t, failures[0], errNoCloud.Error())
			w.failAll(nil)
			advance(w.options.Recheck * 2)
			require.Empty(t, w.gateways())
		}
	})
}

func TestStopsInTheMiddleOfASweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.addOrphan("a", "1")
		w.addOrphan("b", "2")
		w.intercept(takes(2 * time.Second))
		stop := w.run()
		advance(3 * time.Second) // the list of owners takes two, and the first deletion is in flight
		begin := time.Now()
		stop()
		require.Equal(t, time.Second, time.Since(begin), "it must finish the call in flight and start no other")
		require.Equal(t, map[types.UID]string{"2": "10.0.0.1"}, w.gateways())
	})
}
