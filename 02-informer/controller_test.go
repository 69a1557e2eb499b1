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

var errInjected = apierrors.NewInternalError(errors.New("injected failure"))

func TestLogsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.createPods("frontend-1")
		cluster.write(newPod("mall", "elsewhere-1", "frontend"))
		stop := cluster.start(0)
		defer stop()

		pending := newPod(namespace, "backend-1", "backend")
		pending.Spec.NodeName = ""
		cluster.write(pending)
		cluster.write(newPod("mall", "elsewhere-2", "frontend"))
		advance(time.Minute)
		pending.Spec.NodeName = "node-1"
		cluster.write(pending)
		advance(time.Minute)
		cluster.remove(pending)
		advance(time.Minute)
		require.Equal(t, []string{
			"onAdd pod=shop/frontend-1 node=node-0",
			"onAdd pod=shop/backend-1 node=",
			"onUpdate pod=shop/backend-1 node=node-1 changed=true",
			"onUpdate pod=shop/backend-1 node=node-1 changed=true",
			"onDelete pod=shop/backend-1 node=node-1",
		}, cluster.logged("on"))
	})
}

func TestLogsMissedDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.createPods("frontend-1", "frontend-2")
		stop := cluster.start(0)
		defer stop()
		cluster.breakWatch("pods")
		cluster.remove(newPod(namespace, "frontend-1", "frontend"))
		advance(time.Minute)
		require.Equal(t, []string{"onDelete, final state unknown pod=shop/frontend-1"}, cluster.logged("onDelete"))
	})
}

func TestHandlesTombstoneWithoutPod(t *testing.T) {
	cluster := newFakeCluster(t)
	tombstone := cache.DeletedFinalStateUnknown{Key: "shop/frontend-1"}
	onDelete(cluster.context(), coreinformers.DeletedPod{FinalStateUnknown: &tombstone})
	require.Equal(t, []string{"onDelete, final state unknown pod=shop/frontend-1"}, cluster.logged("on"))
}

func TestResyncReplacesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.changeConfig(namespace, ConfigName)
		cluster.createPods("frontend-1")
		stop := cluster.start(time.Minute)
		defer stop()
		advance(150 * time.Second)
		resynced := "onUpdate pod=shop/frontend-1 node=node-0 changed=false"
		require.Equal(t, []string{resynced, resynced}, cluster.logged("onUpdate"))

		pod := newPod(namespace, "frontend-1", "frontend")
		pod.Status.Phase = corev1.PodRunning
		cluster.write(pod)
		advance(time.Second)
		require.Equal(t, "onUpdate pod=shop/frontend-1 node=node-0 changed=true", cluster.logged("onUpdate")[2])

		advance(time.Hour)
		require.Empty(t, cluster.deleted())
	})
}

func TestReplacesPodsWhenTheConfigChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.changeConfig(namespace, ConfigName)
		cluster.createPods("frontend-1", "frontend-2", "frontend-3")
		cluster.write(newPod(namespace, "backend-1", "backend"))
		cluster.write(newPod("mall", "elsewhere", "frontend"))
		stop := cluster.start(0)
		defer stop()

		advance(time.Hour)
		require.Empty(t, cluster.deleted(), "before the change")

		cluster.changeConfig(namespace, ConfigName)
		advance(time.Second)
		require.ElementsMatch(t, []string{"frontend-1", "frontend-2", "frontend-3"}, cluster.deleted(), "after the change")

		cluster.createPods("frontend-4")
		advance(time.Second)
		cluster.changeConfig(namespace, ConfigName)
		advance(time.Second)
		require.Equal(t, []string{"frontend-4"}, cluster.deleted()[3:], "the other Pods are already being deleted")

		cluster.createPods("frontend-5")
		advance(time.Hour)
		require.Len(t, cluster.deleted(), 4, "deletions at rest")
		require.Empty(t, cluster.loggedErrors())
	})
}

func TestReplacesNothingWhenTheDataIsTheSame(t *testing.T) {
	tests := map[string]func(cluster *fakeCluster){
		"no change": func(*fakeCluster) {},
		"a label is added to the config": func(cluster *fakeCluster) {
			config, err := cluster.objects.Get(corev1.SchemeGroupVersion.WithResource("configmaps"), namespace, ConfigName)
			require.NoError(cluster.t, err)
			labelled := config.(*corev1.ConfigMap)
			labelled.Labels = map[string]string{"owner": "me"}
			cluster.write(labelled)
		},
		"another config changes":                       func(cluster *fakeCluster) { cluster.changeConfig(namespace, "backend-config") },
		"a config in another namespace changes":        func(cluster *fakeCluster) { cluster.changeConfig("mall", ConfigName) },
		"the watch breaks, and the config is the same": func(cluster *fakeCluster) { cluster.breakWatch("configmaps") },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := newFakeCluster(t)
				cluster.changeConfig(namespace, ConfigName)
				cluster.changeConfig(namespace, "backend-config")
				cluster.changeConfig("mall", ConfigName)
				cluster.createPods("frontend-1")
				stop := cluster.start(0)
				defer stop()
				advance(time.Minute)
				change(cluster)
				advance(time.Hour)
				require.Empty(t, cluster.deleted())
				require.Empty(t, cluster.logged("Config changed"))
			})
		})
	}
}

func TestActsOnAChangeWhileTheWatchWasDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.changeConfig(namespace, ConfigName)
		cluster.createPods("frontend-1")
		stop := cluster.start(0)
		defer stop()
		advance(time.Minute)
		cluster.breakWatch("configmaps")
		cluster.changeConfig(namespace, ConfigName)
		advance(time.Minute)
		require.Equal(t, []string{"frontend-1"}, cluster.deleted())
	})
}

func TestDeletesOnlyTheObservedUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.changeConfig(namespace, ConfigName)
		cluster.createPods("frontend-0")
		// Someone else replaces the Pod while the delete request is in flight.
		cluster.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			pod := newPod(namespace, "frontend-0", "frontend")
			pod.UID = "uid of the new Pod"
			cluster.write(pod)
			return false, nil, nil
		})
		stop := cluster.start(0)
		defer stop()
		advance(time.Minute)
		cluster.changeConfig(namespace, ConfigName)
		advance(time.Hour)
		require.Equal(t, []string{"frontend-0"}, cluster.deleted(), "delete requests")
		_, err := cluster.pod(namespace, "frontend-0")
		require.NoError(t, err, "the new Pod must still exist")
	})
}

func TestMissingPodIsNotAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.changeConfig(namespace, ConfigName)
		cluster.createPods("frontend-1")
		cluster.fail("delete", "pods", apierrors.NewNotFound(corev1.Resource("pods"), "frontend-1"))
		stop := cluster.start(0)
		defer stop()
		advance(time.Minute)
		cluster.changeConfig(namespace, ConfigName)
		advance(time.Hour)
		require.Len(t, cluster.logged("Pod is older than its config"), 1)
		require.Empty(t, cluster.loggedErrors())
	})
}

// The next tests show weaknesses of an edge-triggered controller. Lesson 3 fixes them.

func TestFailedDeletionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.changeConfig(namespace, ConfigName)
		cluster.createPods("frontend-1", "frontend-2", "frontend-3")
		failures := 0
		cluster.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.(clienttesting.DeleteAction).GetName() != "frontend-2" {
				return false, nil, nil
			}
			failures++
			return true, nil, errInjected
		})
		stop := cluster.start(10 * time.Minute)
		defer stop()
		advance(time.Minute)
		cluster.changeConfig(namespace, ConfigName)
		advance(time.Second)
		require.ElementsMatch(t, []string{"frontend-1", "frontend-3"}, cluster.deleted(), "the other Pods are deleted")
		require.Equal(t, []string{fmt.Sprint("Failed to delete Pod, will not retry pod=shop/frontend-2: ", errInjected)},
			cluster.logged("Failed to delete Pod"), "the error names the Pod")

		advance(time.Hour)
		require.Equal(t, 1, failures, "delete requests for the Pod")
	})
}

func TestChangeIsLostForAPodThatIsNotInTheCacheYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.changeConfig(namespace, ConfigName)
		cluster.lag["pods"] = time.Second
		stop := cluster.start(10 * time.Minute)
		defer stop()
		cluster.createPods("frontend-1") // It reads the config.
		advance(time.Second / 2)
		cluster.changeConfig(namespace, ConfigName) // The watch for Pods has not delivered the Pod yet.
		advance(time.Hour)
		require.Equal(t, []string{"onAdd pod=shop/frontend-1 node=node-0"}, cluster.logged("onAdd"))
		require.Empty(t, cluster.deleted())
	})
}

func TestChangeDuringDowntimeIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.changeConfig(namespace, ConfigName)
		cluster.createPods("frontend-1")
		stop := cluster.start(0)
		advance(time.Minute)
		stop()

		cluster.changeConfig(namespace, ConfigName)
		stop = cluster.start(10 * time.Minute)
		defer stop()
		advance(time.Hour)
		require.Empty(t, cluster.deleted())
	})
}

func TestDoesNotActBeforeThePodsAreSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		cluster.changeConfig(namespace, ConfigName)
		cluster.createPods("frontend-1", "frontend-2")
		cluster.delay("list", "pods", 10*time.Second)
		cluster.delay("list", "configmaps", 10*time.Second)
		stop := cluster.start(0)
		defer stop()

		advance(5 * time.Second)
		cluster.changeConfig(namespace, ConfigName)
		advance(14 * time.Second)
		require.Empty(t, cluster.logged("Config changed"), "with an empty lister, the change would be lost")
		require.Empty(t, cluster.logged("Caches synced"))

		advance(2 * time.Second)
		require.Len(t, cluster.logged("Caches synced"), 1)
		cluster.changeConfig(namespace, ConfigName)
		advance(time.Second)
		require.ElementsMatch(t, []string{"frontend-1", "frontend-2"}, cluster.deleted())
	})
}

func TestStopsWithoutDelay(t *testing.T) {
	tests := map[string]func(cluster *fakeCluster){
		"the caches are synced":          func(*fakeCluster) {},
		"the list of Pods fails":         func(cluster *fakeCluster) { cluster.fail("list", "pods", errInjected) },
		"the list of configs fails":      func(cluster *fakeCluster) { cluster.fail("list", "configmaps", errInjected) },
		"the list of Pods takes long":    func(cluster *fakeCluster) { cluster.delay("list", "pods", time.Hour) },
		"the list of configs takes long": func(cluster *fakeCluster) { cluster.delay("list", "configmaps", time.Hour) },
	}
	for name, prepare := range tests {
		for _, after := range []time.Duration{0, 90*time.Second + time.Millisecond} {
			t.Run(fmt.Sprintf("%s, after %s", name, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cluster := newFakeCluster(t)
					cluster.changeConfig(namespace, ConfigName)
					cluster.createPods("frontend-1")
					prepare(cluster)
					stop := cluster.start(time.Minute)
					advance(after)
					cancelled := time.Now()
					stop()
					require.Zero(t, time.Since(cancelled), "virtual time that Run took to return after ctx was cancelled")
					require.Len(t, cluster.logged("Stopped"), 1)
					advance(time.Hour) // A list request that was abandoned may still be in flight.
				})
			})
		}
	}
}

func TestReturnsIfAlreadyCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newFakeCluster(t)
		ctx, cancel := context.WithCancel(cluster.context())
		cancel()
		require.NoError(t, (&Controller{Client: cluster.Clientset, Namespace: namespace}).Run(ctx))
		require.Empty(t, cluster.logged("Caches synced"))
	})
}

func TestWaitsForItsGoroutines(t *testing.T) {
	for _, resource := range []string{"pods", "configmaps"} {
		t.Run("watch "+resource, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := newFakeCluster(t)
				cluster.delayWatchStop(resource, 6*time.Second)
				stop := cluster.start(0)
				cancelled := time.Now()
				stop()
				require.Equal(t, 6*time.Second, time.Since(cancelled))
			})
		})
	}
	t.Run("delete a Pod", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cluster := newFakeCluster(t)
			cluster.changeConfig(namespace, ConfigName)
			cluster.createPods("frontend-1")
			cluster.delay("delete", "pods", 10*time.Second)
			stop := cluster.start(0)
			cluster.changeConfig(namespace, ConfigName)
			advance(4 * time.Second)
			cancelled := time.Now()
			stop()
			require.Equal(t, 6*time.Second, time.Since(cancelled))
			require.Equal(t, []string{"frontend-1"}, cluster.deleted())
		})
	})
}
