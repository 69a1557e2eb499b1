package test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/clustertest"
	"example.com/controllers/secretsync"
)

// With the controller's token, one can write copies and nothing else.
func testPolicy(t *testing.T) {
	w := newWorld(t)
	w.target("team-a")
	theirs := w.own("team-a", "theirs", "x")
	run := w.start()
	source := w.share("registry", "1")
	copied := w.is("team-a", "registry", "1")
	w.stop(run)
	another := w.own("team-a", "another", "x") // a copy of a controller with another source namespace
	w.patch("team-a", "another", `{"metadata":{"labels":{"`+secretsync.CopyLabel+`":"shared"},"annotations":{"`+secretsync.CopiedToAnnotation+`":"team-a/another"}}}`)
	unlabelled := w.own("team-a", "unlabelled", "x") // a copy that has lost its label
	w.patch("team-a", "unlabelled", `{"metadata":{"annotations":{"`+secretsync.CopiedToAnnotation+`":"team-a/unlabelled"}}}`)
	takeOver := func(s *corev1.Secret) {
		s.ResourceVersion = ""
		s.Labels = map[string]string{secretsync.CopyLabel: w.Namespace}
		s.Annotations = map[string]string{secretsync.CopiedToAnnotation: s.Namespace + "/" + s.Name}
	}
	config, err := w.ServiceAccountConfig(t.Context(), w.Namespace, account)
	require.NoError(t, err)
	stolen, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	dryRun := []string{metav1.DryRunAll}
	marked := func(namespace, name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels:      map[string]string{secretsync.CopyLabel: w.Namespace},
			Annotations: map[string]string{secretsync.CopiedToAnnotation: namespace + "/" + name},
		}}
	}
	create := func(secret *corev1.Secret, change ...func(*corev1.Secret)) error {
		for _, c := range change {
			c(secret)
		}
		_, err := stolen.CoreV1().Secrets(secret.Namespace).Create(t.Context(), secret, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	update := func(secret *corev1.Secret, change func(*corev1.Secret)) error {
		secret = secret.DeepCopy()
		change(secret)
		_, err := stolen.CoreV1().Secrets(secret.Namespace).Update(t.Context(), secret, metav1.UpdateOptions{DryRun: dryRun})
		return err
	}
	remove := func(namespace, name string) error {
		return stolen.CoreV1().Secrets(namespace).Delete(t.Context(), name, metav1.DeleteOptions{DryRun: dryRun})
	}
	w.Eventually("the policy", func(context.Context) string { // the API server enforces a new policy after a moment
		if err := create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "new"}}); !apierrors.IsForbidden(err) {
			return "it is not enforced"
		}
		return ""
	})
	nothing := func(*corev1.Secret) {}
	const (
		onlyCopies = "the controller may create nothing but copies"
		notItsCopy = "the controller may not change or delete a Secret that is not its copy"
		notSources = "the controller may not write Secrets of the source namespace"
	)
	for name, c := range map[string]struct {
		err       error
		forbidden string
	}{
		"creates a copy":                    {create(marked("team-a", "new")), ""},
		"updates a copy":                    {update(copied, func(s *corev1.Secret) { s.Data = map[string][]byte{"a": nil} }), ""},
		"restores the label of a copy":      {update(unlabelled, takeOver), ""},
		"deletes a copy":                    {remove("team-a", "registry"), ""},
		"creates another Secret":            {create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "new"}}), onlyCopies},
		"creates one in kube-system":        {create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "new"}}), onlyCopies},
		"creates one with the mark of else": {create(marked("team-a", "new"), func(s *corev1.Secret) { s.Annotations[secretsync.CopiedToAnnotation] = "team-b/new" }), onlyCopies},
		"takes over another Secret":         {update(theirs, func(s *corev1.Secret) { s.Labels, s.Annotations = copied.Labels, copied.Annotations }), notItsCopy},
		"changes another Secret":            {update(theirs, nothing), notItsCopy},
		"deletes another Secret":            {remove("team-a", "theirs"), notItsCopy},
		"takes over another's copy":         {update(another, takeOver), notItsCopy},
		"deletes another's copy":            {remove("team-a", "another"), notItsCopy},
		"gives up a copy":                   {update(copied, func(s *corev1.Secret) { s.Labels = nil }), onlyCopies},
		"changes a source":                  {update(source, nothing), notSources},
		"deletes a source":                  {remove(w.Namespace, "registry"), notSources},
		"creates one among sources":         {create(marked(w.Namespace, "new")), notSources},
		"deletes a Secret elsewhere":        {remove("kube-system", "theirs"), "not found"},
	} {
		if c.forbidden == "" {
			require.NoError(t, c.err, name)
			continue
		}
		require.ErrorContains(t, c.err, c.forbidden, name)
	}
	for _, refused := range secretsync.RefusedTypes() { // each could be more than a copy, also where it can be used
		for _, namespace := range []string{"team-a", metav1.NamespaceSystem} {
			require.ErrorContains(t, create(marked(namespace, "new"), func(s *corev1.Secret) {
				s.Type, s.Annotations[corev1.ServiceAccountNameKey] = refused, "default"
			}), "the controller may not create a Secret of this type", refused)
		}
	}
	_, err = stolen.CoreV1().Secrets("team-a").Patch(t.Context(), "registry", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	_, err = stolen.CoreV1().Secrets("team-a").Get(t.Context(), "registry", metav1.GetOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

func testRights(t *testing.T) {
	w := newWorld(t)
	w.RequireRights(account, clustertest.Rights{
		May: []string{
			"list secrets --all-namespaces", "watch secrets --all-namespaces", "create secrets --all-namespaces", "update secrets --all-namespaces", "delete secrets --all-namespaces",
			"list namespaces", "watch namespaces", "create events.events.k8s.io", "create leases.coordination.k8s.io", "update leases.coordination.k8s.io/secretsync-secret-sync",
		},
		MayNot: []string{
			"get secrets --all-namespaces", "patch secrets --all-namespaces", "deletecollection secrets --all-namespaces", "update namespaces", "delete namespaces", "get configmaps", "list pods",
			"create pods", "create serviceaccounts --subresource=token", "create events.events.k8s.io --namespace=team-a", "update leases.coordination.k8s.io/other", "create rolebindings.rbac.authorization.k8s.io",
		},
	})
}

// Where the controller has no rights, it says so, and copies to all other namespaces.
func testNoRightsInSomeNamespaces(t *testing.T) {
	w := newWorld(t)
	w.target("team-a", "team-b")
	// In place of the right to write Secrets everywhere, it gets one in a single namespace.
	role, err := w.client.RbacV1().ClusterRoles().Get(t.Context(), account+"-"+w.Namespace, metav1.GetOptions{})
	require.NoError(t, err)
	role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces", "secrets"}, Verbs: []string{"get", "list", "watch"}}}
	_, err = w.client.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{})
	require.NoError(t, err)
	allow := func(namespace string) {
		w.t.Helper()
		_, err := w.client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: account},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "update", "delete"}}}}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = w.client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: account},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.Namespace, Name: account}}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	allow("team-b")
	run := w.start()
	w.share("registry", "1")
	w.is("team-b", "registry", "1")
	const why = "the ServiceAccount may not create Secrets in namespace team-a; a RoleBinding there can allow it"
	require.Contains(t, w.event("registry", "Forbidden"), why)
	run.AwaitLog(why)
	require.Contains(t, w.metrics(run), `secretsync_refused{reason="Forbidden"} 1`)
	w.change("registry", "2")
	w.is("team-b", "registry", "2")
	allow("team-a")
	w.is("team-a", "registry", "2")
}

// What must not be started, or has nothing to do.
func testRefusals(t *testing.T) {
	w := newWorld(t)
	for args, want := range map[string]string{
		"--namespace-selector=a in (": `--namespace-selector: "a in (" is not a label selector`,
		"--namespace-selector=":       "--namespace-selector: it is empty, which would select all namespaces",
		"--source-namespace=":         "--source-namespace is missing; name the namespace whose Secrets are shared",
		"--workers=0":                 "--workers is 0; it must be at least 1",
		"--v=8":                       "--v is 8; it must be at most 7",
	} {
		run := w.startWaiting(args)
		require.Error(t, run.Wait(), args)
		require.Contains(t, run.Log(), want)
	}
}
