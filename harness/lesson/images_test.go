package lesson

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestImages(t *testing.T) {
	l := Lesson{Number: 7, Dir: filepath.Join(t.TempDir(), "07-images")}
	for path, text := range map[string]string{
		"workload.yaml": `
kind: ConfigMap
data: {image: "text:dev"}
---
kind: Deployment
spec: {template: {spec: {containers: [{image: "nginx:1.29"}]}}}`,
		"manifests/controller.yaml": `
kind: Deployment
spec:
  template:
    spec:
      initContainers: [{image: "example.com/setup:dev"}]
      containers: [{image: "controller:dev"}, {image: "absent:dev"}, {image: "controller:v1"}]`,
		"manifests/kustomization.yaml": "resources: [controller.yaml]\n",
		"cmd/controller/main.go":       "package main",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(l.Dir, filepath.Dir(path)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(l.Dir, path), []byte(text), 0o600))
	}
	images, err := l.Images()
	require.NoError(t, err)
	require.Equal(t, Images{
		Programs:  []string{"controller:dev"},
		Workloads: []string{"absent:dev", "controller:v1", "example.com/setup:dev", "nginx:1.29"},
	}, images)
	pkg, own := l.Package("controller:dev")
	require.True(t, own)
	require.Equal(t, "./cmd/controller", pkg)

	require.NoError(t, os.WriteFile(filepath.Join(l.Dir, "broken.yaml"), []byte("a: [\n"), 0o600))
	_, err = l.Images()
	require.ErrorContains(t, err, "broken.yaml")
}
