package crd_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
)

func TestDeletesWhatIsLeft(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("front")
		w.leave("back", "late")
		w.leave("front", "one before") // of the same name
		later(w.options.Recheck * 2)
		require.Equal(t, map[types.UID]string{"front": "10.0.0.1"}, w.gateways())
		w.writes()

		// At rest, the cloud is asked, and not the API server.
		later(time.Hour)
		require.Empty(t, w.writes())
		require.Empty(t, w.complaints())
	})
}

// Somebody who took the finalizer off has not taken away what it was there for.
func TestDeletesWhatIsLeftWhenSomebodyTookTheFinalizerOff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create("front")
		later(time.Minute)
		w.fails(crd.InUse([]string{"web-1"}, nil))
		w.delete("front")
		later(time.Minute)
		w.change("front", func(n *samplecrdv1.Network) { n.Finalizers = nil })
		later(time.Hour)
		require.Contains(t, w.gateways(), types.UID("front"), "there is still the port")
		require.Contains(t, w.complaints()[len(w.complaints())-1], "web-1")
		w.fails(nil)
		later(w.options.Recheck * 2)
		require.Empty(t, w.gateways())
	})
}

// A Network that the cache has not seen yet may have been made by another controller's hand.
func TestAsksTheAPIServerBeforeItDeletesWhatIsLeft(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		goOn := w.delayWatch()
		w.create("front")
		w.leave("front", "front")
		later(w.options.Recheck * 2)
		require.Contains(t, w.gateways(), types.UID("front"))
		require.Greater(t, w.writes()["get "], 0)
		goOn()
	})
}

// What the API server does not say, nobody may guess.
func TestDeletesNothingThatItDoesNotKnow(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.refuse("get", apierrors.NewInternalError(errors.New("a bad day")))
		w.leave("back", "late")
		later(time.Hour)
		require.Contains(t, w.gateways(), types.UID("late"))
		require.Contains(t, w.complaints()[0], "a bad day")
	})
}

func TestLooksForWhatIsLeftAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.fails(errNoCloud)
		w.leave("back", "late")
		later(time.Hour)
		require.Contains(t, w.complaints()[0], errNoCloud.Error())
		w.fails(nil)
		later(w.options.Recheck * 2)
		require.Empty(t, w.gateways())
	})
}

func TestStopsInTheMiddleOfWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.leave("a", "1")
		w.leave("b", "2")
		w.meets(taking(2 * time.Second))
		stop := w.run()
		later(3 * time.Second) // two to ask, and it is at the first
		begin := time.Now()
		stop()
		require.Equal(t, time.Second, time.Since(begin), "it finishes what it is at, and no more")
		require.Equal(t, map[types.UID]string{"2": "10.0.0.1"}, w.gateways())
	})
}
