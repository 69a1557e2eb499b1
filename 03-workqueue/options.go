package workqueue

import (
	"errors"
	"fmt"
	"time"
)

// Options configure a Controller.
type Options struct {
	Namespace  string        // the only namespace in which Pods are watched and deleted
	Workers    int           // number of Pods reconciled concurrently; at least 1
	Backoff    time.Duration // delay before a key's first retry; doubles with each further failure
	MaxBackoff time.Duration // upper bound of that delay
	WarnAfter  int           // number of failures in a row after which an Event is written; 0 for never
	Grace      time.Duration // how long in-flight work may continue after Run's context is cancelled
}

// Validate returns an error that names the first invalid option and its allowed values.
func (o Options) Validate() error {
	switch {
	case o.Namespace == "":
		return errors.New("--namespace is missing; name the namespace whose Pods may be deleted")
	case o.Workers < 1:
		return fmt.Errorf("--workers is %d; it must be at least 1", o.Workers)
	case o.Backoff <= 0:
		return fmt.Errorf("--backoff is %s; it must be greater than 0", o.Backoff)
	case o.MaxBackoff < o.Backoff:
		return fmt.Errorf("--max-backoff is %s; it must be at least --backoff, which is %s", o.MaxBackoff, o.Backoff)
	case o.WarnAfter < 0:
		return fmt.Errorf("--warn-after is %d; it must not be negative", o.WarnAfter)
	case o.Grace < 0:
		return fmt.Errorf("--grace is %s; it must not be negative", o.Grace)
	}
	return nil
}
