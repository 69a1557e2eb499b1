package torture

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/oracle"
)

// world is what the programs of a run act on: the control plane, the run's objects there, and what is outside of the cluster.
type world struct {
	*subject
	number       int64 // of the run, unique in the Lab
	controlPlane *controlPlane
	namespace    string
	resources    []resource     // of the scenario, in its order
	states       *oracle.States // of those resources
	outside      []*outside
}

// prepareObjects applies the manifests and finds the scenario's resources.
func (w *world) prepareObjects(ctx context.Context) error {
	if err := w.controlPlane.applyManifests(ctx, w.manifests, w.namespace); err != nil {
		return err
	}
	for _, name := range w.scenario.Resources {
		resource, err := w.controlPlane.clients.find(ctx, name)
		if err == nil {
			err = w.controlPlane.clients.checkScope(resource.GroupVersionResource, resource.namespaced, "", w.namespace)
		}
		if err != nil {
			return err
		}
		w.resources = append(w.resources, resource)
	}
	return nil
}

func gvrs(resources []resource) (all []schema.GroupVersionResource) {
	for _, r := range resources {
		all = append(all, r.GroupVersionResource)
	}
	return all
}

// upstream returns the configuration that the proxy of a program with this account uses.
func (w *world) upstream(ctx context.Context, account string) (*rest.Config, error) {
	if account == "" {
		upstream, err := w.controlPlane.cluster.Config()
		if err == nil {
			upstream.QPS = 0 // client-go's default limit, which the program has too
		}
		return upstream, err
	}
	namespace, name := w.qualify(account)
	return w.controlPlane.cluster.ServiceAccountConfig(ctx, namespace, name)
}

// qualify returns the namespace and the name of an account.
func (w *world) qualify(account string) (namespace, name string) {
	namespace, name, ok := strings.Cut(account, "/")
	if !ok {
		return w.namespace, account
	}
	return namespace, name
}

// scope returns which objects belong to the run.
func (w *world) scope() oracle.Scope {
	return oracle.Scope{Namespace: w.namespace, Cluster: w.scenario.isCluster(), Names: w.scenario.names}
}

// state returns the latest state of the cluster and of what is outside of it, and a channel that is closed when the
// cluster changes.
func (w *world) state(ctx context.Context) (oracle.State, <-chan struct{}, error) {
	state, changed := w.states.Now()
	for _, o := range w.outside {
		if err := o.list(ctx, state); err != nil {
			return nil, nil, err
		}
	}
	return state, changed, nil
}

// normalized returns the present state, without what differs between any two runs.
func (w *world) normalized(ctx context.Context) ([]string, error) {
	state, _, err := w.state(ctx)
	if err != nil {
		return nil, err
	}
	return oracle.Normalize(state, w.scope(), w.scenario.mayDiffer), nil
}

// isIncidental reports whether requests for a resource are not the controller's job: those for Events and Leases, unless
// the scenario names them.
func (w *world) isIncidental(resource string) bool {
	return (resource == "events" || resource == "leases") && !slices.Contains(w.scenario.plurals(), resource)
}

func (w *world) stopOutside() (err error) {
	for _, o := range w.outside {
		err = errors.Join(err, o.stop())
	}
	w.outside = nil
	return err
}
