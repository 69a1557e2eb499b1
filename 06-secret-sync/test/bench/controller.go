package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/controllers/secretsync"
)

// account is the controller's ServiceAccount, from its manifests.
const account = "secretsync-controller"

// controllerArgs are the arguments of a controller without leader election and without a rate limit.
func controllerArgs(kubeconfig string, workers int) []string {
	return []string{"controller", "--kubeconfig=" + kubeconfig, "--source-namespace=" + namespace, "--address=127.0.0.1:0",
		"--lease-duration=0", "--qps=0", fmt.Sprintf("--workers=%d", workers)}
}

// source returns a Secret that is shared with all namespaces that ask for copies.
func source(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{secretsync.SharedLabel: "true"}}, Data: data}
}

// targetLabels are the labels of the namespaces that ask for copies.
func targetLabels() map[string]string { return map[string]string{secretsync.CopiesLabel: "true"} }

// copyLabels are labels that each copy has, and no other Secret.
func copyLabels() map[string]string { return map[string]string{secretsync.CopyLabel: namespace} }

// copyAnnotations returns annotations as those of a copy. The UID and the hash have the length of real ones.
func copyAnnotations(namespace, name, revision string) map[string]string {
	hash := sha256.Sum256([]byte(revision))
	return map[string]string{
		secretsync.CopiedToAnnotation: namespace + "/" + name, secretsync.SourceAnnotation: name,
		secretsync.SourceUIDAnnotation: "00000000-0000-0000-0000-000000000000", secretsync.HashAnnotation: hex.EncodeToString(hash[:16]),
		secretsync.TypeAnnotation: string(corev1.SecretTypeOpaque),
	}
}

func copySelector() string { return secretsync.CopyLabel + "=" + namespace }

func sharedSelector() string { return secretsync.SharedLabel + "=true" }
