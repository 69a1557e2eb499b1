#!/bin/sh
# k8s.io/client-go v0.37.1, package tools/pager: ListPager.List returns "a single list object", which has the type of the caller's list,
# *v1.ConfigMapList here, for up to 500 objects (the default page). With 501, it is an *internalversion.List,
# whose Items are of type runtime.Object. So a type assertion that works in every test, with few objects, does not in a cluster with many.
# One would expect one type, or that the comment of List mentions the other one.
# See tools/pager/pager.go: list.
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
)
END
cat > main.go <<'END'
package main

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
)

func main() {
	for _, objects := range []int{500, 501} {
		// What an API server does with limit and continue.
		list := func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
			from, _ := strconv.Atoi(options.Continue)
			to := min(objects, from+int(options.Limit))
			page := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
			for i := from; i < to; i++ {
				page.Items = append(page.Items, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i)}})
			}
			if to < objects {
				page.Continue = strconv.Itoa(to)
			}
			return page, nil
		}
		result, paginated, err := pager.New(list).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			panic(err)
		}
		_, asserted := result.(*corev1.ConfigMapList)
		fmt.Printf("%d objects: %d in a %T, paginated %t, is a ConfigMapList: %t\n", objects, meta.LenList(result), result, paginated, asserted)
	}
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
500 objects: 500 in a *v1.ConfigMapList, paginated false, is a ConfigMapList: true
501 objects: 501 in a *internalversion.List, paginated true, is a ConfigMapList: false
END
diff want out
