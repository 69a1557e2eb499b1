package reboot

import (
	"errors"
	"fmt"
	"math"
	"time"

	"example.com/controllers/reboot/drain"
	"example.com/controllers/reboot/policy"
	"k8s.io/apimachinery/pkg/labels"
)

// Options configure a Controller.
type Options struct {
	policy.Policy
	drain.Rules

	Namespace string // of the ledger
	Ledger    string // name of a ConfigMap, in which reboots can also be paused
	// AgentPods selects the agents' Pods in AgentNamespace. A Node on which none of them runs is not admitted. nil for no such check.
	AgentPods      labels.Selector
	AgentNamespace string

	DrainTimeout  time.Duration // after which a drain is given up
	AgentTimeout  time.Duration // within which the agent must act on a drained Node
	RebootTimeout time.Duration // after which a Node that has not come back is reported
	// RetryInterval is how long a Node waits after an attempt that was given up, or that the API server refused. It doubles with
	// each attempt in a row that was given up, up to MaxRetryInterval.
	RetryInterval    time.Duration
	MaxRetryInterval time.Duration

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
	case o.PauseAfterReboot < 0:
		return fmt.Errorf("--pause-after-reboot is %s; it must not be negative", o.PauseAfterReboot)
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
