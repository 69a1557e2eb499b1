package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/godbus/dbus/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// A Rebooter reboots the machine. It may return before the machine goes down, and it may be called again.
type Rebooter interface {
	Reboot(ctx context.Context) error
}

// Logind asks systemd-logind for the reboot, over the system's D-Bus. systemd then stops the services in order and shuts
// the machine down cleanly.
type Logind struct{}

// Reboot returns an error if systemd-logind refuses. Package login1 of go-systemd has a method for the same call, but that
// ignores the answer.
func (Logind) Reboot(ctx context.Context) error {
	conn, err := dbus.ConnectSystemBus(dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("connect to the system's D-Bus (is /run/dbus mounted?): %w", err)
	}
	defer conn.Close()
	const interactive = false
	manager := conn.Object("org.freedesktop.login1", "/org/freedesktop/login1")
	if err := manager.CallWithContext(ctx, "org.freedesktop.login1.Manager.Reboot", 0, interactive).Err; err != nil {
		return fmt.Errorf("ask systemd-logind to reboot: %w", err)
	}
	return nil
}

// DryRun only logs. The Node stays in progress until the administrator removes reboot-in-progress.
type DryRun struct{}

// Reboot logs that it would reboot the machine.
func (DryRun) Reboot(ctx context.Context) error {
	klog.FromContext(ctx).Info("Dry run: would reboot the machine")
	return nil
}

// A BootIDSource reads the machine's boot ID, which changes with every reboot and at no other time.
type BootIDSource interface {
	Read(ctx context.Context) (string, error)
}

// KernelBootID is the path of a file that holds the boot ID: /proc/sys/kernel/random/boot_id on Linux.
type KernelBootID string

// Read reads the file.
func (path KernelBootID) Read(context.Context) (string, error) {
	text, err := os.ReadFile(string(path))
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	id := strings.TrimSpace(string(text))
	if id == "" {
		return "", fmt.Errorf("read the boot ID: %s is empty", path)
	}
	return id, nil
}

// InitBootID adds the time at which a machine's first process started to the kernel's boot ID. It is for containers that
// stand for machines, such as kind's: they share the kernel of their host, whose boot ID does not change when they restart.
// The value is the directory of the first process, which is /proc/1 in the container's PID namespace.
type InitBootID string

// Read returns the kernel's boot ID and the start time, which is in clock ticks since the kernel booted.
func (dir InitBootID) Read(ctx context.Context) (string, error) {
	kernel, err := KernelBootID("/proc/sys/kernel/random/boot_id").Read(ctx)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(string(dir) + "/stat")
	if err != nil {
		return "", fmt.Errorf("read the start time of the first process: %w", err)
	}
	start, err := startTime(text)
	if err != nil {
		return "", fmt.Errorf("read the start time of the first process: %s/stat %w", dir, err)
	}
	return kernel + "-" + start, nil
}

// startTime returns the 22nd field of a process's stat file, see proc_pid_stat(5).
func startTime(stat []byte) (string, error) {
	// The second field is the program's name in parentheses, which may contain spaces and parentheses itself.
	name := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[name+1:]))
	const index = 22 - 3 // the first field after the name is the third
	if name < 0 || len(fields) <= index {
		return "", errors.New("has an unknown format")
	}
	return fields[index], nil
}

// NodeBootID reads the boot ID that the kubelet reports in the Node's status. It changes only when the kubelet has updated
// the status after the reboot, so use it only where the agent cannot read the boot ID itself.
type NodeBootID struct {
	Client kubernetes.Interface
	Node   string
}

// Read gets the Node from the API server, as a cache may still hold the boot ID from before the reboot.
func (n NodeBootID) Read(ctx context.Context) (string, error) {
	node, err := n.Client.CoreV1().Nodes().Get(ctx, n.Node, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	if node.Status.NodeInfo.BootID == "" {
		return "", errors.New("read the boot ID: the kubelet has not reported one in the Node's status")
	}
	return node.Status.NodeInfo.BootID, nil
}
