#!/bin/sh
# sigs.k8s.io/kwok v0.8.0, package pkg/kwok/controllers: the simulated kubelet plays a Stage with "delete: true" for the Pod that it was
# told of, but deletes by namespace and name alone, without a precondition on the UID. One would expect what a kubelet does, which deletes
# the Pod that it has run, by its UID (pkg/kubelet/status/status_manager.go). If a StatefulSet has put a new Pod in the place of the old one
# before KWOK gets to it, KWOK force-deletes the new one, which nobody has asked to be deleted. Seen here with client-go's fake clientset:
# the event is of the Pod with UID old, which is being deleted; the Pod with UID new has its name, and is gone afterwards.
# See pkg/kwok/controllers/pod_controller.go: deleteResource, deleteOpt.
#
# Needs Go and access to a module proxy. Ends with status 0 while this is so.
set -eu
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT INT TERM
cd "$dir"
export GOFLAGS=-mod=mod GOWORK=off
cat > go.mod <<'END'
module finding

go 1.26.0

require sigs.k8s.io/kwok v0.8.0
END
cat > main.go <<'END'
package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/config/resources"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
	"sigs.k8s.io/kwok/pkg/utils/informer"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

const stage = `
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-delete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector: {matchExpressions: [{key: .metadata.deletionTimestamp, operator: Exists}]}
  next: {delete: true}
`

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func pod(uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "shop", UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: "node"}}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := fake.NewClientset(pod("new"))
	stages := []*internalversion.Stage{must(config.UnmarshalWithType[*internalversion.Stage](stage))}
	c := must(controllers.NewPodController(controllers.PodControllerConfig{
		TypedClient:          client,
		NodeGetFunc:          func(string) (*controllers.NodeInfo, bool) { return &controllers.NodeInfo{}, true },
		Lifecycle:            resources.NewStaticGetter(must(lifecycle.NewLifecycle(stages))),
		PlayStageParallelism: 1,
	}))
	events := make(chan informer.Event[*corev1.Pod], 1)
	if err := c.Start(ctx, events); err != nil {
		panic(err)
	}
	now := metav1.Now()
	old := pod("old")
	old.DeletionTimestamp = &now
	events <- informer.Event[*corev1.Pod]{Type: informer.Modified, Object: old}
	for ctx.Err() == nil {
		_, err := client.CoreV1().Pods("shop").Get(ctx, "web-0", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, action := range client.Actions() {
		if deletion, ok := action.(clienttesting.DeleteAction); ok {
			o := deletion.GetDeleteOptions()
			fmt.Printf("delete %s: grace period %d, preconditions %v\n", deletion.GetName(), *o.GracePeriodSeconds, o.Preconditions)
		}
	}
	_, err := client.CoreV1().Pods("shop").Get(ctx, "web-0", metav1.GetOptions{})
	fmt.Println("the Pod with UID new is gone:", apierrors.IsNotFound(err))
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
delete web-0: grace period 0, preconditions nil
the Pod with UID new is gone: true
END
diff want out
