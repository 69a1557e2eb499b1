#!/bin/sh
# k8s.io/client-go v0.37.1, package util/jsonpath, which is the code of "kubectl get -o jsonpath": the results of {..image}, with which the
# documentation of Kubernetes lists all images, have another order from run to run, for the same object. It is that of a Go map, and the
# objects of "kubectl get" are maps. One would expect some order that stays, as that of -o json and -o yaml, which sort the keys, so that
# two outputs can be compared. See util/jsonpath/jsonpath.go: evalRecursive (and evalWildcard, for {.*}), "value.MapKeys()".
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
)
END
cat > main.go <<'END'
package main

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"
)

func main() {
	var pod unstructured.Unstructured
	if err := pod.UnmarshalJSON([]byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {
		"containers": [{"name": "web", "image": "web:2"}], "initContainers": [{"name": "migrate", "image": "migrate:1"}]}}`)); err != nil {
		panic(err)
	}
	for _, template := range []string{"{..image}", "{.spec.*[*].image}", "{.spec['containers','initContainers'][*].image}"} {
		path, outputs := jsonpath.New("images"), map[string]bool{}
		if err := path.Parse(template); err != nil {
			panic(err)
		}
		var json []byte
		for range 1000 {
			var out bytes.Buffer
			if err := path.Execute(&out, pod.Object); err != nil {
				panic(err)
			}
			outputs[out.String()] = true
			again, err := pod.MarshalJSON()
			if err != nil || json != nil && !bytes.Equal(again, json) {
				panic("JSON differs")
			}
			json = again
		}
		fmt.Printf("%s: %d outputs: %t %t\n", template, len(outputs), outputs["web:2 migrate:1"], outputs["migrate:1 web:2"])
	}
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
{..image}: 2 outputs: true true
{.spec.*[*].image}: 2 outputs: true true
{.spec['containers','initContainers'][*].image}: 1 outputs: true false
END
diff want out
