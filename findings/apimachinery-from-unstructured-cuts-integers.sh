#!/bin/sh
# k8s.io/apimachinery v0.37.1, package pkg/runtime: DefaultUnstructuredConverter.FromUnstructured does not look whether a number fits. The
# replicas 4294967299 (2^32+3) of an unstructured Deployment become 3 in an int32, and -1 becomes 255 in a byte, without an error; also with
# FromUnstructuredWithValidation, which is strict about unknown fields. One would expect what a decoder of the same JSON says: "cannot
# unmarshal number 4294967299 into Go struct field". So a program that reads manifests as unstructured objects, and converts them, takes
# another number where it should take none. See pkg/runtime/converter.go: fromUnstructured, "dv.Set(sv.Convert(dt))".
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
)
END
cat > main.go <<'END'
package main

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func main() {
	document := []byte(`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 4294967299}}`)
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON(document); err != nil {
		panic(err)
	}
	var deployment appsv1.Deployment
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &deployment)
	fmt.Println("FromUnstructured:", *deployment.Spec.Replicas, err)
	deployment = appsv1.Deployment{}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &deployment, true)
	fmt.Println("FromUnstructuredWithValidation:", *deployment.Spec.Replicas, err)
	var bytes struct {
		Level uint8 `json:"level"`
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"level": int64(-1)}, &bytes)
	fmt.Println("FromUnstructured, byte:", bytes.Level, err)
	fmt.Println("encoding/json:", json.Unmarshal(document, &deployment))
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
FromUnstructured: 3 <nil>
FromUnstructuredWithValidation: 3 <nil>
FromUnstructured, byte: 255 <nil>
encoding/json: json: cannot unmarshal number 4294967299 into Go struct field DeploymentSpec.spec.replicas of type int32
END
diff want out
