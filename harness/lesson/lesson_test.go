package lesson

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guard"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

// A lesson that was interrupted may leave a finalizer that blocks the deletion of its namespace.
func TestCleanNamesRemainingFinalizers(t *testing.T) {
	c, err := cluster.Shared()
	require.NoError(t, err)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kustomization.yaml": "namespace: lesson-in-the-way\nresources: [config.yaml]\n",
		"config.yaml":        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: of-the-manifests}\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "manifests"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "manifests", name), []byte(text), 0o600))
	}
	stage, err := Prepare(t.Context(), Lesson{Dir: dir}, c, t.TempDir())
	require.NoError(t, err)
	require.NoError(t, stage.Open(t.Context()))
	client, err := c.Client()
	require.NoError(t, err)
	maps := client.CoreV1().ConfigMaps("lesson-in-the-way")
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/nobody"}}}, metav1.CreateOptions{})
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	go func() { // until the namespace controller has set the condition
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			namespace, err := client.CoreV1().Namespaces().Get(ctx, "lesson-in-the-way", metav1.GetOptions{})
			if err == nil && remainingFinalizers(namespace) != "" {
				time.AfterFunc(time.Second, cancel)
				return
			}
		}
	}()
	err = stage.Clean(ctx)
	require.ErrorContains(t, err, "namespace lesson-in-the-way on ")
	require.ErrorContains(t, err, "example.com/nobody in 1 resource instances. Remove them")

	_, err = maps.Patch(t.Context(), "held", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, stage.Clean(t.Context()))
}

func TestRequireNodes(t *testing.T) {
	c, err := cluster.Shared()
	require.NoError(t, err)
	client, err := c.Client()
	require.NoError(t, err)
	stage := &Stage{Lesson: Lesson{Number: 7}, Cluster: c, client: client}
	require.NoError(t, stage.RequireNodes(t.Context(), 0))
	require.NoError(t, stage.RequireNodes(t.Context(), 1))
	require.ErrorContains(t, stage.RequireNodes(t.Context(), 500), "lesson 7 needs 500 simulated nodes, and "+c.Name+" has ")
}

// Ctrl-C in the terminal must not end kubectl in the middle of a clean-up.
func TestKubectlHasAProcessGroupOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\nps -o pgid= -p $$\n"), 0o700))
	s := &Stage{Lesson: Lesson{Dir: dir}, Cluster: &cluster.Cluster{Kubectl: dir}}
	out, err := s.kubectl(t.Context())
	require.NoError(t, err)
	group, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(t, err)
	require.NotEqual(t, syscall.Getpgrp(), group)
}
