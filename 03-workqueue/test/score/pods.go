package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// podWatch is our own view of the Pods of a frontend, with the times at which events arrived. The timestamps of the API
// server are only in whole seconds.
type podWatch struct {
	mu      sync.Mutex
	pods    map[types.UID]*corev1.Pod // that exist; read-only
	goneAt  map[types.UID]time.Time   // when a Pod was first seen with a deletionTimestamp, or gone
	changed time.Time                 // when the last event arrived
}

// watchPods watches the frontend of a namespace until ctx is cancelled. It returns when its cache has synced.
func watchPods(ctx context.Context, client kubernetes.Interface, namespace string) (*podWatch, error) {
	w := &podWatch{pods: map[types.UID]*corev1.Pod{}, goneAt: map[types.UID]time.Time{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "app=frontend" }))
	registration, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { w.see(object.(*corev1.Pod), false) },
		UpdateFunc: func(_, object any) { w.see(object.(*corev1.Pod), false) },
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			w.see(object.(*corev1.Pod), true)
		},
	})
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return nil, fmt.Errorf("watch the Pods of %s: %w", namespace, context.Cause(ctx))
	}
	return w, nil
}

func (w *podWatch) see(pod *corev1.Pod, gone bool) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed = now
	if _, known := w.goneAt[pod.UID]; !known && (gone || pod.DeletionTimestamp != nil) {
		w.goneAt[pod.UID] = now
	}
	if gone {
		delete(w.pods, pod.UID)
	} else {
		w.pods[pod.UID] = pod
	}
}

// state returns the Pods, the latest creation among them, and when the last event arrived. why is "" if exactly wanted
// Pods exist and all of them are Ready and not being deleted; otherwise it says what is missing.
func (w *podWatch) state(wanted int) (uids []types.UID, youngest, since time.Time, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ready := 0
	for uid, pod := range w.pods {
		uids = append(uids, uid)
		if pod.CreationTimestamp.After(youngest) {
			youngest = pod.CreationTimestamp.Time
		}
		if pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			ready++
		}
	}
	if ready != wanted || len(w.pods) != wanted {
		why = fmt.Sprintf("%d of %d Pods are Ready, of %d wanted", ready, len(w.pods), wanted)
	}
	return uids, youngest, w.changed, why
}

// replaced returns how many of these Pods are being deleted or gone, and since when the last of them is.
func (w *podWatch) replaced(pods []types.UID) (count int, last time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, uid := range pods {
		if at, gone := w.goneAt[uid]; gone {
			count++
			if at.After(last) {
				last = at
			}
		}
	}
	return count, last
}
