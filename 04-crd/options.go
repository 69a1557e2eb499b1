package crd

import (
	"errors"
	"fmt"
	"time"
)

// Options configure a Controller. All but Grace are required.
type Options struct {
	Namespace  string        // the controller reconciles the Networks of this namespace only
	Workers    int           // how many Networks are reconciled concurrently
	Backoff    time.Duration // wait before the first retry of a failed Network; doubles with each further failure
	MaxBackoff time.Duration // upper limit of that wait
	Recheck    time.Duration // interval, plus or minus a fifth, of the checks of a ready Network for drift, and of the sweep for orphans
	Grace      time.Duration // how long in-flight work may continue after Run is told to stop
}

// Validate returns an error that names the flag to change, and to what.
func (o Options) Validate() error {
	switch {
	case o.Namespace == "":
		return errors.New("--namespace is missing; name the namespace of the Networks")
	case o.Workers < 1:
		return fmt.Errorf("--workers is %d; it must be at least 1", o.Workers)
	case o.Backoff <= 0:
		return fmt.Errorf("--backoff is %s; it must be more than 0", o.Backoff)
	case o.MaxBackoff < o.Backoff:
		return fmt.Errorf("--max-backoff is %s; it must not be less than --backoff, %s", o.MaxBackoff, o.Backoff)
	case o.Recheck <= 0:
		return fmt.Errorf("--recheck is %s; it must be more than 0", o.Recheck)
	case o.Grace < 0:
		return fmt.Errorf("--grace is %s; it must not be less than 0", o.Grace)
	}
	return nil
}
