package draft

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"example.com/controllers/harness/oracle"
	"example.com/controllers/harness/torture"
)

// player takes steps, and notes what the controller comes to.
type player struct {
	*drafter
	e       *torture.Exploration
	steps   []torture.Step
	states  []moment
	touched map[string]field // what others have changed, by its name
	objects map[target]bool  // what others have created or deleted
	mine    []target         // what the controller has written
	drifted map[string]bool  // fields that a step has changed, and that the controller has repaired
	dropped map[string]bool  // objects and fields that nobody has repaired
}

type moment struct {
	after string
	state oracle.State
}

type field struct {
	target
	path fieldPath
}

func (f field) String() string { return f.target.String() + ": " + f.path.String() }

// play runs the controller once more, this time with the resources that count, and changes one thing after the other.
func (d *drafter) play(ctx context.Context) error {
	d.say("run 2: what it comes to, and what it does if somebody changes that")
	p := &player{drafter: d, touched: map[string]field{}, objects: map[target]bool{}, drifted: map[string]bool{}, dropped: map[string]bool{}}
	return d.explore(ctx, func(ctx context.Context, e *torture.Exploration) error {
		p.e = e
		return p.playAll(ctx)
	})
}

func (p *player) playAll(ctx context.Context) error {
	if err := p.settle(ctx, "the start"); err != nil {
		return err
	}
	samples, err := p.samplesFor(ctx, p.e)
	if err != nil {
		return err
	}
	for _, step := range samples {
		for _, a := range step.Do {
			t, err := p.targetOf(a.Apply) // of an action on a status, too
			if err != nil {
				return err
			}
			p.objects[t] = true
		}
		if err := p.take(ctx, step); err != nil {
			return err
		}
	}
	if p.Meanwhile > 0 {
		if err := p.meanwhile(ctx); err != nil {
			return err
		}
	}
	p.mine = p.made()
	if err := p.drift(ctx); err != nil {
		return err
	}
	if err := p.changeInputs(ctx); err != nil {
		return err
	}
	if err := p.changeWhileDown(ctx); err != nil {
		return err
	}
	if err := p.recreate(ctx, samples); err != nil {
		return err
	}
	if err := p.checkWrites(); err != nil {
		return err
	}
	ports, err := p.e.Ports(ctx)
	if err != nil {
		return err
	}
	p.listening = slices.DeleteFunc(p.listening, func(port string) bool { return !slices.Contains(ports, port) })
	p.conclude()
	ending := p.e.Stop()
	switch {
	case ending.Problem == "":
	case ending.Status < 0:
		p.scenario.stopsWith = -1
		p.note("The controller does not handle SIGTERM, which ends it at once. The scenario accepts that (stopsWith).")
	case ending.Status > 0:
		p.scenario.stopsWith = -1
		p.note("The controller exits with status %d after SIGTERM. The scenario accepts that (stopsWith).", ending.Status)
	default:
		p.note("After SIGTERM: %s. Torture will call that a failure.", ending.Problem)
	}
	return nil
}

// checkWrites returns an error for a controller that has done nothing.
func (p *player) checkWrites() error {
	var failed []string
	for _, q := range p.e.History().Requests {
		switch {
		case !q.IsWrite() || neverCounted(q):
		case !q.Failed():
			return nil
		default:
			failed = append(failed, fmt.Sprintf("%s %s: %d", q.Verb, q.What(), q.Status))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("nothing that the controller wrote was accepted: %s", strings.Join(slices.Compact(failed), ", "))
	}
	what := "give it objects that it works on, with --sample or --manifest"
	if len(p.given.samples) > 0 {
		what = "the samples are not what it works on, or it looks for them in another namespace than " + p.e.Namespace() + " ({namespace} in a sample)"
	}
	return fmt.Errorf("the controller has written nothing, so nothing of it can be put to torture: %s; the end of its output:\n%s", what, tail(p.e.Log()))
}

// take takes a step that belongs to the scenario.
func (p *player) take(ctx context.Context, step torture.Step) error {
	if err := p.do(ctx, step); err != nil {
		return err
	}
	p.steps = append(p.steps, step)
	return nil
}

// do takes a step, waits, and notes what it came to.
func (p *player) do(ctx context.Context, step torture.Step) error {
	p.say("  %s", step.Name)
	if err := p.e.Do(ctx, step); err != nil {
		return err
	}
	return p.settle(ctx, step.Name)
}

// longestDeletion is how long objects are waited for that are being deleted. The garbage collector may learn of a resource that was only
// just defined half a minute later.
const longestDeletion = 45 * time.Second

// isDeleting reports whether an object is being deleted, or is about to be because its owner is gone.
func (p *player) isDeleting(state oracle.State) bool {
	gone := map[types.UID]bool{}
	for _, m := range p.states {
		for _, objects := range m.state {
			for _, object := range objects {
				gone[oracle.UID(object)] = true
			}
		}
	}
	for _, objects := range state {
		for _, object := range objects {
			delete(gone, oracle.UID(object))
		}
	}
	for _, objects := range state {
		for _, object := range objects {
			of := unstructured.Unstructured{Object: object}
			isOrphan := slices.ContainsFunc(of.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return gone[owner.UID] })
			if of.GetDeletionTimestamp() != nil || isOrphan {
				return true
			}
		}
	}
	return false
}

func (p *player) settle(ctx context.Context, after string) error {
	begin := time.Now()
	rested, err := p.e.Settle(ctx)
	for p.isDeleting(p.e.State()) && rested && err == nil && time.Since(begin) < longestDeletion {
		rested, err = p.e.Settle(ctx)
	}
	if err != nil {
		return p.ended(p.e, "after "+after, err)
	}
	if !rested {
		p.note("After %s, there were still writes after half a minute.", after)
	}
	p.slowest = max(p.slowest, time.Since(begin))
	p.states = append(p.states, moment{after, p.e.State()})
	p.hasOwners = p.hasOwners || hasDefinedOwner(p.e.State())
	return nil
}

// hasDefinedOwner reports whether an object has an owner of a group that is not Kubernetes' own.
func hasDefinedOwner(state oracle.State) bool {
	for _, objects := range state {
		for _, object := range objects {
			of := unstructured.Unstructured{Object: object}
			if slices.ContainsFunc(of.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
				group, _, isGrouped := strings.Cut(owner.APIVersion, "/")
				return isGrouped && strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
			}) {
				return true
			}
		}
	}
	return false
}

// forget takes the last step back.
func (p *player) forget() {
	p.steps, p.states = p.steps[:len(p.steps)-1], p.states[:len(p.states)-1]
}

func (p *player) targetOf(object oracle.Object) (target, error) {
	of := unstructured.Unstructured{Object: object}
	resource, err := p.e.ResourceOf(of.GroupVersionKind())
	return targetOf(resource, object, p.e.Namespace()), err
}

// components are the field managers of Kubernetes itself, and of what plays its nodes.
var components = []string{torture.FieldManager, "kube-controller-manager", "kube-scheduler", "kube-apiserver", "kubelet", "kwok", "controlplane", "before-first-apply"}

func isController(manager string) bool {
	return !slices.Contains(components, manager) && !isOther(manager)
}

// isOther reports whether a field manager is a person's, or ours.
func isOther(manager string) bool {
	return manager == torture.FieldManager || strings.HasPrefix(manager, "kubectl")
}
