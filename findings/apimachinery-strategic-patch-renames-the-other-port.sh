#!/bin/sh
# k8s.io/apimachinery v0.37.1, package pkg/util/strategicpatch: CreateTwoWayMergePatch is documented to "return a patch that yields the
# modified document when applied to the original document". For a Service with port 53 by TCP and by UDP, whose second port is renamed, the
# patch renames the first one: ports are merged by their number alone (patchMergeKey=port), so the patch cannot say which one it means.
# For server-side apply, the same list has two keys (listMapKey=port, listMapKey=protocol).
# See pkg/util/strategicpatch/patch.go, and the tags of Ports in k8s.io/api v0.37.1, core/v1/types.go: ServiceSpec.
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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func service(udp string) []byte {
	document, err := json.Marshal(corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
		{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: 53},
		{Name: udp, Protocol: corev1.ProtocolUDP, Port: 53},
	}}})
	if err != nil {
		panic(err)
	}
	return document
}

func show(what string, document []byte) {
	var s corev1.Service
	if err := json.Unmarshal(document, &s); err != nil {
		panic(err)
	}
	fmt.Printf("%s:", what)
	for _, port := range s.Spec.Ports {
		fmt.Printf(" %d/%s %s", port.Port, port.Protocol, port.Name)
	}
	fmt.Println()
}

func main() {
	original, modified := service("udp"), service("dns")
	patch, err := strategicpatch.CreateTwoWayMergePatch(original, modified, corev1.Service{})
	if err != nil {
		panic(err)
	}
	patched, err := strategicpatch.StrategicMergePatch(original, patch, corev1.Service{})
	if err != nil {
		panic(err)
	}
	show("original", original)
	show("modified", modified)
	fmt.Printf("patch: %s\n", patch)
	show("patched", patched)
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
original: 53/TCP tcp 53/UDP udp
modified: 53/TCP tcp 53/UDP dns
patch: {"spec":{"$setElementOrder/ports":[{"port":53},{"port":53}],"ports":[{"name":"dns","port":53}]}}
patched: 53/TCP dns 53/UDP udp
END
diff want out
