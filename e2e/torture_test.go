package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/proc"
)

// Torture runs its plans in the Pods of a Job. One of them is lost in the middle, and its index runs again. All plans have
// outcomes in the end, and nothing is left of the Job.
func TestTortureOnTheCluster(t *testing.T) {
	workshop, err := gobuild.Build(t.Context(), gobuild.Workshop(filepath.Join(world.root, "harness")), os.Stderr)
	require.NoError(t, err)
	const namespace, plans = "torture-e2e", 6
	cmd := exec.CommandContext(t.Context(), workshop, "torture", "--scenario", "03-workqueue/test/torture/scenario.yaml", "--seeds", "6",
		"--on", "context:kind-"+world.ID, "--yes", "--workers", "3", "--cpu", "100m", "--memory", "1Gi", "--parallel", "2",
		"--job-namespace", namespace, "--json", "--dir", t.TempDir()+"/kept")
	cmd.Dir = world.root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+world.Kubeconfig)
	proc.Group(cmd)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	var lost *corev1.Pod
	eventually(t, "wait until a worker runs", func(ctx context.Context) string {
		select {
		case err := <-ended:
			require.NoError(t, err, "%s", &stderr)
		default:
		}
		pods, err := world.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for i := range pods.Items {
			if pods.Items[i].Status.Phase == corev1.PodRunning {
				lost = &pods.Items[i]
				return ""
			}
		}
		return "no Pod runs"
	})
	index := lost.Annotations["batch.kubernetes.io/job-completion-index"]
	require.NoError(t, world.client.CoreV1().Pods(namespace).Delete(t.Context(), lost.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	eventually(t, "wait until its index runs again", func(ctx context.Context) string {
		pods, err := world.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, pod := range pods.Items {
			if pod.Annotations["batch.kubernetes.io/job-completion-index"] == index && pod.UID != lost.UID {
				return ""
			}
		}
		return "no other Pod of index " + index
	})

	require.NoError(t, <-ended, "%s", &stderr)
	var report struct {
		Plans  int `json:"plans"`
		Failed int `json:"failed"`
	}
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &report), "%s", &stdout)
	require.Equal(t, plans, report.Plans)
	require.Zero(t, report.Failed)
	eventually(t, "wait until the namespace is gone", func(ctx context.Context) string {
		if _, err := world.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return ""
		}
		return "it is still there"
	})
}
