#!/bin/sh
# sigs.k8s.io/kwok v0.8.0, package pkg/utils/expression: a Stage whose selector compares a number of the object never matches. Its
# values are strings ("An array of string values"), and of the results of a query, strings, booleans and integers of type int are
# compared with them; but the numbers of an object come from encoding/json, and are of type float64. So {key: .spec.priority, operator:
# In, values: ["5"]} matches no Pod, and NotIn matches each, without an error or a warning, while true is compared as "true", and the
# number of containers, which gojq calculates, as an integer. With ".spec.priority | tostring", it matches.
# See pkg/utils/expression/selector.go: hasValue, and query.go: ToJSONStandard.
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
	sigs.k8s.io/kwok v0.8.0
)
END
cat > main.go <<'END'
package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

const stage = `
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-priority}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector: {matchExpressions: [{key: %q, operator: %s, values: [%q]}]}
  next: {statusTemplate: "phase: Running"}
`

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	priority := int32(5)
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node", Priority: &priority, HostNetwork: true, Containers: []corev1.Container{{Name: "a"}}}}
	for _, one := range []struct{ key, operator, value string }{
		{".spec.nodeName", "In", "node"},
		{".spec.hostNetwork", "In", "true"},
		{".spec.containers | length", "In", "1"},
		{".spec.priority", "In", "5"},
		{".spec.priority", "NotIn", "5"},
		{".spec.priority | tostring", "In", "5"},
	} {
		s := must(config.UnmarshalWithType[*internalversion.Stage](fmt.Sprintf(stage, one.key, one.operator, one.value)))
		l := must(lifecycle.NewLifecycle([]*internalversion.Stage{s}))
		matched := must(l.Match(context.Background(), &lifecycle.Event{Data: pod}))
		fmt.Printf("%s %s [%q]: matches %t\n", one.key, one.operator, one.value, matched != nil)
	}
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
.spec.nodeName In ["node"]: matches true
.spec.hostNetwork In ["true"]: matches true
.spec.containers | length In ["1"]: matches true
.spec.priority In ["5"]: matches false
.spec.priority NotIn ["5"]: matches true
.spec.priority | tostring In ["5"]: matches true
END
diff want out
