package workqueue

import (
	"errors"
	"fmt"
	"time"
)

// Options are what a person may choose.
type Options struct {
	Namespace  string        // the only namespace whose Pods are deleted
	Workers    int           // how many Pods are looked at, at the same time; at least 1
	Backoff    time.Duration // the wait before a Pod is tried again; it doubles each time
	MaxBackoff time.Duration // the longest wait
	WarnAfter  int           // how often a Pod has failed when an Event says so; 0 for never
	Grace      time.Duration // how long Run may take to finish what it is at, when it is told to stop
	TrustCache bool          // act on a cache that has not seen our own writes: a mistake, to be looked at
}

// Validate returns an error that says what has to be chosen differently.
func (o Options) Validate() error {
	switch {
	case o.Namespace == "":
		return errors.New("--namespace is missing; name the namespace whose Pods may be deleted")
	case o.Workers < 1:
		return fmt.Errorf("--workers is %d; without at least 1, nothing is done", o.Workers)
	case o.Backoff <= 0:
		return fmt.Errorf("--backoff is %s; it must be more than 0", o.Backoff)
	case o.MaxBackoff < o.Backoff:
		return fmt.Errorf("--max-backoff is %s; it must not be less than --backoff, %s", o.MaxBackoff, o.Backoff)
	case o.WarnAfter < 0:
		return fmt.Errorf("--warn-after is %d; it must not be less than 0", o.WarnAfter)
	case o.Grace < 0:
		return fmt.Errorf("--grace is %s; it must not be less than 0", o.Grace)
	}
	return nil
}
