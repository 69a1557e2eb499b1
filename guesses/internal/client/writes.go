package client

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// Writes returns a channel that gets the method and the status of each write that clients with this configuration send, in
// the order of the responses.
func Writes(config *rest.Config) <-chan string {
	writes := make(chan string, 1000)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil && request.Method != http.MethodGet {
				writes <- request.Method + " " + response.Status
			}
			return response, err
		})
	})
	return writes
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
