#!/bin/sh
# k8s.io/apimachinery v0.37.1, package pkg/api/equality: Semantic.DeepDerivative(wanted, actual) is documented as "similar to DeepEqual except
# that unset fields in a1 are ignored", and is used to see whether an object still is as wanted, in spite of defaults. It takes a list as equal
# to any longer list that begins with it: a second container, argument or port that somebody has added is not seen, if it is added at the end,
# while it is seen if it is added before. One would expect to see both: that list is set, and the same as the actual one it is not. (Unset
# fields "include a nil pointer and an empty string", the comment goes on.)
# See third_party/forked/golang/reflect/deep_equal.go: deepValueDerive, "v1.Len() > v2.Len()".
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
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

func spec(names ...string) corev1.PodSpec {
	var s corev1.PodSpec
	for _, name := range names {
		s.Containers = append(s.Containers, corev1.Container{Name: name})
	}
	return s
}

func main() {
	wanted := spec("web")
	defaulted := spec("web")
	defaulted.RestartPolicy = corev1.RestartPolicyAlways
	fmt.Println("with a default:", equality.Semantic.DeepDerivative(wanted, defaulted))
	fmt.Println("another name:", equality.Semantic.DeepDerivative(wanted, spec("shop")))
	fmt.Println("another container before:", equality.Semantic.DeepDerivative(wanted, spec("other", "web")))
	fmt.Println("another container after:", equality.Semantic.DeepDerivative(wanted, spec("web", "other")))
	fmt.Println("one less:", equality.Semantic.DeepDerivative(spec("web", "other"), wanted))
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
with a default: true
another name: false
another container before: false
another container after: true
one less: false
END
diff want out
