#!/bin/sh
# k8s.io/kubectl v0.37.1, package pkg/drain, which is the code of "kubectl drain": for a Pod whose DaemonSet does not exist any
# more, the error of GetPodsForDeletion takes the text of the API server's 404 for a reason in the middle of its own sentence:
#   cannot delete daemonsets.apps "agents" not found: shop/agent
# It reads as if the DaemonSet was to be deleted, and does not mention --force, which would evict the Pod, while the error for a Pod
# without any controller does. A program that shows kubectl's errors to its users has to recognize both.
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

require (
	k8s.io/api v0.37.1
	k8s.io/apimachinery v0.37.1
	k8s.io/client-go v0.37.1
	k8s.io/kubectl v0.37.1
)
END
cat > main.go <<'END'
package main

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubectl/pkg/drain"
)

func main() {
	pod := func(name string, owners ...metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, OwnerReferences: owners},
			Spec:       corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
	}
	yes := true
	agents := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agents", UID: "1", Controller: &yes}
	for _, force := range []bool{false, true} {
		for _, one := range []*corev1.Pod{pod("agent", agents), pod("bare")} {
			helper := &drain.Helper{Ctx: context.Background(), Client: fake.NewClientset(one), Force: force, IgnoreAllDaemonSets: true, Out: io.Discard, ErrOut: io.Discard}
			list, errs := helper.GetPodsForDeletion("n")
			fmt.Printf("force %t, %s: %d to delete, %v\n", force, one.Name, len(list.Pods()), errs)
		}
	}
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
force false, agent: 0 to delete, [cannot delete daemonsets.apps "agents" not found: shop/agent]
force false, bare: 0 to delete, [cannot delete Pods that declare no controller (use --force to override): shop/bare]
force true, agent: 1 to delete, []
force true, bare: 1 to delete, []
END
diff want out
