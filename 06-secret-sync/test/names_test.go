package test

import (
	corev1 "k8s.io/api/core/v1"

	"example.com/controllers/secretsync"
)

const (
	sourceNamespace = "secret-sync" // the manifests' own
	account         = "secretsync-controller"
)

var targetLabels = map[string]string{secretsync.CopiesLabel: "true"}

// controllerArgs are the arguments of a controller without leader election and without a rate limit.
func controllerArgs(kubeconfig, namespace string) []string {
	return []string{"controller", "--kubeconfig=" + kubeconfig, "--source-namespace=" + namespace, "--address=127.0.0.1:0",
		"--lease-duration=0", "--qps=0", "--backoff=20ms", "--max-backoff=1s"}
}

// mark makes a Secret a source.
func mark(secret *corev1.Secret) {
	if secret.Labels == nil {
		secret.Labels = map[string]string{}
	}
	secret.Labels[secretsync.SharedLabel] = "true"
}

// annotated returns a change of a Secret that sets an annotation.
func annotated(name, value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) {
		if secret.Annotations == nil {
			secret.Annotations = map[string]string{}
		}
		secret.Annotations[name] = value
	}
}
