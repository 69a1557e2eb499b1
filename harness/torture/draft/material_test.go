package draft

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const definition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: foos.example.com}, spec: {group: example.com, names: {kind: Foo}}}`

func lay(t *testing.T, files map[string]string) (dir string) {
	dir = t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return dir
}

// read returns the objects of files that no kustomization changes.
func read(files []string) (all []*unstructured.Unstructured, err error) {
	for _, file := range files {
		objects, err := readObjects(file)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// Below a directory are definitions, the rights of one account, and samples. What others use, and what cannot be read, is not.
func TestGather(t *testing.T) {
	dir := lay(t, map[string]string{
		"config/crd/foos.yaml":       definition,
		"config/crd/again.yaml":      definition,
		"config/rbac/role.yaml":      "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r}}\n---\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: manager}}",
		"config/samples/foo.yaml":    "{apiVersion: example.com/v1, kind: Foo, metadata: {name: one}}\n---\n{apiVersion: example.com/v1, kind: Foo, metadata: {name: two}}",
		"config/manager.yaml":        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: manager}}",
		"chart/template.yaml":        "metadata: {{ .Values.name }}\n",
		"vendor/other.yaml":          "{apiVersion: v1, kind: ServiceAccount, metadata: {name: other}}",
		"a/b/c/d/e/f/g/h/deep.yaml":  "{apiVersion: v1, kind: ServiceAccount, metadata: {name: deep}}",
		".hidden/hidden.yaml":        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: hidden}}",
		"examples/not-ours/bar.yaml": "{apiVersion: example.com/v1, kind: Bar, metadata: {name: bar}}",
		"given.yaml":                 "{apiVersion: v1, kind: ConfigMap, metadata: {name: given}}",
	})
	d := &drafter{Options: Options{Search: dir, Manifests: []string{filepath.Join(dir, "given.yaml")}, Progress: io.Discard}}
	require.NoError(t, d.gather(read))
	in := func(names ...string) (all []string) {
		for _, name := range names {
			all = append(all, filepath.Join(dir, name))
		}
		return all
	}
	require.Equal(t, in("given.yaml", "config/crd/again.yaml", "config/rbac/role.yaml"), d.given.manifests)
	require.Equal(t, "manager", d.given.account)
	require.Len(t, d.given.samples, 1)
	require.Equal(t, "one", d.given.samples[0].GetName())
	require.Equal(t, in("given.yaml", "config/rbac/role.yaml"), d.given.without(func(string) bool { return false }), "a definition that nobody asks for")
	require.Equal(t, in("given.yaml", "config/crd/again.yaml", "config/rbac/role.yaml"), d.given.without(func(name string) bool { return name == "foos.example.com" }))
	require.Equal(t, in("given.yaml", "config/crd/again.yaml"), d.given.withoutAccount().manifests)

	d = &drafter{Options: Options{Search: dir, Account: "none", Progress: io.Discard}}
	require.NoError(t, d.gather(read))
	require.Empty(t, d.given.account)
	require.Equal(t, in("config/crd/again.yaml"), d.given.manifests)
}

// The values of a Secret stay in the file that they came in.
func TestSampleWithASecret(t *testing.T) {
	dir := lay(t, map[string]string{"secret.yaml": "{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {password: aHVudGVyMg==}}"})
	file := filepath.Join(dir, "secret.yaml")
	d := &drafter{Options: Options{Samples: []string{file}, Progress: io.Discard}}
	require.NoError(t, d.gather(read))
	require.Empty(t, d.given.samples)
	require.Equal(t, []string{file}, d.given.manifests)
	require.NotEmpty(t, d.notes)
}
