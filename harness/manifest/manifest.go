// Package manifest moves manifests to another namespace.
package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// overlay is a kustomization that moves others to another namespace. What is in no namespace gets its name
// as a suffix, so that those who install the same manifests twice do not share roles.
const overlay = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: %[1]s
resources:
%[2]s
transformers:
- |-
  apiVersion: builtin
  kind: PrefixSuffixTransformer
  metadata:
    name: suffix
  suffix: -%[1]s
  fieldSpecs:
  - kind: ClusterRole
    path: metadata/name
  - kind: ClusterRoleBinding
    path: metadata/name
`

// Overlay writes a kustomization to a directory. Of paths, which are directories with kustomizations, and
// files, it makes the same in another namespace.
func Overlay(dir, namespace string, paths ...string) error {
	// A kustomization may only name others relative to itself, and links are followed first.
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	var resources []string
	for _, path := range paths {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		if absolute, err = filepath.EvalSymlinks(absolute); err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, absolute)
		if err != nil {
			return err
		}
		resources = append(resources, "- "+relative)
	}
	text := fmt.Sprintf(overlay, namespace, strings.Join(resources, "\n"))
	return os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600)
}
