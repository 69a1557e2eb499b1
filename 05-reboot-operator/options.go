package reboot

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Options configure a Controller.
type Options struct {
	Policy
	Namespace string // of the ledger
	Ledger    string // name of a ConfigMap, in which reboots can also be paused
	// OwnPod is the Pod that the controller runs in, as namespace/name, which it does not evict; "" if unknown.
	OwnPod string
	// BlockingPods selects Pods, in all namespaces, whose Nodes are not rebooted while they run; nil for none.
	BlockingPods labels.Selector

	DrainTimeout  time.Duration // after which a drain is given up
	AgentTimeout  time.Duration // within which the agent must act on a drained Node
	RebootTimeout time.Duration // after which a Node that has not come back is reported
	// RetryInterval is how long a Node waits after an attempt that was given up, or that the API server refused. It doubles with
	// each attempt in a row that was given up, up to MaxRetryInterval.
	RetryInterval    time.Duration
	MaxRetryInterval time.Duration
	// DeleteUnmanagedPods also evicts Pods that no controller owns and would create again. Without it, such a Pod keeps its
	// Node from being drained.
	DeleteUnmanagedPods bool

	Workers    int           // number of Nodes handled concurrently; at least 1
	Backoff    time.Duration // delay before the first retry of a request; doubles with each further failure
	MaxBackoff time.Duration // upper bound of that delay
	Grace      time.Duration // how long requests may continue after Run's context is cancelled
}

// Validate returns an error that names the first invalid option and its allowed values.
func (o Options) Validate() error {
	if o.TopologyKey == "" && o.MaxPerDomain.String() != "1" {
		return errors.New("--max-unavailable-per-domain has no effect without --topology-key; name the label, such as topology.kubernetes.io/zone")
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"--drain-timeout", o.DrainTimeout}, {"--agent-timeout", o.AgentTimeout}, {"--reboot-timeout", o.RebootTimeout},
		{"--retry-interval", o.RetryInterval}, {"--backoff", o.Backoff},
	} {
		if d.value <= 0 {
			return fmt.Errorf("%s is %s; it must be greater than 0", d.flag, d.value)
		}
	}
	switch {
	case o.Namespace == "":
		return errors.New("--namespace is missing; name the namespace of the ConfigMap in which slots are recorded")
	case o.Ledger == "":
		return errors.New("--ledger is missing; name the ConfigMap in which slots are recorded")
	case o.MaxRetryInterval < o.RetryInterval:
		return fmt.Errorf("--max-retry-interval is %s; it must be at least --retry-interval, which is %s", o.MaxRetryInterval, o.RetryInterval)
	case o.Workers < 1:
		return fmt.Errorf("--workers is %d; it must be at least 1", o.Workers)
	case o.MaxBackoff < o.Backoff:
		return fmt.Errorf("--max-backoff is %s; it must be at least --backoff, which is %s", o.MaxBackoff, o.Backoff)
	case o.Grace < 0:
		return fmt.Errorf("--grace is %s; it must not be negative", o.Grace)
	}
	return nil
}

// retryWait returns how long a Node waits after an attempt that was given up, if that many before it were, too.
func (o Options) retryWait(failures int) time.Duration {
	return time.Duration(min(float64(o.MaxRetryInterval), float64(o.RetryInterval)*math.Pow(2, float64(failures))))
}

// ParseMaxUnavailable parses a limit: a number that is at least 1, or a percentage from 1% to 100%.
func ParseMaxUnavailable(text string) (intstr.IntOrString, error) {
	number, isPercentage := strings.CutSuffix(text, "%")
	n, err := strconv.ParseInt(number, 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return intstr.IntOrString{}, fmt.Errorf("%q is too large; it must be at most %d", text, math.MaxInt32)
	case err != nil:
		return intstr.IntOrString{}, fmt.Errorf("%q is neither a number nor a percentage, such as 1 or 10%%", text)
	case n < 1:
		return intstr.IntOrString{}, fmt.Errorf("%q would never let a Node reboot; it must be at least 1; to pause all reboots, use \"kubectl reboot pause\"", text)
	case isPercentage && n > 100:
		return intstr.IntOrString{}, fmt.Errorf("%q is more than all Nodes; it must be at most 100%%", text)
	case isPercentage:
		return intstr.FromString(fmt.Sprintf("%d%%", n)), nil
	}
	return intstr.FromInt32(int32(n)), nil
}
