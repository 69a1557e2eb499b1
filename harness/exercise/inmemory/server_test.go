package inmemory_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/exercise/inmemory"
	"example.com/controllers/harness/history"
)

// Without the backoff between errors: it compares the time with that of an error in an earlier bubble, and each bubble's time
// begins in the same year.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }

// world is a server with a client, in virtual time.
type world struct {
	*inmemory.Server
	t         *testing.T
	recording history.Memory
	client    *kubernetes.Clientset
	killed    int
}

// inWorld calls test in a bubble.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t}
		w.Server = inmemory.New(w.recording.Record)
		c := w.NewClient("controller", false, func() { w.killed++ })
		defer c.Disconnect()
		w.client = kubernetes.NewForConfigOrDie(c.Config())
		test(t, w)
		w.CutWatches("")
		synctest.Wait()
	})
}

func (w *world) inject(faults ...string) {
	w.t.Helper()
	for _, text := range faults {
		fault, err := apiproxy.ParseFault(text)
		require.NoError(w.t, err)
		_, err = w.Inject(fault)
		require.NoError(w.t, err)
	}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Labels: map[string]string{"app": "web"}}}
}

func must[T any](t *testing.T) func(object T, err error) T {
	return func(object T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return object
	}
}

func TestObjectsBehaveAsOnARealServer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		pods := w.client.CoreV1().Pods("shop")
		created := must[*corev1.Pod](t)(pods.Create(ctx, pod("web-0"), metav1.CreateOptions{}))
		require.NotEmpty(t, created.UID)
		require.NotEmpty(t, created.ResourceVersion)
		require.Equal(t, int64(1), created.Generation)
		require.WithinDuration(t, time.Now(), created.CreationTimestamp.Time, 0)
		_, err := pods.Create(ctx, pod("web-0"), metav1.CreateOptions{})
		require.True(t, apierrors.IsAlreadyExists(err), err)
		_, err = pods.Get(ctx, "web-1", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), err)

		same := must[*corev1.Pod](t)(pods.Update(ctx, created, metav1.UpdateOptions{}))
		require.Equal(t, created.ResourceVersion, same.ResourceVersion, "a write that changes nothing")
		changed := created.DeepCopy()
		changed.Spec.NodeName, changed.Status.Phase = "node-0", corev1.PodRunning
		updated := must[*corev1.Pod](t)(pods.Update(ctx, changed, metav1.UpdateOptions{}))
		require.NotEqual(t, created.ResourceVersion, updated.ResourceVersion)
		require.Equal(t, int64(2), updated.Generation)
		require.Empty(t, updated.Status.Phase, "an update leaves the status alone")
		_, err = pods.Update(ctx, changed, metav1.UpdateOptions{})
		require.True(t, apierrors.IsConflict(err), err)

		updated.Status.Phase, updated.Spec.NodeName = corev1.PodRunning, "node-1"
		running := must[*corev1.Pod](t)(pods.UpdateStatus(ctx, updated, metav1.UpdateOptions{}))
		require.Equal(t, corev1.PodRunning, running.Status.Phase)
		require.Equal(t, "node-0", running.Spec.NodeName, "an update of the status changes nothing else")
		require.Equal(t, int64(2), running.Generation)

		uid := types.UID("another")
		err = pods.Delete(ctx, "web-0", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		require.True(t, apierrors.IsConflict(err), err)
		require.NoError(t, pods.Delete(ctx, "web-0", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &created.UID}}))
		require.True(t, apierrors.IsNotFound(pods.Delete(ctx, "web-0", metav1.DeleteOptions{})))

		again := must[*corev1.Pod](t)(pods.Create(ctx, pod("web-0"), metav1.CreateOptions{}))
		require.NotEqual(t, created.UID, again.UID)
		_, err = pods.Update(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", UID: created.UID}}, metav1.UpdateOptions{})
		require.True(t, apierrors.IsConflict(err), "the UID is a precondition: %v", err)
	})
}

// Only some resources count the changes of their spec. A Service does not, so a controller that compares generations never
// notices that one was edited.
func TestWhatHasAGeneration(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		services := w.client.CoreV1().Services("shop")
		service := must[*corev1.Service](t)(services.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Finalizers: []string{"example.com/a"}}}, metav1.CreateOptions{}))
		require.Zero(t, service.Generation)
		service.Spec.ClusterIP = "None"
		service = must[*corev1.Service](t)(services.Update(ctx, service, metav1.UpdateOptions{}))
		require.Zero(t, service.Generation)
		require.NoError(t, services.Delete(ctx, "web", metav1.DeleteOptions{}))
		require.Zero(t, must[*corev1.Service](t)(services.Get(ctx, "web", metav1.GetOptions{})).Generation)
		config := must[*corev1.ConfigMap](t)(w.client.CoreV1().ConfigMaps("shop").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config", Generation: 5}}, metav1.CreateOptions{}))
		require.Zero(t, config.Generation)
		deployment := must[*appsv1.Deployment](t)(w.client.AppsV1().Deployments("shop").Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.CreateOptions{}))
		require.Equal(t, int64(1), deployment.Generation)
	})
}

// A controller that copies an object from another namespace has to change its metadata.
func TestRefusesTheMetadataOfAnotherObject(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		created := must[*corev1.Pod](t)(w.client.CoreV1().Pods("shop").Create(ctx, pod("web-0"), metav1.CreateOptions{}))
		other := created.DeepCopy()
		other.ResourceVersion = ""
		_, err := w.client.CoreV1().Pods("bank").Create(ctx, other, metav1.CreateOptions{})
		require.True(t, apierrors.IsBadRequest(err), err)
		require.ErrorContains(t, err, "the namespace of the provided object does not match the namespace sent on the request")
		other.Namespace, other.ResourceVersion = "bank", created.ResourceVersion
		_, err = w.client.CoreV1().Pods("bank").Create(ctx, other, metav1.CreateOptions{})
		require.ErrorContains(t, err, "resourceVersion should not be set on objects to be created")
		other.ResourceVersion = ""
		must[*corev1.Pod](t)(w.client.CoreV1().Pods("bank").Create(ctx, other, metav1.CreateOptions{}))
		_, err = w.client.CoreV1().Pods("shop").Update(ctx, other, metav1.UpdateOptions{})
		require.True(t, apierrors.IsBadRequest(err), err)
	})
}

// A client that stops a watch without cancelling its context leaves nothing behind.
func TestClosedWatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		events := must[watch.Interface](t)(w.client.CoreV1().Pods("shop").Watch(context.Background(), metav1.ListOptions{}))
		synctest.Wait()
		hasEnded := func() bool {
			return slices.ContainsFunc(w.recording.History().Requests, func(r history.Request) bool { return r.Verb == "watch" && !r.Open })
		}
		require.False(t, hasEnded())
		events.Stop()
		synctest.Wait()
		require.True(t, hasEnded(), "the server has not noticed")
	})
}

func TestFinalizersKeepAnObject(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		pods := w.client.CoreV1().Pods("shop")
		kept := pod("web-0")
		kept.Finalizers = []string{"example.com/a", "example.com/b"}
		must[*corev1.Pod](t)(pods.Create(ctx, kept, metav1.CreateOptions{}))
		require.NoError(t, pods.Delete(ctx, "web-0", metav1.DeleteOptions{}))
		require.NoError(t, pods.Delete(ctx, "web-0", metav1.DeleteOptions{}))
		marked := must[*corev1.Pod](t)(pods.Get(ctx, "web-0", metav1.GetOptions{}))
		require.NotNil(t, marked.DeletionTimestamp)
		marked.Finalizers = marked.Finalizers[:1]
		marked = must[*corev1.Pod](t)(pods.Update(ctx, marked, metav1.UpdateOptions{}))
		marked.Finalizers = nil
		must[*corev1.Pod](t)(pods.Update(ctx, marked, metav1.UpdateOptions{}))
		_, err := pods.Get(ctx, "web-0", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), err)
	})
}

func TestPatches(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		pods := w.client.CoreV1().Pods("shop")
		old := must[*corev1.Pod](t)(pods.Create(ctx, pod("web-0"), metav1.CreateOptions{}))
		for kind, patch := range map[types.PatchType]string{
			types.MergePatchType:          `{"metadata":{"annotations":{"merge":"yes"}}}`,
			types.StrategicMergePatchType: `{"metadata":{"annotations":{"strategic":"yes"}}}`,
			types.JSONPatchType:           `[{"op":"add","path":"/metadata/labels/json","value":"yes"}]`,
		} {
			must[*corev1.Pod](t)(pods.Patch(ctx, "web-0", kind, []byte(patch), metav1.PatchOptions{}))
		}
		must[*corev1.Pod](t)(pods.Apply(ctx, applycore.Pod("web-0", "shop").WithAnnotations(map[string]string{"apply": "yes"}), metav1.ApplyOptions{FieldManager: "x"}))
		got := must[*corev1.Pod](t)(pods.Get(ctx, "web-0", metav1.GetOptions{}))
		require.Equal(t, map[string]string{"merge": "yes", "strategic": "yes", "apply": "yes"}, got.Annotations)
		require.Equal(t, map[string]string{"app": "web", "json": "yes"}, got.Labels)
		_, err := pods.Patch(ctx, "web-0", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"labels":null}}`, old.ResourceVersion), metav1.PatchOptions{})
		require.True(t, apierrors.IsConflict(err), err)
		made := must[*corev1.ConfigMap](t)(w.client.CoreV1().ConfigMaps("shop").Apply(ctx, applycore.ConfigMap("new", "shop").WithData(map[string]string{"a": "b"}), metav1.ApplyOptions{FieldManager: "x"}))
		require.Equal(t, map[string]string{"a": "b"}, made.Data)
	})
}

func TestSelectors(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for i := range 3 {
			p := pod(fmt.Sprint("web-", i))
			p.Labels["number"] = fmt.Sprint(i)
			p.Spec.NodeName = fmt.Sprint("node-", i%2)
			must[*corev1.Pod](t)(w.client.CoreV1().Pods("shop").Create(ctx, p, metav1.CreateOptions{}))
		}
		elsewhere := pod("web-0")
		elsewhere.Namespace = "mall"
		must[*corev1.Pod](t)(w.client.CoreV1().Pods("mall").Create(ctx, elsewhere, metav1.CreateOptions{}))
		for _, test := range []struct {
			namespace, labels, fields string
			want                      int
		}{
			{"", "", "", 4}, {"shop", "", "", 3}, {"shop", "number in (1,2)", "", 2}, {"shop", "!number", "", 0},
			{"", "!number", "", 1}, {"shop", "", "metadata.name=web-1", 1}, {"", "", "spec.nodeName=node-0", 2}, {"", "", "metadata.namespace!=shop", 1},
		} {
			list := must[*corev1.PodList](t)(w.client.CoreV1().Pods(test.namespace).List(ctx, metav1.ListOptions{LabelSelector: test.labels, FieldSelector: test.fields}))
			require.Len(t, list.Items, test.want, "%+v", test)
		}
		require.NoError(t, w.client.CoreV1().Pods("shop").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "number=1"}))
		require.Len(t, must[*corev1.PodList](t)(w.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})).Items, 3)
	})
}

// A watch with a selector sees an object that begins or ceases to match as added or deleted.
func TestWatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		pods := w.client.CoreV1().Pods("shop")
		first := must[*corev1.Pod](t)(pods.Create(ctx, pod("web-0"), metav1.CreateOptions{}))
		must[*corev1.Pod](t)(pods.Create(ctx, pod("web-1"), metav1.CreateOptions{}))
		events := must[watch.Interface](t)(pods.Watch(ctx, metav1.ListOptions{LabelSelector: "app=web", ResourceVersion: first.ResourceVersion}))
		first.Labels["app"] = "other"
		first = must[*corev1.Pod](t)(pods.Update(ctx, first, metav1.UpdateOptions{}))
		first.Labels["app"] = "web"
		must[*corev1.Pod](t)(pods.Update(ctx, first, metav1.UpdateOptions{}))
		require.NoError(t, pods.Delete(ctx, "web-1", metav1.DeleteOptions{}))
		var got []string
		for range 4 {
			e := <-events.ResultChan()
			got = append(got, fmt.Sprint(e.Type, " ", e.Object.(*corev1.Pod).Name))
		}
		require.Equal(t, []string{"ADDED web-1", "DELETED web-0", "ADDED web-0", "DELETED web-1"}, got)
		w.CutWatches("pods")
		_, open := <-events.ResultChan()
		require.False(t, open)

		w.ForgetChanges()
		must[*corev1.Pod](t)(pods.Create(ctx, pod("web-2"), metav1.CreateOptions{}))
		w.ForgetChanges()
		expired := must[watch.Interface](t)(pods.Watch(ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion}))
		e := <-expired.ResultChan()
		require.Equal(t, watch.Error, e.Type)
		require.True(t, apierrors.IsResourceExpired(apierrors.FromObject(e.Object)))
		expired.Stop()
	})
}

func TestInformers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		pods := w.client.CoreV1().Pods("shop")
		must[*corev1.Pod](t)(pods.Create(ctx, pod("web-0"), metav1.CreateOptions{}))
		factory := informers.NewSharedInformerFactory(w.client, 0)
		lister := factory.Core().V1().Pods().Lister()
		tombstones := 0
		_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
			if _, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				tombstones++
			}
		}})
		require.NoError(t, err)
		factory.StartWithContext(ctx)
		defer factory.Shutdown()
		defer cancel()
		require.NoError(t, factory.WaitForCacheSyncWithContext(ctx).AsError())
		count := func() int {
			all, err := lister.List(labels.Everything())
			require.NoError(t, err)
			return len(all)
		}
		require.Equal(t, 1, count())
		must[*corev1.Pod](t)(pods.Create(ctx, pod("web-1"), metav1.CreateOptions{}))
		synctest.Wait()
		require.Equal(t, 2, count())

		w.inject("verb=watch,late=5s")
		w.CutWatches("pods")
		time.Sleep(time.Minute)
		must[*corev1.Pod](t)(pods.Create(ctx, pod("web-2"), metav1.CreateOptions{}))
		time.Sleep(4 * time.Second)
		synctest.Wait()
		require.Equal(t, 2, count(), "the event is late")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 3, count())

		w.Heal()
		w.inject("verb=watch,refuse=503", "verb=list,refuse=503")
		w.CutWatches("pods")
		require.NoError(t, pods.Delete(ctx, "web-0", metav1.DeleteOptions{}))
		w.ForgetChanges()
		w.Heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 2, count())
		require.Equal(t, 1, tombstones)
	})
}

// An injected fault has the effect that it has on a real API server.
func TestFaults(t *testing.T) {
	tests := map[string]struct {
		fault   string
		err     func(error) bool
		created bool
		takes   time.Duration
	}{
		"refused":     {"verb=create,refuse=500", apierrors.IsInternalError, false, 0},
		"conflict":    {"verb=create,refuse=409", func(err error) bool { return apierrors.ReasonForError(err) != "" }, false, 0},
		"lost":        {"verb=create,lost=request", func(err error) bool { return err != nil && !isStatus(err) }, false, 0},
		"lost reply":  {"verb=create,lost=reply", func(err error) bool { return err != nil && !isStatus(err) }, true, 0},
		"delayed":     {"verb=create,delay=3s", func(err error) bool { return err == nil }, true, 3 * time.Second},
		"late answer": {"verb=create,answer-late=3s", func(err error) bool { return err == nil }, true, 3 * time.Second},
		"hangs":       {"verb=create,hang=7s", func(err error) bool { return err != nil && !isStatus(err) }, false, 7 * time.Second},
		"the second":  {"verb=create,nth=2,refuse=500", func(err error) bool { return err == nil }, true, 0},
		"another":     {"verb=update,refuse=500", func(err error) bool { return err == nil }, true, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.inject(test.fault)
				start := time.Now()
				_, err := w.client.CoreV1().Pods("shop").Create(t.Context(), pod("web-0"), metav1.CreateOptions{})
				require.True(t, test.err(err), err)
				require.Equal(t, test.takes, time.Since(start))
				w.Heal()
				require.Equal(t, test.created, len(w.Objects(schema.GroupResource{Resource: "pods"})) == 1)
				recorded := w.recording.History().Requests
				require.Len(t, recorded, 1)
				require.Equal(t, "shop/web-0", recorded[0].Object())
			})
		})
	}
}

func isStatus(err error) bool { return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown }

func TestKill(t *testing.T) {
	for when, created := range map[string]bool{apiproxy.Before: false, apiproxy.After: true} {
		inWorld(t, func(t *testing.T, w *world) {
			_, err := w.Inject(apiproxy.Fault{Match: apiproxy.Match{Verb: "create"}, Effect: apiproxy.Effect{Kill: when}})
			require.NoError(t, err)
			pods := w.client.CoreV1().Pods("shop")
			events := must[watch.Interface](t)(pods.Watch(t.Context(), metav1.ListOptions{}))
			_, err = pods.Create(t.Context(), pod("web-0"), metav1.CreateOptions{})
			require.Error(t, err)
			for e := range events.ResultChan() {
				require.NotEqual(t, watch.Added, e.Type, "a program that is dead is told what its last request has created")
			}
			_, err = pods.List(t.Context(), metav1.ListOptions{})
			require.ErrorContains(t, err, "has been killed")
			synctest.Wait()
			require.Equal(t, 1, w.killed)
			require.Equal(t, created, len(w.Objects(schema.GroupResource{Resource: "pods"})) == 1)
		})
	}
}

// A fault that would be ignored would make a scene test nothing. Each key of a fault is either played or refused.
func TestFaultsThatAreRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, text := range []string{
			"down=1s", "nth=2,crash=before", "stop=before", "freeze=after", "reboot=before", "power-cut=after", "delay=1s,lost=late",
			"verb=watch,watch=unobserved", "verb=watch,watch=no-bookmarks",
		} {
			fault, err := apiproxy.ParseFault(text)
			require.NoError(t, err)
			_, err = w.Inject(apiproxy.Fault{Effect: apiproxy.Effect{Refuse: 500}}, fault)
			require.ErrorContains(t, err, "the API server in memory cannot play "+fault.String())
			_, err = w.client.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err, "neither fault is in force")
		}
		w.inject("verb=list,group=core,resource=pods,subresource=none,refuse=500") // as of a proxy
		_, err := w.client.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
		require.True(t, apierrors.IsInternalError(err), "%v", err)
	})
}

func TestWatchFaults(t *testing.T) {
	tests := map[string][]string{
		"verb=watch,watch=cut,event=2":     {"ADDED web-0"},
		"verb=watch,watch=expired,event=2": {"ADDED web-0", "ERROR"},
	}
	for fault, want := range tests {
		inWorld(t, func(t *testing.T, w *world) {
			w.inject(fault)
			events := must[watch.Interface](t)(w.client.CoreV1().Pods("shop").Watch(t.Context(), metav1.ListOptions{}))
			for i := range 3 {
				must[*corev1.Pod](t)(w.client.CoreV1().Pods("shop").Create(t.Context(), pod(fmt.Sprint("web-", i)), metav1.CreateOptions{}))
			}
			var got []string
			for e := range events.ResultChan() {
				if p, ok := e.Object.(*corev1.Pod); ok {
					got = append(got, fmt.Sprint(e.Type, " ", p.Name))
				} else {
					got = append(got, string(e.Type))
				}
			}
			require.Equal(t, want, got, fault)
		})
	}
	inWorld(t, func(t *testing.T, w *world) {
		w.inject("verb=watch,watch=held")
		events := must[watch.Interface](t)(w.client.CoreV1().Pods("shop").Watch(t.Context(), metav1.ListOptions{}))
		must[*corev1.Pod](t)(w.client.CoreV1().Pods("shop").Create(t.Context(), pod("web-0"), metav1.CreateOptions{}))
		time.Sleep(time.Hour)
		select {
		case e := <-events.ResultChan():
			t.Fatal(e)
		default:
		}
		w.Heal()
		require.Equal(t, watch.Added, (<-events.ResultChan()).Type)
	})
}

func TestCustomResources(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		networks := schema.GroupVersionResource{Group: "samplecrd.k8s.io", Version: "v1", Resource: "networks"}
		w.AddResource(networks, "Network")
		c := w.NewClient("user", true, nil)
		defer c.Disconnect()
		client := dynamic.NewForConfigOrDie(c.Config()).Resource(networks).Namespace("shop")
		created, err := client.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "samplecrd.k8s.io/v1", "kind": "Network", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"cidr": "10.0.0.0/8"},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, unstructured.SetNestedField(created.Object, "yes", "status", "ready"))
		_, err = client.UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
		require.NoError(t, err)
		list, err := client.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
		require.Equal(t, "NetworkList", list.GetKind())
		ready, _, _ := unstructured.NestedString(list.Items[0].Object, "status", "ready")
		require.Equal(t, "yes", ready)
	})
}

func TestSecretsAndNamespaces(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		secrets := w.client.CoreV1().Secrets("shop")
		secret := must[*corev1.Secret](t)(secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Type: "Opaque"}, metav1.CreateOptions{}))
		secret.Type = corev1.SecretTypeTLS
		_, err := secrets.Update(ctx, secret, metav1.UpdateOptions{})
		require.True(t, apierrors.IsInvalid(err), err)
		require.ErrorContains(t, err, "field is immutable")

		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Finalizers: []string{"example.com/wait"}}}
		must[*corev1.Namespace](t)(w.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}))
		require.NoError(t, w.client.CoreV1().Namespaces().Delete(ctx, "shop", metav1.DeleteOptions{}))
		namespace = must[*corev1.Namespace](t)(w.client.CoreV1().Namespaces().Get(ctx, "shop", metav1.GetOptions{}))
		require.Equal(t, corev1.NamespaceTerminating, namespace.Status.Phase)
		_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{})
		require.True(t, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), err)
	})
}

func TestRecordsNoOps(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		deployments := w.client.AppsV1().Deployments("shop")
		d := must[*appsv1.Deployment](t)(deployments.Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"}}, metav1.CreateOptions{}))
		require.NotEqual(t, "web-", d.Name)
		must[*appsv1.Deployment](t)(deployments.Update(t.Context(), d, metav1.UpdateOptions{}))
		h := w.recording.History()
		require.Len(t, h.Writes(), 2)
		require.Len(t, h.NoOps(), 1)
		require.Equal(t, "deployments.apps", h.Requests[0].What())
		require.Equal(t, "shop/"+d.Name, h.Requests[0].Object())
	})
}

// Each client is one process, and its requests tell of which, even when both have the same name.
func TestRecordsConnections(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		restarted := w.NewClient("controller", false, nil)
		defer restarted.Disconnect()
		for _, client := range []kubernetes.Interface{w.client, w.client, kubernetes.NewForConfigOrDie(restarted.Config())} {
			must[*corev1.PodList](t)(client.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{}))
		}
		var connections []int64
		for _, r := range w.recording.History().Requests {
			connections = append(connections, r.Connection)
		}
		require.Equal(t, []int64{1, 1, 2}, connections)
	})
}

// Leader election needs Leases, conflicts and time.
func TestLeaderElection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		led := make(chan string, 2)
		stopped := make(chan struct{})
		elect := func(ctx context.Context, name string) {
			leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: "shop", Name: "lock"}, Client: w.client.CoordinationV1(),
					LockConfig: resourcelock.ResourceLockConfig{Identity: name},
				},
				LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(ctx context.Context) { led <- name; <-ctx.Done() }, OnStoppedLeading: func() {},
				},
			})
			stopped <- struct{}{}
		}
		first, stopFirst := context.WithCancel(ctx)
		go elect(first, "a")
		require.Equal(t, "a", <-led)
		go elect(ctx, "b")
		time.Sleep(time.Minute)
		require.Empty(t, led)
		stopFirst()
		<-stopped
		require.Equal(t, "b", <-led)
		cancel()
		<-stopped
	})
}

func TestPutKeepsTheStatus(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		object := func(phase string) inmemory.Object {
			return inmemory.Object{"kind": "Pod", "apiVersion": "v1", "metadata": map[string]any{"name": "web-0", "namespace": "shop"}, "status": map[string]any{"phase": phase}}
		}
		resource := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
		require.NoError(t, w.Put(resource, object("Pending")))
		before := must[*corev1.Pod](t)(w.client.CoreV1().Pods("shop").Get(t.Context(), "web-0", metav1.GetOptions{}))
		require.NoError(t, w.Put(resource, object("Running")))
		after := must[*corev1.Pod](t)(w.client.CoreV1().Pods("shop").Get(t.Context(), "web-0", metav1.GetOptions{}))
		require.Equal(t, corev1.PodRunning, after.Status.Phase)
		require.Equal(t, before.UID, after.UID)
		require.Equal(t, int64(1), after.Generation)
		require.True(t, slices.Contains([]string{"1", "2"}, before.ResourceVersion))
	})
}
