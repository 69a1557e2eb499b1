package agent

import (
	"errors"
	"fmt"
	"time"
)

// Options configure an Agent.
type Options struct {
	NodeName string // of the Node that this machine is
	BootID   BootIDSource
	Rebooter Rebooter
	Sentinel *Sentinel // nil if the machine itself cannot ask for a reboot
	// RebootRetry is how long the agent waits for the machine to go down before it asks for the reboot again.
	RebootRetry time.Duration
	Backoff     time.Duration // delay before the first retry of a request; doubles with each further failure
	MaxBackoff  time.Duration // upper bound of that delay
}

// Validate returns an error that names the first invalid option and its allowed values.
func (o Options) Validate() error {
	switch {
	case o.NodeName == "":
		return errors.New("--node-name is missing, and so is NODE_NAME in the environment; in a Pod, set it from spec.nodeName")
	case o.RebootRetry <= 0:
		return fmt.Errorf("--reboot-retry is %s; it must be greater than 0", o.RebootRetry)
	case o.Backoff <= 0:
		return fmt.Errorf("--backoff is %s; it must be greater than 0", o.Backoff)
	case o.MaxBackoff < o.Backoff:
		return fmt.Errorf("--max-backoff is %s; it must be at least --backoff, which is %s", o.MaxBackoff, o.Backoff)
	}
	return nil
}
