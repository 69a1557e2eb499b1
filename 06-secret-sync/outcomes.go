package secretsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
)

// State is the state of a copy, as its last reconcile found it.
type State string

// The states.
const (
	Current State = "current" // it is equal to its source
	Pending State = "pending" // a write is needed, or has failed
	Refused State = "refused" // it cannot exist; see Reason
)

// States has all states.
var States = []State{Current, Pending, Refused}

// outcome is what the last reconcile of a key has found.
type outcome struct {
	state    State
	refusals []Refusal
}

// toldOf identifies a version of a source about whose problem an Event has been written.
type toldOf struct {
	uid     types.UID
	version string
}

// outcomes has the outcome for each key at which there is a copy or should be one.
type outcomes struct {
	mu    sync.Mutex
	byKey map[cache.ObjectName]outcome
	// told holds, by the name of a source, the last version about whose own problem an Event has been written.
	told map[string]toldOf
}

func newOutcomes() *outcomes {
	return &outcomes{byKey: map[cache.ObjectName]outcome{}, told: map[string]toldOf{}}
}

// set remembers an outcome, and returns the refusals that are new. An outcome without a state is forgotten.
func (o *outcomes) set(key cache.ObjectName, now outcome) (fresh []Refusal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.byKey[key]
	for _, refusal := range now.refusals {
		isKnown := slices.ContainsFunc(before.refusals, func(other Refusal) bool {
			return other.Source.UID == refusal.Source.UID && other.Problem == refusal.Problem
		})
		if !isKnown {
			fresh = append(fresh, refusal)
		}
	}
	if now.state == "" {
		delete(o.byKey, key)
	} else {
		o.byKey[key] = now
	}
	return fresh
}

// isNews reports whether a refusal needs an Event. A problem of the source itself gets one Event, and not one for each
// namespace. A namespace that is being deleted needs none.
func (o *outcomes) isNews(refusal Refusal) bool {
	source := refusal.Source
	if source.Problem == nil {
		return refusal.Reason != NamespaceTerminating
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := toldOf{source.UID, source.secret.ResourceVersion}
	if o.told[source.Name] == now {
		return false
	}
	o.told[source.Name] = now
	return true
}

// forget removes a source that no longer exists.
func (o *outcomes) forget(source string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.told, source)
}

// counts returns the number of keys by state, and of refusals by reason.
func (o *outcomes) counts() (byState map[State]int, byReason map[Reason]int) {
	byState, byReason = map[State]int{}, map[Reason]int{}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.byKey {
		byState[one.state]++
		for _, refusal := range one.refusals {
			byReason[refusal.Reason]++
		}
	}
	return byState, byReason
}

// report records the outcome of a reconcile, and writes Events about new refusals.
func (c *Controller) report(ctx context.Context, in Input, decision Decision, err error) {
	now := outcome{refusals: decision.Refusals}
	var failed *WriteError
	switch {
	case errors.As(err, &failed) && failed.gone && failed.Reason != NamespaceTerminating:
		err = nil // nothing is behind: there is nothing to write to
	case err != nil && decision.Source != nil && failed != nil && failed.Reason != Failing:
		now.state = Refused
		now.refusals = append(now.refusals, Refusal{decision.Source, Problem{failed.Reason, failed.Detail}})
	case err != nil:
		now.state = Pending
	case decision.Source == nil && len(decision.Refusals) > 0 || slices.ContainsFunc(decision.Refusals, func(r Refusal) bool { return r.Source == decision.Source }):
		now.state = Refused
	case decision.Source != nil:
		now.state = Current
	}
	if err == nil || now.state == Refused {
		c.pending.end(in.Key)
	}
	for _, refusal := range c.outcomes.set(in.Key, now) {
		c.metrics.refusals.WithLabelValues(string(refusal.Reason)).Inc()
		klog.FromContext(ctx).V(1).Info("Refused", "source", refusal.Source.Name, "reason", refusal.Reason, "message", refusal.Message)
		if c.outcomes.isNews(refusal) {
			// The Event is about the source, so the controller needs no permission to write Events in other namespaces. The
			// related object keeps the Events of different namespaces apart.
			var related runtime.Object
			if refusal.Source.Problem == nil {
				related = &corev1.Secret{
					TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
					ObjectMeta: metav1.ObjectMeta{Namespace: in.Key.Namespace, Name: in.Key.Name},
				}
			}
			c.recorder.Eventf(refusal.Source.reference(), related, corev1.EventTypeWarning, string(refusal.Reason), "Copy", "Not copied to %s: %s", in.Key, refusal.Message)
		}
	}
}

// maxNote is how many bytes the note of an Event has at most. The API server refuses a longer one, and client-go drops it then.
const maxNote = 1024

// shortNotes is a recorder that shortens the notes of Events that are too long.
type shortNotes struct{ events.EventRecorder }

// Eventf records an Event.
func (r shortNotes) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	text := fmt.Sprintf(note, args...)
	const ellipsis = "…"
	if len(text) > maxNote {
		text = strings.ToValidUTF8(text[:maxNote-len(ellipsis)], "") + ellipsis // it may have cut a character in two
	}
	r.EventRecorder.Eventf(regarding, related, eventType, reason, action, "%s", text)
}

// nameOrNone returns the name of a source, for the log; "" if there is none.
func (s *Source) nameOrNone() string {
	if s == nil {
		return ""
	}
	return s.Name
}

// reference returns the source for an Event, without its data.
func (s *Source) reference() *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.secret.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.secret.ResourceVersion},
	}
}

// pending records since when each key has been waiting for a successful reconcile.
type pending struct {
	mu   sync.Mutex
	keys map[cache.ObjectName]time.Time
}

func newPending() *pending { return &pending{keys: map[cache.ObjectName]time.Time{}} }

func (p *pending) start(key cache.ObjectName, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, waits := p.keys[key]; !waits {
		p.keys[key] = now
	}
}

func (p *pending) end(key cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.keys, key)
}

// since returns since when a key has been waiting; the zero time if it is not.
func (p *pending) since(key cache.ObjectName) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys[key]
}

// oldest returns since when the oldest key has been waiting; the zero time if none is.
func (p *pending) oldest() (oldest time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, since := range p.keys {
		if oldest.IsZero() || since.Before(oldest) {
			oldest = since
		}
	}
	return oldest
}
