package conformance_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	psnet "github.com/shirou/gopsutil/v4/net"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/cluster"
)

func TestServerReportsItsVersion(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	version, err := e.client.Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, "v1.37.1", version.GitVersion)
	require.Equal(t, "1", version.Major)
	require.Equal(t, "37", version.Minor)
	require.Equal(t, cluster.KubernetesVersion, version.GitVersion)
	require.Equal(t, e.cluster.Version, version.GitVersion)
}

func TestServerIsReadyAndLive(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	for _, path := range []string{"/readyz", "/livez"} {
		body, err := e.client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		require.NoError(t, err)
		require.Equal(t, "ok", string(body))
	}
}

// Only the API server listens on TCP, and only on loopback.
func TestServerListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	config, err := e.cluster.Config()
	require.NoError(t, err)
	server, err := url.Parse(config.Host)
	require.NoError(t, err)

	text, err := os.ReadFile(filepath.Join(filepath.Dir(e.cluster.Kubeconfig), "pid"))
	require.NoError(t, err)
	pid, err := strconv.ParseInt(string(text), 10, 32)
	require.NoError(t, err)
	connections, err := psnet.ConnectionsPidWithContext(t.Context(), "tcp", int32(pid))
	require.NoError(t, err)
	var listening []string
	for _, connection := range connections {
		if connection.Status == "LISTEN" {
			listening = append(listening, net.JoinHostPort(connection.Laddr.IP, fmt.Sprint(connection.Laddr.Port)))
		}
	}
	require.Equal(t, []string{server.Host}, listening)
	require.Equal(t, "127.0.0.1", server.Hostname())
}

func TestAdminKubeconfigIsPrivate(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	file, err := os.Stat(e.cluster.Kubeconfig)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), file.Mode())
	dir, err := os.Stat(filepath.Dir(e.cluster.Kubeconfig))
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|0o700, dir.Mode())
}

func TestAnonymousRequestsAndUnknownTokensAreRefused(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	list := func(change func(*rest.Config)) error {
		admin, err := e.cluster.Config()
		require.NoError(t, err)
		config := rest.AnonymousClientConfig(admin)
		change(config)
		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		_, err = client.CoreV1().Pods(e.namespace).List(t.Context(), metav1.ListOptions{})
		return err
	}

	err := list(func(*rest.Config) {})
	require.True(t, apierrors.IsForbidden(err), "anonymous: %v", err)
	err = list(func(config *rest.Config) { config.BearerToken = "unknown" })
	require.True(t, apierrors.IsUnauthorized(err), "with an unknown token: %v", err)
}

func TestServiceAccountHasTheRightsOfItsRolesOnly(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	config, err := e.cluster.ServiceAccountConfig(t.Context(), e.namespace, "default")
	require.NoError(t, err)
	account, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	_, err = account.CoreV1().Pods(e.namespace).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "without a role: %v", err)

	_, err = e.client.RbacV1().Roles(e.namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = e.client.RbacV1().RoleBindings(e.namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "pod-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: e.namespace, Name: "default"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, func(ctx context.Context) error {
		_, err := account.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{})
		return err
	})

	_, err = account.CoreV1().Secrets(e.namespace).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "another resource: %v", err)
	_, err = account.CoreV1().Pods(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "another namespace: %v", err)
	err = account.CoreV1().Pods(e.namespace).Delete(t.Context(), "any", metav1.DeleteOptions{})
	require.True(t, apierrors.IsForbidden(err), "another verb: %v", err)
}

func TestClusterRoleAggregatesRulesByLabel(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	roles := e.client.RbacV1().ClusterRoles()
	label := map[string]string{ownKey: e.namespace}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}
	for _, role := range []*rbacv1.ClusterRole{
		{
			ObjectMeta:      metav1.ObjectMeta{Name: e.namespace + "-all"},
			AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: label}}},
		},
		{ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-part", Labels: label}, Rules: rules},
	} {
		_, err := roles.Create(t.Context(), role, metav1.CreateOptions{})
		require.NoError(t, err)
		e.cleanup(t, func(ctx context.Context) error { return roles.Delete(ctx, role.Name, metav1.DeleteOptions{}) })
	}
	all := waitUntil(t, roles, e.namespace+"-all", "aggregated", func(role *rbacv1.ClusterRole) bool { return len(role.Rules) > 0 })
	require.Equal(t, rules, all.Rules)
}
