package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/proc"
)

const (
	nodes          = 20 // simulated Nodes of the control plane
	pods           = 20 // replicas of the Deployment
	namespace      = metav1.NamespaceDefault
	deploymentName = "bench" // also the value of the label app of its Pods
)

// bootOurs starts a program of our control plane with the same flags as cluster.Start does, measures it, and stops it.
// cluster.Start returns when the Nodes are Ready, which is too late to measure when the API server is.
func bootOurs(ctx context.Context, program, dir string, idle time.Duration) (b boot, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	data := filepath.Join(dir, "data")
	log, err := os.Create(filepath.Join(dir, "controlplane.log"))
	if err != nil {
		return boot{}, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, program, "serve", "--dir", data, "--nodes", strconv.Itoa(nodes),
		"--ephemeral", "--exit-with-stdin")
	cmd.Stderr = log
	proc.Group(cmd)
	if _, err := cmd.StdinPipe(); err != nil { // the control plane stops when this process dies
		return boot{}, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return boot{}, fmt.Errorf("start the control plane: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		cancel(fmt.Errorf("the control plane exited: %w", exitError(cmd.Wait())))
		close(exited)
	}()
	defer func() {
		cancel(nil)
		<-exited
		err = withLogs(err, log)
	}()

	work, workCtx := errgroup.WithContext(ctx)
	work.Go(func() error {
		address, err := listenAddress(workCtx, data)
		if err != nil {
			return err
		}
		if err := readyz(workCtx, address); err != nil {
			return err
		}
		b.ready = time.Since(start)
		return nil
	})
	work.Go(func() error {
		if err := deploy(workCtx, filepath.Join(data, "admin.kubeconfig")); err != nil {
			return err
		}
		b.running = time.Since(start)
		return nil
	})
	if err := work.Wait(); err != nil {
		return boot{}, err
	}
	err = b.measure(ctx, idle, &process.Process{Pid: int32(cmd.Process.Pid)})
	return b, err
}

// listenAddress waits until the control plane with the data directory data listens, and returns its address.
func listenAddress(ctx context.Context, data string) (string, error) {
	var port int
	err := poll(ctx, "wait for the control plane to listen", func() error {
		text, err := os.ReadFile(filepath.Join(data, "port"))
		if err != nil {
			return err
		}
		port, err = strconv.Atoi(string(text))
		return err
	})
	return fmt.Sprintf("127.0.0.1:%d", port), err
}

// deploy creates a Deployment as soon as the API server accepts it, and waits until all of its Pods are Running and all
// Nodes are Ready.
func deploy(ctx context.Context, kubeconfig string) error {
	var client kubernetes.Interface
	if err := poll(ctx, "create the Deployment", func() (err error) {
		// Each attempt reads the kubeconfig again, because the control plane may still be writing it.
		if client, err = (&cluster.Cluster{Kubeconfig: kubeconfig}).Client(); err != nil {
			return err
		}
		_, err = client.AppsV1().Deployments(namespace).Create(ctx, deployment(), metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	// resourceVersion 0 lists from the API server's watch cache, so that polling costs little.
	cached := metav1.ListOptions{ResourceVersion: "0"}
	if err := poll(ctx, "wait for the Pods to be Running", func() error {
		all, err := client.CoreV1().Pods(namespace).List(ctx, cached)
		if err != nil {
			return err
		}
		running := 0
		for _, pod := range all.Items {
			if pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running != pods {
			return fmt.Errorf("%d of %d Pods are Running", running, pods)
		}
		return nil
	}); err != nil {
		return err
	}
	return poll(ctx, "wait for the Nodes to be Ready", func() error {
		all, err := client.CoreV1().Nodes().List(ctx, cached)
		if err != nil {
			return err
		}
		ready := 0
		for _, node := range all.Items {
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		if ready != nodes {
			return fmt.Errorf("%d of %d Nodes are Ready", ready, nodes)
		}
		return nil
	})
}

func deployment() *appsv1.Deployment {
	labels := map[string]string{"app": deploymentName}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: deploymentName},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(pods)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "pause", Image: "pause"}}},
			},
		},
	}
}
