#!/bin/sh
# k8s.io/client-go v0.37.1, package util/jsonpath, which is the code of "kubectl get -o jsonpath": with AllowMissingKeys(true), as kubectl
# sets it, the filter ?(@.labels.env!="prod") leaves out the elements that have no env at all. They are neither equal nor unequal. One would
# expect what the label selector env!=prod of the same project selects: other values, and "all resources with no labels with the [...] key"
# (documentation of Kubernetes, "Labels and Selectors"), or the JSONPath of RFC 9535 (2.3.5.2.2), in which nothing != "prod" is true.
# See util/jsonpath/jsonpath.go: evalFilter, "case len(lefts) == 0: continue".
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
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/jsonpath"
)

func main() {
	pods := []struct {
		name   string
		labels labels.Set
	}{{"a", labels.Set{"env": "prod"}}, {"b", labels.Set{"env": "dev"}}, {"c", labels.Set{"app": "web"}}}
	selector, err := labels.Parse("env!=prod")
	if err != nil {
		panic(err)
	}
	fmt.Print("selector env!=prod:")
	var items []any
	for _, pod := range pods {
		if selector.Matches(pod.labels) {
			fmt.Print(" ", pod.name)
		}
		values := map[string]any{}
		for key, value := range pod.labels {
			values[key] = value
		}
		items = append(items, map[string]any{"name": pod.name, "labels": values})
	}
	fmt.Println()
	for _, operator := range []string{"==", "!="} {
		path := jsonpath.New("filter").AllowMissingKeys(true)
		if err := path.Parse(`{.items[?(@.labels.env` + operator + `"prod")].name}`); err != nil {
			panic(err)
		}
		fmt.Printf("jsonpath env%sprod: ", operator)
		if err := path.Execute(os.Stdout, map[string]any{"items": items}); err != nil {
			panic(err)
		}
		fmt.Println()
	}
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
selector env!=prod: b c
jsonpath env==prod: a
jsonpath env!=prod: b
END
diff want out
