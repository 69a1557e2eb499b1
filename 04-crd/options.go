package crd

import (
	"errors"
	"fmt"
	"time"
)

// Options are what a person may choose.
type Options struct {
	Namespace  string        // the only namespace whose Networks are looked at
	Workers    int           // how many Networks are looked at, at the same time; at least 1
	Backoff    time.Duration // the wait before a Network is tried again; it doubles each time
	MaxBackoff time.Duration // the longest wait
	Recheck    time.Duration // how long after a Network was found well it is looked at again, and for what is left of others, give or take a fifth
	Grace      time.Duration // how long Run may take to finish what it is at, when it is told to stop
}

// Validate returns an error that says what has to be chosen differently.
func (o Options) Validate() error {
	switch {
	case o.Namespace == "":
		return errors.New("--namespace is missing; name the namespace of the Networks")
	case o.Workers < 1:
		return fmt.Errorf("--workers is %d; without at least 1, nothing is done", o.Workers)
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
