package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"example.com/controllers/harness/machine"
)

// Simulate adds simulated machines to a cluster that was not started by this package, and returns when their Nodes are Ready.
// Their kubelets run until stop is called or this process ends. scratch is a directory for their log.
func (c *Cluster) Simulate(ctx context.Context, count int, scratch string) (stop func() error, err error) {
	client, err := c.Client()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(scratch, "kubelets.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(c.Kubectl, "controlplane"), "kubelets", "--kubeconfig", c.Kubeconfig)
	cmd.Stderr = log
	// In a session of its own, so that Ctrl-C does not reach it: this process decides when it stops.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("simulate kubelets: %w", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	stop = func() error { return endKubelets(cmd, stdin, exited, log) }

	for i := range count {
		if err := machine.Add(ctx, client, machine.Name(i)); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, errors.Join(err, stop())
		}
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: machine.Selector})
		if err != nil {
			return false, err
		}
		ready := 0
		for _, node := range nodes.Items {
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		return ready >= count, nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait for %d simulated nodes: %w; %s", count, err, logTail(log)), stop())
	}
	return stop, nil
}

// endKubelets stops the program that simulates kubelets.
func endKubelets(cmd *exec.Cmd, stdin io.Closer, exited <-chan error, log *os.File) error {
	stdin.Close()
	select {
	case <-exited:
	case <-time.After(3 * time.Second):
		_ = cmd.Process.Kill()
		<-exited
	}
	return log.Close()
}
