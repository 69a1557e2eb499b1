package informer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

var errBadDay = apierrors.NewInternalError(errors.New("the API server has a bad day"))

func TestTellsWhatHappensToPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.startPods("frontend-1")
		w.write(newPod("mall", "elsewhere-1", "frontend"))
		stop := w.run(0)
		defer stop()

		waiting := newPod(namespace, "backend-1", "backend")
		waiting.Spec.NodeName = ""
		w.write(waiting)
		w.write(newPod("mall", "elsewhere-2", "frontend"))
		later(time.Minute)
		waiting.Spec.NodeName = "node-1"
		w.write(waiting)
		later(time.Minute)
		w.remove(waiting)
		later(time.Minute)
		require.Equal(t, []string{
			"onAdd pod=shop/frontend-1 node=node-0",
			"onAdd pod=shop/backend-1 node=",
			"onUpdate pod=shop/backend-1 node=node-1 changed=true",
			"onUpdate pod=shop/backend-1 node=node-1 changed=true",
			"onDelete pod=shop/backend-1 node=node-1",
		}, w.said("on"))
	})
}

func TestSaysThatItMissedADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.startPods("frontend-1", "frontend-2")
		stop := w.run(0)
		defer stop()
		w.breakWatch("pods")
		w.remove(newPod(namespace, "frontend-1", "frontend"))
		later(time.Minute)
		require.Equal(t, []string{"onDelete, missed pod=shop/frontend-1"}, w.said("onDelete"))
	})
}

func TestKnowsTombstonesWithoutAPod(t *testing.T) {
	w := newWorld(t)
	tombstone := cache.DeletedFinalStateUnknown{Key: "shop/frontend-1"}
	onDelete(w.context(), coreinformers.DeletedPod{FinalStateUnknown: &tombstone})
	require.Equal(t, []string{"onDelete, missed pod=shop/frontend-1"}, w.said("on"))
}

func TestAResyncTellsNothingNewAndReplacesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.changeConfig(namespace, ConfigName)
		w.startPods("frontend-1")
		stop := w.run(time.Minute)
		defer stop()
		later(150 * time.Second)
		again := "onUpdate pod=shop/frontend-1 node=node-0 changed=false"
		require.Equal(t, []string{again, again}, w.said("onUpdate"))

		pod := newPod(namespace, "frontend-1", "frontend")
		pod.Status.Phase = corev1.PodRunning
		w.write(pod)
		later(time.Second)
		require.Equal(t, "onUpdate pod=shop/frontend-1 node=node-0 changed=true", w.said("onUpdate")[2])

		later(time.Hour)
		require.Empty(t, w.deleted())
	})
}

func TestReplacesPodsWhenTheConfigChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.changeConfig(namespace, ConfigName)
		w.startPods("frontend-1", "frontend-2", "frontend-3")
		w.write(newPod(namespace, "backend-1", "backend"))
		w.write(newPod("mall", "elsewhere", "frontend"))
		stop := w.run(0)
		defer stop()

		later(time.Hour)
		require.Empty(t, w.deleted(), "before any change")

		w.changeConfig(namespace, ConfigName)
		later(time.Second)
		require.ElementsMatch(t, []string{"frontend-1", "frontend-2", "frontend-3"}, w.deleted(), "after the change")

		w.startPods("frontend-4")
		later(time.Second)
		w.changeConfig(namespace, ConfigName)
		later(time.Second)
		require.Equal(t, []string{"frontend-4"}, w.deleted()[3:], "the others are ending already")

		w.startPods("frontend-5")
		later(time.Hour)
		require.Len(t, w.deleted(), 4, "no change, nothing to do")
		require.Empty(t, w.complaints())
	})
}

func TestReplacesNothingWhenThePodsReadNothingNew(t *testing.T) {
	tests := map[string]func(w *world){
		"nothing happens": func(*world) {},
		"the config gets a label": func(w *world) {
			config, err := w.objects.Get(corev1.SchemeGroupVersion.WithResource("configmaps"), namespace, ConfigName)
			require.NoError(w.t, err)
			labelled := config.(*corev1.ConfigMap)
			labelled.Labels = map[string]string{"owner": "me"}
			w.write(labelled)
		},
		"another config changes":                        func(w *world) { w.changeConfig(namespace, "backend-config") },
		"a config of another namespace is changed":      func(w *world) { w.changeConfig("mall", ConfigName) },
		"the watch breaks, and the config is as it was": func(w *world) { w.breakWatch("configmaps") },
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.changeConfig(namespace, ConfigName)
				w.changeConfig(namespace, "backend-config")
				w.changeConfig("mall", ConfigName)
				w.startPods("frontend-1")
				stop := w.run(0)
				defer stop()
				later(time.Minute)
				happens(w)
				later(time.Hour)
				require.Empty(t, w.deleted())
				require.Empty(t, w.said("The config has changed"))
			})
		})
	}
}

func TestSeesAChangeThatTheWatchMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.changeConfig(namespace, ConfigName)
		w.startPods("frontend-1")
		stop := w.run(0)
		defer stop()
		later(time.Minute)
		w.breakWatch("configmaps")
		w.changeConfig(namespace, ConfigName)
		later(time.Minute)
		require.Equal(t, []string{"frontend-1"}, w.deleted())
	})
}

func TestDeletesThePodItSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.changeConfig(namespace, ConfigName)
		w.startPods("frontend-0")
		// Somebody else replaces the Pod while our delete is on its way.
		w.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			pod := newPod(namespace, "frontend-0", "frontend")
			pod.UID = "uid of another"
			w.write(pod)
			return false, nil, nil
		})
		stop := w.run(0)
		defer stop()
		later(time.Minute)
		w.changeConfig(namespace, ConfigName)
		later(time.Hour)
		require.Equal(t, []string{"frontend-0"}, w.deleted(), "what it asked for")
		_, err := w.pod(namespace, "frontend-0")
		require.NoError(t, err, "the new Pod")
	})
}

func TestAPodThatIsGoneIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.changeConfig(namespace, ConfigName)
		w.startPods("frontend-1")
		w.fail("delete", "pods", apierrors.NewNotFound(corev1.Resource("pods"), "frontend-1"))
		stop := w.run(0)
		defer stop()
		later(time.Minute)
		w.changeConfig(namespace, ConfigName)
		later(time.Hour)
		require.Len(t, w.said("Pod is older than its config"), 1)
		require.Empty(t, w.complaints())
	})
}

// The weaknesses, which lesson 3 mends.

func TestWhatFailsIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.changeConfig(namespace, ConfigName)
		w.startPods("frontend-1", "frontend-2", "frontend-3")
		failures := 0
		w.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.(clienttesting.DeleteAction).GetName() != "frontend-2" {
				return false, nil, nil
			}
			failures++
			return true, nil, errBadDay
		})
		stop := w.run(10 * time.Minute)
		defer stop()
		later(time.Minute)
		w.changeConfig(namespace, ConfigName)
		later(time.Second)
		require.ElementsMatch(t, []string{"frontend-1", "frontend-3"}, w.deleted(), "the others are replaced")
		require.Equal(t, []string{fmt.Sprint("Pod is not replaced, and nobody will try again pod=shop/frontend-2: ", errBadDay)},
			w.said("Pod is not replaced"), "the error names the Pod")

		later(time.Hour)
		require.Equal(t, 1, failures, "how often it tried")
	})
}

func TestAPodThatItHasNotHeardOfIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.changeConfig(namespace, ConfigName)
		w.lag["pods"] = time.Second
		stop := w.run(10 * time.Minute)
		defer stop()
		w.startPods("frontend-1") // It reads the config,
		later(time.Second / 2)
		w.changeConfig(namespace, ConfigName) // which changes before the other watch has told of the Pod.
		later(time.Hour)
		require.Equal(t, []string{"onAdd pod=shop/frontend-1 node=node-0"}, w.said("onAdd"))
		require.Empty(t, w.deleted())
	})
}

func TestAChangeMadeWhileItWasDownIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.changeConfig(namespace, ConfigName)
		w.startPods("frontend-1")
		stop := w.run(0)
		later(time.Minute)
		stop()

		w.changeConfig(namespace, ConfigName)
		stop = w.run(10 * time.Minute)
		defer stop()
		later(time.Hour)
		require.Empty(t, w.deleted())
	})
}

func TestDoesNotActBeforeItKnowsThePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.changeConfig(namespace, ConfigName)
		w.startPods("frontend-1", "frontend-2")
		w.delay("list", "pods", 10*time.Second)
		w.delay("list", "configmaps", 10*time.Second)
		stop := w.run(0)
		defer stop()

		later(5 * time.Second)
		w.changeConfig(namespace, ConfigName)
		later(14 * time.Second)
		require.Empty(t, w.said("The config has changed"), "with an empty lister, that would do nothing")
		require.Empty(t, w.said("In step"))

		later(2 * time.Second)
		require.Len(t, w.said("In step"), 1)
		w.changeConfig(namespace, ConfigName)
		later(time.Second)
		require.ElementsMatch(t, []string{"frontend-1", "frontend-2"}, w.deleted())
	})
}

func TestStopsAtAnyTime(t *testing.T) {
	tests := map[string]func(w *world){
		"it is in step":                  func(*world) {},
		"the list of Pods fails":         func(w *world) { w.fail("list", "pods", errBadDay) },
		"the list of configs fails":      func(w *world) { w.fail("list", "configmaps", errBadDay) },
		"the list of Pods takes long":    func(w *world) { w.delay("list", "pods", time.Hour) },
		"the list of configs takes long": func(w *world) { w.delay("list", "configmaps", time.Hour) },
	}
	for name, trouble := range tests {
		for _, after := range []time.Duration{0, 90*time.Second + time.Millisecond} {
			t.Run(fmt.Sprintf("%s, after %s", name, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.changeConfig(namespace, ConfigName)
					w.startPods("frontend-1")
					trouble(w)
					stop := w.run(time.Minute)
					later(after)
					begin := time.Now()
					stop()
					require.Zero(t, time.Since(begin), "it waits for nothing when it is asked to stop")
					require.Len(t, w.said("Stopped"), 1)
					later(time.Hour) // until a list that nobody waits for has ended
				})
			})
		}
	}
}

func TestDoesNotBeginWhenItIsToldToStopFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(w.context())
		cancel()
		require.NoError(t, (&Controller{Client: w.Clientset, Namespace: namespace}).Run(ctx))
		require.Empty(t, w.said("In step"))
	})
}

func TestStopsWhenWhatItStartedHasStopped(t *testing.T) {
	for _, resource := range []string{"pods", "configmaps"} {
		t.Run("watch "+resource, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.slowToStop(resource, 6*time.Second)
				stop := w.run(0)
				begin := time.Now()
				stop()
				require.Equal(t, 6*time.Second, time.Since(begin))
			})
		})
	}
	t.Run("delete a Pod", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.changeConfig(namespace, ConfigName)
			w.startPods("frontend-1")
			w.delay("delete", "pods", 10*time.Second)
			stop := w.run(0)
			w.changeConfig(namespace, ConfigName)
			later(4 * time.Second)
			begin := time.Now()
			stop()
			require.Equal(t, 6*time.Second, time.Since(begin))
			require.Equal(t, []string{"frontend-1"}, w.deleted())
		})
	})
}
