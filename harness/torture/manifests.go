package torture

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/manifest"
)

// placeholder stands for the namespace of a run in the rendered manifests.
const placeholder = "torture-placeholder"

// render returns the manifests as YAML, for the namespace placeholder.
func (s *Scenario) render(ctx context.Context, kubectl, scratch string) (string, error) {
	if len(s.Manifests) == 0 {
		return "", nil
	}
	var paths []string
	for _, m := range s.Manifests {
		paths = append(paths, s.file(m))
	}
	dir, err := os.MkdirTemp(scratch, "kustomize-")
	if err != nil {
		return "", err
	}
	if s.isCluster() { // objects stay in the namespaces that they name
		err = manifest.Collect(dir, paths...)
	} else {
		err = manifest.Overlay(dir, placeholder, paths...)
	}
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(kubectl, "kubectl"), "kustomize", "--load-restrictor=LoadRestrictionsNone", dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("read the scenario's manifests: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// clients are administrator's clients of a control plane.
type clients struct {
	kubernetes.Interface
	dynamic dynamic.Interface
	config  *rest.Config // that they were made from
	alone   bool         // no other run uses the control plane, now or later
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newClients(c *cluster.Cluster, warnings rest.WarningHandler) (*clients, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	config.WarningHandler = warnings
	k := clients{config: config}
	if k.Interface, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if k.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	k.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(k.Discovery()))
	return &k, nil
}

// watcher returns a client with a connection of its own, and a function that closes it. An API server serves 100 requests at a
// time on a connection, which the watches of many runs exceed. Go's HTTP/2 client then opens another, but not always in time
// (golang/go#47635).
func (k *clients) watcher() (dynamic.Interface, func(), error) {
	config := rest.CopyConfig(k.config)
	config.Dial = new(net.Dialer).DialContext // client-go shares the connections of configurations without one
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, err
	}
	watcher, err := dynamic.NewForConfigAndClient(config, client)
	return watcher, client.CloseIdleConnections, err
}

// servedTimeout is how long it may take until a resource that was just defined is served. A test makes it shorter.
var servedTimeout = 10 * time.Second

// find returns the resource that a name such as "deployments.apps" stands for. It waits for one that was only just
// defined.
func (k *clients) find(ctx context.Context, name string) (found resource, err error) {
	wanted := schema.ParseGroupResource(name).WithVersion("")
	var failed error
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, servedTimeout, true, func(context.Context) (bool, error) {
		if found, failed = k.lookUp(wanted); failed != nil {
			k.mapper.Reset()
		}
		return failed == nil, nil
	})
	if err != nil {
		return found, fmt.Errorf("resource %q: %w; name it by its plural and group, such as deployments.apps", name, failed)
	}
	return found, nil
}

// resource is a resource of the API server.
type resource struct {
	schema.GroupVersionResource
	namespaced bool
}

func (k *clients) lookUp(wanted schema.GroupVersionResource) (resource, error) {
	found, err := k.mapper.ResourceFor(wanted)
	if err != nil {
		return resource{}, err
	}
	kind, err := k.mapper.KindFor(found)
	if err != nil {
		return resource{}, err
	}
	mapping, err := k.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return resource{}, err
	}
	return resource{found, mapping.Scope.Name() == meta.RESTScopeNameNamespace}, nil
}

// of returns a client for the objects of a resource: those in a namespace, or those without one.
func (k *clients) of(r resource, namespace string) dynamic.ResourceInterface {
	if !r.namespaced {
		return k.dynamic.Resource(r.GroupVersionResource)
	}
	return k.dynamic.Resource(r.GroupVersionResource).Namespace(namespace)
}

const fieldManager = "workshop-torture"

// applyManifests applies the objects of a YAML text, in order, in the run's namespace. Before them, it applies the
// CustomResourceDefinitions, unless another run on this control plane has.
func (p *controlPlane) applyManifests(ctx context.Context, text, namespace string) error {
	definitions, others, err := decodeManifests(text, namespace)
	if err != nil {
		return err
	}
	for _, definition := range definitions {
		key, err := json.Marshal(definition)
		if err != nil {
			return err
		}
		err = p.definitions.do(string(key), func() error {
			_, err := p.clients.applyOne(ctx, definition, namespace)
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, object := range others {
		if _, err := p.clients.applyOne(ctx, object, namespace); err != nil {
			return err
		}
	}
	return nil
}

// decodeManifests returns the objects of a YAML text for a run in a namespace: CustomResourceDefinitions, and others. The definitions, which
// runs share, are the same for each namespace, even if they name the Service of a webhook.
func decodeManifests(text, namespace string) (definitions, others []*unstructured.Unstructured, err error) {
	documents := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var object unstructured.Unstructured
		switch err := documents.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return definitions, others, nil
		case err != nil:
			return nil, nil, fmt.Errorf("read the scenario's manifests: %w", err)
		case len(object.Object) == 0:
		case object.GetKind() == "CustomResourceDefinition":
			definitions = append(definitions, &object)
		default:
			data, err := json.Marshal(object.Object)
			if err != nil {
				return nil, nil, err
			}
			var own unstructured.Unstructured
			if err := json.Unmarshal(bytes.ReplaceAll(data, []byte(placeholder), []byte(namespace)), &own.Object); err != nil {
				return nil, nil, err
			}
			others = append(others, &own)
		}
	}
}

// once does things that are to be done once. Its zero value has not done any.
type once struct {
	mu   sync.Mutex
	done map[string]bool
}

// do calls f, unless it has done so for this key without an error.
func (o *once) do(key string, f func() error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done[key] {
		return nil
	}
	if err := f(); err != nil {
		return err
	}
	if o.done == nil {
		o.done = map[string]bool{}
	}
	o.done[key] = true
	return nil
}

func (k *clients) applyOne(ctx context.Context, object *unstructured.Unstructured, namespace string, subresources ...string) (result applied, err error) {
	kind := object.GroupVersionKind()
	object = object.DeepCopy() // other runs use it too
	var failed error
	// It takes a moment until a resource is served that was only just defined.
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, servedTimeout, true, func(ctx context.Context) (bool, error) {
		earlier := failed
		mapping, err := k.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if failed = err; err != nil {
			k.mapper.Reset()
			return false, nil
		}
		if failed = k.checkScope(mapping.Resource, mapping.Scope.Name() == meta.RESTScopeNameNamespace, object.GetName(), namespace); failed != nil {
			return false, failed
		}
		var client dynamic.ResourceInterface = k.dynamic.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			object.SetNamespace(cmp.Or(object.GetNamespace(), namespace))
			client = k.dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace())
		}
		answer, err := client.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}, subresources...)
		failed = err
		if err != nil && ctx.Err() != nil && earlier != nil { // when the time is over, that says more
			failed = earlier
		}
		if err == nil {
			result = applied{mapping.Resource.Resource, answer.GetResourceVersion()}
		}
		return failed == nil, nil
	})
	if err != nil {
		return result, fmt.Errorf("apply %s %s: %w%s", kind.Kind, object.GetName(), errors.Join(failed, context.Cause(ctx)), namespaceHint(object, namespace, k.alone, failed))
	}
	return result, nil
}

// namespaceHint says what to do if an object could not be applied because its namespace, which is not the run's, does not exist.
func namespaceHint(object *unstructured.Unstructured, namespace string, isCluster bool, err error) string {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) || status.Status().Details == nil || status.Status().Details.Kind != "namespaces" || object.GetNamespace() == namespace {
		return ""
	}
	if isCluster {
		return fmt.Sprintf("; add the Namespace %s to the manifests", object.GetNamespace())
	}
	return fmt.Sprintf("; each run has a namespace of its own, here %s: leave out metadata.namespace, write {namespace} there in a step, or put \"namespace: %s\" into the scenario", namespace, object.GetNamespace())
}

// ErrShared is part of an error that says that runs on one control plane would share an object.
var ErrShared = errors.New("not in a namespace")

// checkScope returns an error for an object that all runs on a control plane would share. A run has a namespace of its own, its
// ClusterRoles and ClusterRoleBindings have names of their own, and CustomResourceDefinitions may be shared.
func (k *clients) checkScope(of schema.GroupVersionResource, namespaced bool, name, namespace string) error {
	isOwn := of.Group == "" && of.Resource == "namespaces" && name == namespace
	if namespaced || k.alone || isOwn || of.Group == rbacv1.GroupName || of.Group == "apiextensions.k8s.io" {
		return nil
	}
	return fmt.Errorf("%s are %w, so that runs would share them: write \"scope: cluster\" in the scenario, which gives each run a control plane of its own", of.GroupResource(), ErrShared)
}

// applied is the state of an object after a write of ours.
type applied struct{ resource, resourceVersion string }
