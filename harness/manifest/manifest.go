// Package manifest uses kustomize to install manifests in a namespace other than their own.
package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// overlayTemplate is the kustomization that Overlay writes: %[1]s is the namespace, %[2]s the list of resources.
// ClusterRoles and ClusterRoleBindings are in no namespace; they get its name as a suffix, so that manifests
// that are installed in two namespaces do not share them.
const overlayTemplate = `apiVersion: kustomize.config.k8s.io/v1beta1
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

// Overlay writes a kustomization to dir that has everything in paths, moved to the given namespace. Each path is a
// manifest, or a directory with a kustomization. "kubectl apply -k dir" installs the result.
func Overlay(dir, namespace string, paths ...string) error {
	resources, err := resourceLines(dir, paths)
	if err != nil {
		return fmt.Errorf("move manifests to namespace %s: %w", namespace, err)
	}
	text := fmt.Sprintf(overlayTemplate, namespace, resources)
	return os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600)
}

// Collect writes a kustomization to dir that has everything in paths as it is, see [Overlay].
func Collect(dir string, paths ...string) error {
	resources, err := resourceLines(dir, paths)
	if err != nil {
		return fmt.Errorf("collect manifests: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("resources:\n"+resources+"\n"), 0o600)
}

// resourceLines returns the resources of a kustomization in dir, a line each.
func resourceLines(dir string, paths []string) (string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	var lines []string
	for _, path := range paths {
		relative, err := relativePath(dir, path)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		lines = append(lines, "- "+relative)
	}
	return strings.Join(lines, "\n"), nil
}

// relativePath returns path relative to dir, which has no symbolic links. kustomize resolves symbolic links before it
// follows a relative path.
func relativePath(dir, path string) (string, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if absolute, err = filepath.EvalSymlinks(absolute); err != nil {
		return "", err
	}
	return filepath.Rel(dir, absolute)
}
