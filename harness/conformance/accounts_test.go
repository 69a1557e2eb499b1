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

func TestNamespaceGetsADefaultServiceAccountAndTheRootCA(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	waitForCreation(t, e.client.CoreV1().ServiceAccounts(e.namespace), "default")
	certificate := waitForCreation(t, e.client.CoreV1().ConfigMaps(e.namespace), "kube-root-ca.crt")
	config, err := e.cluster.Config()
	require.NoError(t, err)
	require.Equal(t, string(config.CAData), certificate.Data["ca.crt"])
}

func TestDeletedDefaultServiceAccountIsRecreated(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	accounts := e.client.CoreV1().ServiceAccounts(e.namespace)
	first := waitForCreation(t, accounts, "default")
	require.NoError(t, accounts.Delete(t.Context(), "default", metav1.DeleteOptions{}))
	waitUntil(t, accounts, "default", "recreated", func(account *corev1.ServiceAccount) bool { return account.UID != first.UID })
}

func TestPodGetsAServiceAccountTokenVolume(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	pod := e.createPod(t, "with-token", podSpec())

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

// No failure message may contain the token, because the logs of tests are public.
func TestServiceAccountTokenSecretIsPopulated(t *testing.T) {
	t.Parallel()
	e := newTestEnv(t)
	secrets := e.client.CoreV1().Secrets(e.namespace)
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

	admin, err := e.cluster.Config()
	require.NoError(t, err)
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = token
	account, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	var self *authenticationv1.SelfSubjectReview
	eventually(t, func(ctx context.Context) error { // until the API server's own cache has the Secret
		self, err = account.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		return err
	})
	require.Equal(t, "system:serviceaccount:"+e.namespace+":default", self.Status.UserInfo.Username)
}
