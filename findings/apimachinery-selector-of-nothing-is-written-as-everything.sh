#!/bin/sh
# k8s.io/apimachinery v0.37.1, packages pkg/labels and pkg/fields: the selector that matches nothing is written as "", which is how the
# selector that matches everything is written, too. A nil *metav1.LabelSelector stands for nothing, and LabelSelectorAsSelector makes
# labels.Nothing() of it. One would expect that its String(), as the LabelSelector of ListOptions, asks for no objects, and that
# labels.Parse gives it back, as it does with all others. But the request, and that of DeleteCollection, has no selector, which
# stands for every object. FormatLabelSelector, for people, writes "<none>" for both as well.
# The documentation of String says: "returns a human readable string that represents this selector".
# See pkg/labels/selector.go: nothingSelector.String, and pkg/fields/selector.go.
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
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func main() {
	var queries []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.Method+" "+r.URL.RawQuery)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "PodList", "apiVersion": "v1", "items": []}`)
	}))
	defer server.Close()
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})
	pod := labels.Set{"app": "web"}
	for _, one := range []struct {
		name     string
		selector *metav1.LabelSelector
	}{
		{"app=web", &metav1.LabelSelector{MatchLabels: pod}},
		{"everything", &metav1.LabelSelector{}},
		{"nothing", nil},
	} {
		selector, err := metav1.LabelSelectorAsSelector(one.selector)
		if err != nil {
			panic(err)
		}
		parsed, err := labels.Parse(selector.String())
		if err != nil {
			panic(err)
		}
		queries = nil
		options := metav1.ListOptions{LabelSelector: selector.String()}
		if _, err := client.CoreV1().Pods("shop").List(context.Background(), options); err != nil {
			panic(err)
		}
		if err := client.CoreV1().Pods("shop").DeleteCollection(context.Background(), metav1.DeleteOptions{}, options); err != nil {
			panic(err)
		}
		fmt.Printf("%s: matches %t, String %q, parsed again: matches %t, queries %q, formatted %q\n",
			one.name, selector.Matches(pod), selector, parsed.Matches(pod), queries, metav1.FormatLabelSelector(one.selector))
	}
	parsed, err := fields.ParseSelector(fields.Nothing().String())
	if err != nil {
		panic(err)
	}
	node := fields.Set{"spec.nodeName": "n"}
	fmt.Printf("fields: nothing matches %t, parsed again: %t\n", fields.Nothing().Matches(node), parsed.Matches(node))
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
app=web: matches true, String "app=web", parsed again: matches true, queries ["GET labelSelector=app%3Dweb" "DELETE labelSelector=app%3Dweb"], formatted "app=web"
everything: matches true, String "", parsed again: matches true, queries ["GET " "DELETE "], formatted "<none>"
nothing: matches false, String "", parsed again: matches true, queries ["GET " "DELETE "], formatted "<none>"
fields: nothing matches false, parsed again: true
END
diff want out
