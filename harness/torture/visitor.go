package torture

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

// Visitor is a person who changes objects with kubectl during an [Exploration].
type Visitor struct {
	// Kubeconfig is the path of the kubeconfig for the person, with an administrator's rights.
	Kubeconfig string

	proxy     *apiproxy.Proxy
	recording history.Memory
	run       *run
}

// Written is a change that somebody has made.
type Written struct {
	Verb        string // create, update, patch or delete
	Resource    string // as in [Scenario.Resources]
	Subresource string
	Namespace   string
	Name        string
	// Old and New are the object before and after; nil if it did not exist, or if its resource is none of the scenario's. They must not
	// be modified.
	Old, New oracle.Object
}

// Admit lets a person in, until [Visitor.Leave].
func (e *Exploration) Admit(ctx context.Context) (v *Visitor, err error) {
	v = &Visitor{Kubeconfig: filepath.Join(e.run.scratch, "visitor.kubeconfig"), run: e.run}
	upstream, err := e.run.controlPlane.cluster.Config()
	if err != nil {
		return nil, err
	}
	if v.proxy, err = apiproxy.Start(context.WithoutCancel(ctx), apiproxy.Options{Upstream: upstream, Record: v.recording.Record}); err != nil {
		return nil, err
	}
	if err := cluster.WriteKubeconfig(v.Kubeconfig, v.proxy.Config(), e.run.namespace); err != nil {
		return nil, errors.Join(err, v.proxy.Stop())
	}
	return v, nil
}

// Leave ends the visit.
func (v *Visitor) Leave() error { return v.proxy.Stop() }

// Written returns the changes that the person has made so far, in order. Our own watches have shown them if the exploration has settled.
func (v *Visitor) Written() (all []Written) {
	changes := map[string]oracle.Change{} // by resource and resourceVersion
	_ = v.run.states.Each(func(_ oracle.State, c oracle.Change) error {
		version, _ := get[string](c.New, "metadata", "resourceVersion")
		changes[c.Resource+" "+version] = c
		return nil
	})
	for _, q := range v.recording.History().Requests {
		if !q.IsWrite() || q.Failed() || q.DryRun || q.NoOp || !slices.Contains([]string{"create", "update", "patch", "delete"}, q.Verb) || q.Name == "" && q.Verb != "create" {
			continue
		}
		w := Written{Verb: q.Verb, Resource: q.Resource, Subresource: q.Subresource, Namespace: q.Namespace, Name: q.Name}
		if q.Group != "" {
			w.Resource += "." + q.Group
		}
		if c, known := changes[q.Resource+" "+q.RVAfter]; known && q.Verb != "delete" {
			w.Old, w.New = c.Old, c.New
			w.Name, _ = get[string](c.New, "metadata", "name")
		}
		all = append(all, w)
	}
	return all
}

// get returns a value in an object.
func get[T any](o oracle.Object, path ...string) (value T, ok bool) {
	var at any = o
	for _, key := range path {
		in, is := at.(map[string]any)
		if !is {
			return value, false
		}
		at = in[key]
	}
	value, ok = at.(T)
	return value, ok
}
