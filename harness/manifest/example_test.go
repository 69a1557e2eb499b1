package manifest_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"example.com/controllers/harness/manifest"
)

func ExampleOverlay() {
	dir, err := os.MkdirTemp("", "overlay-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	rbac, overlay := filepath.Join(dir, "rbac.yaml"), filepath.Join(dir, "overlay")
	if err := os.WriteFile(rbac, []byte("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: reader\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	if err := os.Mkdir(overlay, 0o700); err != nil {
		log.Fatal(err)
	}

	if err := manifest.Overlay(overlay, "test-1", rbac); err != nil {
		log.Fatal(err)
	}
	kustomization, err := os.ReadFile(filepath.Join(overlay, "kustomization.yaml"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", kustomization)
	// Output:
	// apiVersion: kustomize.config.k8s.io/v1beta1
	// kind: Kustomization
	// namespace: test-1
	// resources:
	// - ../rbac.yaml
	// transformers:
	// - |-
	//   apiVersion: builtin
	//   kind: PrefixSuffixTransformer
	//   metadata:
	//     name: suffix
	//   suffix: -test-1
	//   fieldSpecs:
	//   - kind: ClusterRole
	//     path: metadata/name
	//   - kind: ClusterRoleBinding
	//     path: metadata/name
}
