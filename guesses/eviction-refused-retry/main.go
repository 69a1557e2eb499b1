// Eviction-refused-retry evicts a Pod and counts the requests that client-go sends.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/guesses/internal/client"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

func main() {
	ctx := context.Background()
	requests, retryAfter := 0, ""
	config := client.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			requests++
			if err == nil {
				retryAfter = response.Header.Get("Retry-After")
			}
			return response, err
		})
	})
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	err = clientset.CoreV1().Pods(client.Namespace()).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: os.Args[1]},
	})
	if err == nil {
		log.Fatal("the budget did not refuse the eviction")
	}
	fmt.Printf("%d request, Retry-After %q: %v\n", requests, retryAfter, err)
}
