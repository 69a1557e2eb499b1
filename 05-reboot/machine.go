package reboot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// A Rebooter reboots the machine. It may return before the machine goes down, and it may be called again.
type Rebooter interface {
	Reboot(ctx context.Context) error
}

// Logind asks systemd's login manager for the reboot, over the system's D-Bus. It then stops the services in order, and
// shuts the machine down cleanly.
type Logind struct{}

// Reboot returns the login manager's answer. Package login1 of go-systemd has a method for the same call, but ignores the
// answer.
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

// Command reboots the machine with a command and its arguments.
type Command []string

// commandTimeout is how long a command may run. One that reboots the machine is usually killed by that.
const commandTimeout = time.Minute

// Reboot runs the command. The error has the end of its output.
func (c Command) Reboot(ctx context.Context) error {
	output, err := run(ctx, c)
	if err != nil {
		return fmt.Errorf("run %q: %w%s", strings.Join(c, " "), err, output)
	}
	return nil
}

// run runs a command and returns the end of what it prints, on a line of its own.
func run(ctx context.Context, command []string) (output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.WaitDelay = time.Second // for children that keep the output open
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	const most = 500
	text := strings.TrimSpace(out.String())
	if text == "" {
		return "", err
	}
	return "\n" + text[max(0, len(text)-most):], err
}

// DryRun only logs. The Node stays in progress until its annotations are removed.
type DryRun struct{}

// Reboot logs that it would reboot the machine.
func (DryRun) Reboot(ctx context.Context) error {
	klog.FromContext(ctx).Info("Dry run: would reboot the machine")
	return nil
}

// A BootIDSource tells which boot of the machine this is. The ID is another one after every reboot, and the same as long
// as there is none.
type BootIDSource interface {
	Read(ctx context.Context) (string, error)
}

// KernelBootID is the path of a file with the boot ID, such as /proc/sys/kernel/random/boot_id, where Linux has it.
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

// InitBootID takes the time at which a machine's first process started as its boot ID. A container that stands for a
// machine, as kind's do, has the kernel of its host, whose boot ID does not change when the container restarts. The value
// is the path of the process's directory, such as /proc/1 in the PID namespace of the machine.
type InitBootID string

// Read reads the start time, in clock ticks since the kernel booted, and the kernel's boot ID.
func (dir InitBootID) Read(ctx context.Context) (string, error) {
	kernel, err := KernelBootID("/proc/sys/kernel/random/boot_id").Read(ctx)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(string(dir) + "/stat")
	if err != nil {
		return "", fmt.Errorf("read the start time of the first process: %w", err)
	}
	// The second field is the program's name in parentheses, which may contain spaces.
	_, rest, found := strings.Cut(string(text[max(0, bytes.LastIndexByte(text, ')')):]), ")")
	const startTime = 22 - 3 // of the fields after the name, which begin with the third
	fields := strings.Fields(rest)
	if !found || len(fields) <= startTime {
		return "", fmt.Errorf("read the start time of the first process: %s/stat has an unknown format", dir)
	}
	return kernel + "-" + fields[startTime], nil
}

// NodeBootID is the boot ID that the kubelet reports in the Node's status. It changes only when the kubelet has reported
// after the reboot, so it is for machines whose kernel cannot be asked.
type NodeBootID struct {
	Client kubernetes.Interface
	Node   string
}

// Read asks the API server, because a cache may still have the boot ID of before.
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
