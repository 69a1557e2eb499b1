package secretsync

import (
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"
)

// attempt is a write that succeeded.
type attempt struct {
	action  Action    // of the decision that it carried out
	wants   string    // hash of what the source wanted; "" if there is none
	version string    // resourceVersion of what the API server has stored; "" for a deletion
	at      time.Time // when it was
	repeats int       // how often the same has been done before in short succession
}

// patience is how often the controller does the same to a copy in short succession before it gets slower.
const patience = 3

// attempted remembers a write that succeeded.
func (c *Controller) attempted(key cache.ObjectName, d Decision, version string) {
	now := attempt{action: d.Action, wants: d.wants(), version: version, at: time.Now()}
	if last, ok := c.attempts.Load(key); ok && last.(attempt).sameAs(d) && now.at.Sub(last.(attempt).at) < c.memory() {
		now.repeats = last.(attempt).repeats + 1
	}
	c.attempts.Store(key, now)
}

// forgetAttempt forgets what was done to a copy that is gone, unless that was a moment ago, and may have to be repeated.
func (c *Controller) forgetAttempt(key cache.ObjectName) {
	last, ok := c.attempts.Load(key)
	if !ok {
		return
	}
	if left := c.memory() - time.Since(last.(attempt).at); last.(attempt).action == Delete && left > 0 {
		c.queue.AddAfter(key, left)
		return
	}
	c.attempts.Delete(key)
}

// memory is how long an attempt counts: longer than the longest wait before it is repeated.
func (c *Controller) memory() time.Duration { return 2 * c.MaxBackoff }

// wants returns a hash of what the source wants its copies to have; "" if there is no source.
func (d Decision) wants() string {
	if d.Source == nil {
		return ""
	}
	return d.Source.wants
}

func (a attempt) sameAs(d Decision) bool { return a.action == d.Action && a.wants == d.wants() }

// wait returns how long after an attempt the controller does the same again. At first, it does so at once.
func (c *Controller) wait(last attempt) time.Duration {
	if last.repeats < patience {
		return 0
	}
	wait := c.Backoff
	for range min(last.repeats-patience, 20) {
		wait = min(2*wait, c.MaxBackoff)
	}
	return wait
}

// holdBack returns a decision that does not repeat what has just been done in vain.
//
// If nobody has changed the copy since its last write, and it is not equal to its source now, a mutating webhook has changed the
// write, and will change it again. The controller writes all the same once in MaxBackoff, in case the webhook is gone.
//
// If somebody undoes each write, such as another controller that wants the opposite, the controller does not give up, but it gets
// slower, up to MaxBackoff. hold is then how long it waits.
func (c *Controller) holdBack(in Input, d Decision) (held Decision, hold time.Duration) {
	stored, ok := c.attempts.Load(in.Key)
	if !ok || d.Action == None {
		return d, 0
	}
	last := stored.(attempt)
	if !last.sameAs(d) {
		return d, 0
	}
	if d.Source != nil && in.Copy != nil && last.version == in.Copy.ResourceVersion {
		d.Refusals = append(d.Refusals, Refusal{d.Source, Problem{Mutated, "the API server accepts each write of the copy, but stores something else; a mutating webhook or policy changes it"}})
		if time.Since(last.at) < c.MaxBackoff {
			d.Action, d.Why = None, ""
		}
		return d, 0
	}
	if hold = c.wait(last) - time.Since(last.at); hold <= 0 {
		return d, 0
	}
	if source := in.sourceOf(d); source != nil {
		d.Refusals = append(d.Refusals, Refusal{source, Problem{Contested,
			fmt.Sprintf("somebody undoes each %s of the copy, such as another instance of this controller with another selector; it is repeated with growing delay", d.Action)}})
	}
	d.Action, d.Why = None, ""
	return d, hold
}

// sourceOf returns the source that a decision is about: that of the copy if it is to be deleted; nil if there is none any more.
func (in Input) sourceOf(d Decision) *Source {
	if d.Source != nil {
		return d.Source
	}
	for _, source := range in.Sources {
		if in.Copy != nil && source.Name == in.Copy.Annotations[SourceAnnotation] {
			return source
		}
	}
	return nil
}
