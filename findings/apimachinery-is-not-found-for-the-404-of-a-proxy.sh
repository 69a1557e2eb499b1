#!/bin/sh
# k8s.io/apimachinery v0.37.1, package pkg/api/errors: IsNotFound is documented as "returns true if the specified error was created by
# NewNotFound", that is, the API server says that an object does not exist. It is true as well for any response with code 404 that is no
# Status: of a load balancer or a proxy in between that has lost its route, in plain text, although client-go v0.37.1 knows that it comes
# from somebody else, and says so in the causes of the error (UnexpectedServerResponse). A controller that takes "not found" for "deleted",
# by controller-runtime's IgnoreNotFound for instance, acts on that. One would expect what a 502 of the same proxy is: an error on the way.
# See pkg/api/errors/errors.go: IsNotFound, NewGenericServerResponse.
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
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func main() {
	for _, one := range []struct {
		name, contentType, body string
		code                    int
	}{
		{"API server", "application/json", `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
			"message": "pods \"web-0\" not found", "details": {"name": "web-0", "kind": "pods"}}`, 404},
		{"proxy, 404", "text/plain", "no route to the cluster", 404},
		{"proxy, 502", "text/plain", "no route to the cluster", 502},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", one.contentType)
			w.WriteHeader(one.code)
			fmt.Fprint(w, one.body)
		}))
		client := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})
		_, err := client.CoreV1().Pods("shop").Get(context.Background(), "web-0", metav1.GetOptions{})
		server.Close()
		var causes []metav1.StatusCause
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			causes = status.Status().Details.Causes
		}
		fmt.Printf("%s: IsNotFound %t, %v, causes %v\n", one.name, apierrors.IsNotFound(err), err, causes)
	}
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
API server: IsNotFound true, pods "web-0" not found, causes []
proxy, 404: IsNotFound true, the server could not find the requested resource (get pods web-0), causes [{UnexpectedServerResponse no route to the cluster }]
proxy, 502: IsNotFound false, an error on the server ("no route to the cluster") has prevented the request from succeeding (get pods web-0), causes [{UnexpectedServerResponse no route to the cluster }]
END
diff want out
