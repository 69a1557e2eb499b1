package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	scheduling "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// bootstrap creates the default roles, bindings and priority classes of this Kubernetes version, as
// kube-apiserver's own post-start hooks do. To roles and bindings that exist it only adds what they lack.
func bootstrap(ctx context.Context, client kubernetes.Interface) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(16)
	rbac := client.RbacV1()

	for _, role := range append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...) {
		work.Go(func() error {
			if _, err := rbac.ClusterRoles().Create(ctx, &role, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				return wrap("create clusterrole", role.Name, err)
			}
			_, err := (&reconciliation.ReconcileRoleOptions{
				Role:    reconciliation.ClusterRoleRuleOwner{ClusterRole: &role},
				Client:  reconciliation.ClusterRoleModifier{Client: rbac.ClusterRoles()},
				Confirm: true,
			}).Run()
			return wrap("reconcile clusterrole", role.Name, err)
		})
	}
	for _, binding := range append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...) {
		work.Go(func() error {
			if _, err := rbac.ClusterRoleBindings().Create(ctx, &binding, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				return wrap("create clusterrolebinding", binding.Name, err)
			}
			_, err := (&reconciliation.ReconcileRoleBindingOptions{
				RoleBinding: reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &binding},
				Client:      reconciliation.ClusterRoleBindingClientAdapter{Client: rbac.ClusterRoleBindings()},
				Confirm:     true,
			}).Run()
			return wrap("reconcile clusterrolebinding", binding.Name, err)
		})
	}
	for namespace, roles := range bootstrappolicy.NamespaceRoles() {
		for _, role := range roles {
			work.Go(func() error {
				_, err := (&reconciliation.ReconcileRoleOptions{
					Role:    reconciliation.RoleRuleOwner{Role: &role},
					Client:  reconciliation.RoleModifier{Client: rbac, NamespaceClient: client.CoreV1().Namespaces()},
					Confirm: true,
				}).Run()
				return wrap("reconcile role", namespace+"/"+role.Name, err)
			})
		}
	}
	for namespace, bindings := range bootstrappolicy.NamespaceRoleBindings() {
		for _, binding := range bindings {
			work.Go(func() error {
				_, err := (&reconciliation.ReconcileRoleBindingOptions{
					RoleBinding: reconciliation.RoleBindingAdapter{RoleBinding: &binding},
					Client:      reconciliation.RoleBindingClientAdapter{Client: rbac, NamespaceClient: client.CoreV1().Namespaces()},
					Confirm:     true,
				}).Run()
				return wrap("reconcile rolebinding", namespace+"/"+binding.Name, err)
			})
		}
	}
	for _, class := range scheduling.SystemPriorityClasses() {
		work.Go(func() error { return createPriorityClass(ctx, client, class) })
	}
	return work.Wait()
}

func createPriorityClass(ctx context.Context, client kubernetes.Interface, class *schedulingv1.PriorityClass) error {
	_, err := client.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return wrap("create priorityclass", class.Name, err)
}

// wrap says in err which object it is about and what was being done to it. A nil err stays nil.
func wrap(doing, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", doing, name, err)
}
