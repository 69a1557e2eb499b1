#!/bin/sh
# k8s.io/client-go v0.37.1, package restmapper: RESTMapping answers "no matches for kind" for a kind of an API group whose aggregated API
# server is down (503), and meta.IsNoMatchError is true for that. One would expect the error of the discovery, which has it: the same
# discovery client says "the server is currently unable to handle the request". By IsNoMatchError, programs decide that a CRD or an add-on
# is not installed. Its neighbour in controller-runtime v0.25.2, apiutil.NewDynamicRESTMapper, returns the 503 for the same request.
# See restmapper/discovery.go: GetAPIGroupResourcesWithContext looks at the error only if there is no result at all (with a TODO).
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
	k8s.io/apimachinery v0.37.1
	k8s.io/client-go v0.37.1
	sigs.k8s.io/controller-runtime v0.25.2
)
END
cat > main.go <<'END'
package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

const group = `{"name": "metrics.k8s.io", "versions": [{"groupVersion": "metrics.k8s.io/v1beta1", "version": "v1beta1"}],
	"preferredVersion": {"groupVersion": "metrics.k8s.io/v1beta1", "version": "v1beta1"}`

func main() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			fmt.Fprint(w, `{"kind": "APIVersions", "versions": ["v1"]}`)
		case "/api/v1":
			fmt.Fprint(w, `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [{"name": "pods", "kind": "Pod", "namespaced": true}]}`)
		case "/apis":
			fmt.Fprint(w, `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [`+group+`}]}`)
		case "/apis/metrics.k8s.io":
			fmt.Fprint(w, group+`, "kind": "APIGroup", "apiVersion": "v1"}`)
		default: // metrics-server does not answer
			http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	client := discovery.NewDiscoveryClientForConfigOrDie(config)
	show := func(what string, err error) {
		fmt.Printf("%s: no match %t, unavailable %t: %v\n", what, meta.IsNoMatchError(err), apierrors.IsServiceUnavailable(err), err)
	}
	kind := schema.GroupKind{Group: "metrics.k8s.io", Kind: "NodeMetrics"}

	_, err := client.ServerResourcesForGroupVersion("metrics.k8s.io/v1beta1")
	show("discovery", err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	_, err = mapper.RESTMapping(schema.GroupKind{Kind: "Pod"}, "v1")
	show("Pod", err)
	_, err = mapper.RESTMapping(kind, "v1beta1")
	show("NodeMetrics", err)

	other, err := apiutil.NewDynamicRESTMapper(config, server.Client())
	if err != nil {
		panic(err)
	}
	_, err = other.RESTMapping(kind, "v1beta1")
	fmt.Printf("NodeMetrics, controller-runtime: no match %t: %v\n", meta.IsNoMatchError(err), err)
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
discovery: no match false, unavailable true: the server is currently unable to handle the request
Pod: no match false, unavailable false: <nil>
NodeMetrics: no match true, unavailable false: no matches for kind "NodeMetrics" in version "metrics.k8s.io/v1beta1"
NodeMetrics, controller-runtime: no match false: failed to get API group resources: unable to retrieve the complete list of server APIs: metrics.k8s.io/v1beta1: the server is currently unable to handle the request
END
diff want out
