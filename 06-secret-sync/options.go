package secretsync

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/flowcontrol"
)

// Options configure a Controller.
type Options struct {
	Scope
	Workers int // number of copies handled concurrently; at least 1
	// QPS is how many writes per second are sent at most, and Burst how many at once after a pause. 0 is no limit.
	QPS        float32
	Burst      int
	Backoff    time.Duration // delay before the first retry of a copy; doubles with each further failure
	MaxBackoff time.Duration // upper bound of that delay
	Grace      time.Duration // how long in-flight requests may continue after Run's context is cancelled
}

// Validate returns an error that names the first invalid option and its allowed values.
func (o Options) Validate() error {
	switch {
	case o.SourceNamespace == "":
		return errors.New("--source-namespace is missing; name the namespace whose Secrets are shared")
	case len(validation.IsDNS1123Label(o.SourceNamespace)) > 0:
		return fmt.Errorf("--source-namespace is %q, which is not the name of a namespace", o.SourceNamespace)
	case o.Workers < 1:
		return fmt.Errorf("--workers is %d; it must be at least 1", o.Workers)
	case o.QPS < 0:
		return fmt.Errorf("--qps is %v; it must be greater than 0, or 0 for no limit", o.QPS)
	case o.QPS > 0 && o.Burst < 1:
		return fmt.Errorf("--burst is %d; it must be at least 1", o.Burst)
	case o.Backoff <= 0:
		return fmt.Errorf("--backoff is %s; it must be greater than 0", o.Backoff)
	case o.MaxBackoff < o.Backoff:
		return fmt.Errorf("--max-backoff is %s; it must be at least --backoff, which is %s", o.MaxBackoff, o.Backoff)
	case o.Grace < 0:
		return fmt.Errorf("--grace is %s; it must not be negative", o.Grace)
	}
	return nil
}

// limiter returns the limit of writes; nil for none.
func (o Options) limiter() flowcontrol.RateLimiter {
	if o.QPS == 0 {
		return nil
	}
	return flowcontrol.NewTokenBucketRateLimiter(o.QPS, o.Burst)
}

// DefaultNamespaces is the selector of namespaces that get copies unless another is given.
const DefaultNamespaces = CopiesLabel + "=true"

// ParseNamespaces parses the selector of the namespaces that get copies. An empty one is an error, because it would select
// every namespace of the cluster.
func ParseNamespaces(text string) (Selector, error) {
	if strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("it is empty, which would select all namespaces; to select all but those of the system, use \"kubernetes.io/metadata.name notin (kube-system, kube-public, kube-node-lease)\"")
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a label selector: %w", text, err)
	}
	return selector, nil
}
