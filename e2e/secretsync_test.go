package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	syncNamespace = "secret-sync"
	syncPrefix    = "secretsync.controllers.example.com/"
	syncSource    = "db" // name of the source, and of its copies
)

// TestSecretSync copies a Secret to ten namespaces. In the middle of a change, the leader's machine hangs until another
// replica leads.
func TestSecretSync(t *testing.T) {
	install(t, syncNamespace, "06-secret-sync/manifests")
	kubectl(t, "rollout", "status", "deployment/secretsync-controller", "--namespace="+syncNamespace, "--timeout=3m")
	var targets []string
	for i := range 10 {
		targets = append(targets, newTarget(t, i))
	}
	secrets := world.client.CoreV1().Secrets(syncNamespace)
	source := &corev1.Secret{Data: map[string][]byte{"password": []byte("one")}, ObjectMeta: metav1.ObjectMeta{
		Name: syncSource, Labels: map[string]string{syncPrefix + "shared": "true"},
	}}
	_, err := secrets.Create(t.Context(), source, metav1.CreateOptions{})
	require.NoError(t, err)
	requireCopies(t, "one", corev1.SecretTypeOpaque, targets...)

	change := func(password string) {
		t.Helper()
		kubectl(t, "patch", "secret", syncSource, "--namespace="+syncNamespace, "--type=merge", "--patch", fmt.Sprintf(`{"stringData":{"password":%q}}`, password))
	}
	t.Run("the leader's machine hangs", func(t *testing.T) {
		frozen := leader(t, syncNamespace, "secretsync-secret-sync")
		pod, err := world.client.CoreV1().Pods(syncNamespace).Get(t.Context(), frozen, metav1.GetOptions{})
		require.NoError(t, err)
		change("two")
		require.NoError(t, world.Pause(t.Context(), pod.Spec.NodeName))
		t.Cleanup(func() { // a machine that runs again is none to resume
			_ = world.Resume(context.WithoutCancel(t.Context()), pod.Spec.NodeName)
		})
		change("three")
		requireCopies(t, "three", corev1.SecretTypeOpaque, targets...)
		require.NotEqual(t, frozen, leader(t, syncNamespace, "secretsync-secret-sync"))

		// Its caches are old, and it may believe that it leads. It must write nothing from them.
		versions := copyVersions(t, targets)
		require.NoError(t, world.Resume(t.Context(), pod.Spec.NodeName))
		eventually(t, "wait until the process that was frozen has ended", func(ctx context.Context) string {
			pod, err := world.client.CoreV1().Pods(syncNamespace).Get(ctx, frozen, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				return ""
			case err != nil:
				return err.Error()
			case len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].RestartCount == 0:
				return "its container has not restarted"
			}
			return ""
		})
		require.Equal(t, versions, copyVersions(t, targets), "copies were written after the machine ran again")
		kubectl(t, "wait", "node", pod.Spec.NodeName, "--for=condition=Ready", "--timeout=3m")
	})
	t.Run("a Secret of a user is in the way", func(t *testing.T) {
		target := newTarget(t, len(targets))
		requireCopies(t, "three", corev1.SecretTypeOpaque, target) // otherwise, it could still be created later
		kubectl(t, "label", "namespace", target, syncPrefix+"copies-")
		requireNoCopies(t, target)
		kubectl(t, "create", "secret", "generic", syncSource, "--namespace="+target, "--from-literal=password=mine")
		kubectl(t, "label", "namespace", target, syncPrefix+"copies=true")
		eventually(t, "wait for the Event", func(ctx context.Context) string {
			events, err := world.client.EventsV1().Events(syncNamespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=NamesakeNotOurs"})
			if err != nil {
				return err.Error()
			}
			if len(events.Items) == 0 {
				return "there is none"
			}
			return ""
		})
		namesake, err := world.client.CoreV1().Secrets(target).Get(t.Context(), syncSource, metav1.GetOptions{})
		require.NoError(t, err)
		require.True(t, string(namesake.Data["password"]) == "mine", "the user's Secret was changed")
		kubectl(t, "delete", "secret", syncSource, "--namespace="+target)
		requireCopies(t, "three", corev1.SecretTypeOpaque, target)
	})
	t.Run("another type", func(t *testing.T) {
		require.NoError(t, secrets.Delete(t.Context(), syncSource, metav1.DeleteOptions{}))
		source.Type = "example.com/password"
		_, err := secrets.Create(t.Context(), source, metav1.CreateOptions{})
		require.NoError(t, err)
		requireCopies(t, "one", source.Type, targets...)
	})
	t.Run("no source", func(t *testing.T) {
		require.NoError(t, secrets.Delete(t.Context(), syncSource, metav1.DeleteOptions{}))
		requireNoCopies(t, targets...)
	})
}

// newTarget creates a namespace that gets copies, and deletes it when the test is over. It returns its name.
func newTarget(t *testing.T, i int) string {
	t.Helper()
	namespace, err := world.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: fmt.Sprintf("secret-sync-target-%d-", i), Labels: map[string]string{syncPrefix + "copies": "true"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, world.client.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), namespace.Name, metav1.DeleteOptions{}))
	})
	return namespace.Name
}

// requireCopies waits until each namespace has a copy of the type with the password.
func requireCopies(t *testing.T, password string, secretType corev1.SecretType, namespaces ...string) {
	t.Helper()
	eventually(t, "wait for copies", func(ctx context.Context) string {
		for _, namespace := range namespaces {
			secret, err := world.client.CoreV1().Secrets(namespace).Get(ctx, syncSource, metav1.GetOptions{})
			switch {
			case err != nil:
				return err.Error()
			case secret.Type != secretType:
				return fmt.Sprintf("Secret %s/%s has type %s", namespace, syncSource, secret.Type)
			case string(secret.Data["password"]) != password:
				return fmt.Sprintf("Secret %s/%s has other data", namespace, syncSource)
			}
		}
		return ""
	})
}

func requireNoCopies(t *testing.T, namespaces ...string) {
	t.Helper()
	eventually(t, "wait until there are no copies", func(ctx context.Context) string {
		for _, namespace := range namespaces {
			if _, err := world.client.CoreV1().Secrets(namespace).Get(ctx, syncSource, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("Secret %s/%s: %v", namespace, syncSource, err)
			}
		}
		return ""
	})
}

// copyVersions returns the resourceVersions of the copies, by namespace.
func copyVersions(t *testing.T, namespaces []string) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, namespace := range namespaces {
		secret, err := world.client.CoreV1().Secrets(namespace).Get(t.Context(), syncSource, metav1.GetOptions{})
		require.NoError(t, err)
		versions[namespace] = secret.ResourceVersion
	}
	return versions
}
