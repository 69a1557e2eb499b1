package torture

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"example.com/controllers/harness/history"
)

// otherRun returns the namespace of another run that a message names, or "". What comes of runs that meet says nothing about the controller.
func (w *world) otherRun(message string) string {
	if w.scenario.Namespace != "" || w.scenario.isCluster() {
		return "" // there is none at the same time
	}
	for _, match := range anyRun.FindAllStringSubmatch(message, -1) {
		if match[1] != w.namespace {
			return match[1]
		}
	}
	return ""
}

// anyRun matches the namespace of a run.
var anyRun = regexp.MustCompile(`(?:^|[^-\w])(torture-[0-9]+)\b`)

// nameNamespace returns the name of the run's namespace.
func (w *world) nameNamespace() string {
	switch {
	case w.scenario.Namespace != "":
		return w.scenario.Namespace
	case w.scenario.isCluster():
		return "torture"
	}
	return fmt.Sprintf("torture-%d", w.number)
}

// prepareNamespace creates the namespace of the run, unless all runs share one. clean removes what the run has created and other runs would meet.
func (w *world) prepareNamespace(ctx context.Context) (clean func(context.Context) error, err error) {
	if w.scenario.Namespace != "" && !w.scenario.isCluster() {
		before, err := w.existing(ctx)
		return func(ctx context.Context) error { return w.cleanNamespace(ctx, before) }, err
	}
	namespaces := w.controlPlane.clients.CoreV1().Namespaces()
	_, err = namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create namespace %s: %w", w.namespace, err)
	}
	return func(ctx context.Context) error { // nobody waits until it is gone: the next run has another one
		if mayStay, err := w.mayStay(ctx); err != nil || mayStay {
			return err
		}
		err := namespaces.Delete(ctx, w.namespace, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete namespace %s: %w", w.namespace, err)
		}
		return nil
	}, nil
}

// mayStay reports whether the namespace of the run can be left to the end of the control plane. Its deletion takes a
// hundred requests, again and again while the finalizer of a controller that has ended keeps an object. But a controller
// of another run may list all namespaces, and Pods take places on the nodes.
func (w *world) mayStay(ctx context.Context) (bool, error) {
	for program := range w.commands {
		if !w.looksAtOneNamespace(program) {
			return false, nil
		}
	}
	pods, err := w.controlPlane.clients.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, fmt.Errorf("list the Pods of namespace %s: %w", w.namespace, err)
	}
	return len(pods.Items) == 0, nil
}

// objectNames are the names of objects, by resource as in [Scenario.Resources].
type objectNames map[string]map[string]bool

// existing returns the objects of the scenario's resources in the run's namespace. Those that the manifests only define
// have none.
func (w *world) existing(ctx context.Context) (objectNames, error) {
	names := objectNames{}
	for _, name := range w.scenario.Resources {
		resource, err := w.controlPlane.clients.lookUp(schema.ParseGroupResource(name).WithVersion(""))
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("resource %q: %w", name, err)
		}
		list, err := w.controlPlane.clients.of(resource, w.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list the %s of %s: %w", name, w.namespace, err)
		}
		names[name] = map[string]bool{}
		for _, item := range list.Items {
			names[name][item.GetName()] = true
		}
	}
	return names, nil
}

// cleanNamespace deletes the objects that have been created in a namespace that stays since there were only those of before:
// by the manifests, the steps and the programs. It gives up if the control plane could not be started again.
func (w *world) cleanNamespace(ctx context.Context, before objectNames) error {
	left := ""
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		if w.controlPlane.restartErr != nil && w.controlPlane.restartErr() != nil {
			return true, nil // it is reported elsewhere
		}
		left = ""
		for i, resource := range w.resources {
			name := w.scenario.Resources[i]
			list, err := w.controlPlane.clients.of(resource, w.namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				left = name
				return false, nil // the control plane may have been killed just now
			}
			for _, item := range list.Items {
				if !before[name][item.GetName()] && !isInEveryNamespace(item) {
					left = name
					w.deleteNow(ctx, resource, item)
				}
			}
		}
		return left == "", nil
	})
	if err != nil {
		return fmt.Errorf("delete the %s of %s: %w", left, w.namespace, err)
	}
	return nil
}

// deleteNow asks for the deletion of an object after the programs have ended, so that nobody removes their finalizers. Whether
// it is gone, the next List tells.
func (w *world) deleteNow(ctx context.Context, of resource, object unstructured.Unstructured) {
	client := w.controlPlane.clients.of(of, w.namespace)
	_ = client.Delete(ctx, object.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if len(object.GetFinalizers()) > 0 {
		_, _ = client.Patch(ctx, object.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
}

// isInEveryNamespace reports whether the controller manager creates an object in every namespace, again if it is deleted.
func isInEveryNamespace(object unstructured.Unstructured) bool {
	switch object.GetKind() {
	case "ConfigMap":
		return object.GetName() == "kube-root-ca.crt"
	case "ServiceAccount":
		return object.GetName() == "default"
	}
	return false
}

// looksAtOneNamespace reports whether a program is told its namespace, and does not look at others all the same: the namespace may only be
// that of its Lease. One that looks at others only because of a bug did not do so in the baseline.
func (s *subject) looksAtOneNamespace(program string) bool {
	return isToldNamespace(s.commands[program]) && !s.wide[program]
}

// wideIn returns the programs that are told their namespace, and list or watch one of the scenario's resources in all namespaces.
func (ps *processes) wideIn(recorded *history.History) map[string]bool {
	wide := map[string]bool{}
	if ps.scenario.Namespace != "" || ps.scenario.isCluster() {
		return wide
	}
	for _, p := range ps.programs {
		if !isToldNamespace(ps.commands[p.program]) {
			continue
		}
		for _, q := range recorded.Requests {
			isOfAll := q.Program == p.label && (q.Verb == "list" || q.Verb == "watch") && q.Namespace == "" && !q.Failed()
			if isOfAll && slices.ContainsFunc(ps.resources, func(of resource) bool { return of.namespaced && of.Group == q.Group && of.Resource == q.Resource }) {
				wide[p.program] = true
			}
		}
	}
	return wide
}

// isToldNamespace reports whether a controller gets its namespace as an argument.
func isToldNamespace(command []string) bool {
	return strings.Contains(strings.Join(command, " "), "{namespace}")
}
