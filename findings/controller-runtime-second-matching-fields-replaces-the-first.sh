#!/bin/sh
# sigs.k8s.io/controller-runtime v0.25.2, package pkg/client: of two options MatchingLabels, both count (they are ANDed, says a comment in the
# code). Of two options MatchingFields, only the last one counts, without an error: a List, or a DeleteAllOf, for
#   MatchingFields{"spec.nodeName": "n"}, MatchingFields{"status.phase": "Failed"}
# takes the failed Pods of all Nodes. The comment is the same for both: "filters the list/delete operation on the given ...". One would expect
# of both the same. Seen by the queries that the client sends, and by what the fake client with indexes lists.
# See pkg/client/options.go: MatchingLabels.ApplyToList, MatchingFields.ApplyToList.
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
	sigs.k8s.io/controller-runtime v0.25.2
)
END
cat > main.go <<'END'
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func main() {
	ctx := context.Background()
	type option interface {
		client.ListOption
		client.DeleteAllOfOption
	}
	options := map[string][2]option{
		"labels": {client.MatchingLabels{"node": "n"}, client.MatchingLabels{"phase": "Failed"}},
		"fields": {client.MatchingFields{"spec.nodeName": "n"}, client.MatchingFields{"status.phase": "Failed"}},
	}

	var queries []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.Method+" "+r.URL.RawQuery)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "PodList", "apiVersion": "v1", "items": []}`)
	}))
	defer server.Close()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	real, err := client.New(&rest.Config{Host: server.URL}, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	if err != nil {
		panic(err)
	}

	pod := func(name, node string, phase corev1.PodPhase) client.Object {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"node": node, "phase": string(phase)}},
			Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase},
		}
	}
	for _, by := range []string{"labels", "fields"} {
		queries = nil
		if err := real.List(ctx, &corev1.PodList{}, options[by][0], options[by][1]); err != nil {
			panic(err)
		}
		if err := real.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("shop"), options[by][0], options[by][1]); err != nil {
			panic(err)
		}
		simulated := fake.NewClientBuilder().WithScheme(scheme.Scheme).
			WithObjects(pod("a", "n", corev1.PodRunning), pod("b", "n", corev1.PodFailed), pod("c", "m", corev1.PodFailed)).
			WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
			WithIndex(&corev1.Pod{}, "status.phase", func(o client.Object) []string { return []string{string(o.(*corev1.Pod).Status.Phase)} }).
			Build()
		var list corev1.PodList
		if err := simulated.List(ctx, &list, options[by][0], options[by][1]); err != nil {
			panic(err)
		}
		fmt.Printf("%s: queries %q, listed:", by, queries)
		for _, p := range list.Items {
			fmt.Printf(" %s (%s, %s)", p.Name, p.Spec.NodeName, p.Status.Phase)
		}
		fmt.Println()
	}
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
labels: queries ["GET labelSelector=node%3Dn%2Cphase%3DFailed" "DELETE labelSelector=node%3Dn%2Cphase%3DFailed"], listed: b (n, Failed)
fields: queries ["GET fieldSelector=status.phase%3DFailed" "DELETE fieldSelector=status.phase%3DFailed"], listed: b (n, Failed) c (m, Failed)
END
diff want out
