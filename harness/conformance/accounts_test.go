package conformance_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestNamespaceGetsAnAccountAndTheRootCertificate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exists(t, w.client.CoreV1().ServiceAccounts(w.namespace), "default")
	certificate := exists(t, w.client.CoreV1().ConfigMaps(w.namespace), "kube-root-ca.crt")
	config, err := w.cluster.Config()
	require.NoError(t, err)
	require.Equal(t, string(config.CAData), certificate.Data["ca.crt"])
}

func TestDeletedDefaultAccountComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	accounts := w.client.CoreV1().ServiceAccounts(w.namespace)
	first := exists(t, accounts, "default")
	require.NoError(t, accounts.Delete(t.Context(), "default", metav1.DeleteOptions{}))
	becomes(t, accounts, "default", "a new one", func(account *corev1.ServiceAccount) bool { return account.UID != first.UID })
}

func TestPodGetsItsTokenVolume(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.createPod(t, "with-token", podSpec())

	require.Equal(t, "default", pod.Spec.ServiceAccountName)
	require.Len(t, pod.Spec.Volumes, 1)
	require.NotNil(t, pod.Spec.Volumes[0].Projected)
	var token, certificate, namespace bool
	for _, source := range pod.Spec.Volumes[0].Projected.Sources {
		token = token || source.ServiceAccountToken != nil
		certificate = certificate || source.ConfigMap != nil && source.ConfigMap.Name == "kube-root-ca.crt"
		namespace = namespace || source.DownwardAPI != nil
	}
	require.True(t, token && certificate && namespace, "sources: %v", pod.Spec.Volumes[0].Projected.Sources)
	require.Equal(t, []corev1.VolumeMount{{
		Name:      pod.Spec.Volumes[0].Name,
		ReadOnly:  true,
		MountPath: "/var/run/secrets/kubernetes.io/serviceaccount",
	}}, pod.Spec.Containers[0].VolumeMounts)
}

// The token goes into no message: a test's log is for everybody.
func TestTokenSecretIsFilledIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secrets := w.client.CoreV1().Secrets(w.namespace)
	_, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "token",
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	var token string
	eventually(t, func(ctx context.Context) error {
		secret, err := secrets.Get(ctx, "token", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if token = string(secret.Data[corev1.ServiceAccountTokenKey]); token == "" {
			return errors.New("the Secret has no token yet")
		}
		return nil
	})

	admin, err := w.cluster.Config()
	require.NoError(t, err)
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = token
	account, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	var self *authenticationv1.SelfSubjectReview
	eventually(t, func(ctx context.Context) error { // until the API server's own cache has the token
		self, err = account.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		return err
	})
	require.Equal(t, "system:serviceaccount:"+w.namespace+":default", self.Status.UserInfo.Username)
}
