// Package host runs a process on each simulated machine, as a DaemonSet runs a Pod on each Node.
//
//   - While a machine is on, one process of the command runs on it.
//   - The process, and what it has started, gets SIGKILL as soon as the power goes off or the Node is removed.
//   - It is started again when the machine has booted, by which time the Node has the new boot ID.
//   - A process that ends by itself is started again after a delay, which doubles each time.
//   - When Run returns, none of the processes is running.
package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/machine"
	"example.com/controllers/harness/proc"
)

// Options says what runs where.
type Options struct {
	// Cluster is the cluster whose machines the processes run on.
	Cluster *cluster.Cluster
	// Selector selects the machines by their labels; "" selects all.
	Selector string
	// Command is the program and its arguments. {node} and {kubeconfig} are replaced in the arguments.
	Command []string
	// Account is the ServiceAccount, as NAMESPACE/NAME, with which each process authenticates. Its token is bound to
	// the process's Node, and expires after a day. If it is "", the processes get the cluster's own kubeconfig.
	Account string
	// Env is added to the environment, which has NODE_NAME, KUBECONFIG and [cluster.KubeconfigVariable] but nothing
	// else that leads to a cluster.
	Env []string
	// Scratch is a directory for the processes' credentials and homes, which Run removes when it returns. Default: the
	// directory for temporary files, where they stay if this process is killed.
	Scratch string
	// Output gets what the processes print, each line prefixed with "[NODE] ".
	Output io.Writer
	// Log gets a line whenever a process is started, killed or has ended. It may be nil.
	Log io.Writer
	// Delay is the time before a process is started again that has ended by itself. It doubles each time, up to a
	// minute, until a process has run for a minute. Default: 1 s.
	Delay time.Duration
}

const (
	defaultDelay = time.Second
	// mostDelay is the longest delay, and how long a process must run until the next delay is the shortest again.
	mostDelay = time.Minute
)

// host is a Run in progress.
type host struct {
	Options
	scratch string
	ctx     context.Context // ends the processes with SIGTERM

	mu      sync.Mutex // of Output and Log
	running sync.WaitGroup
	// machines has how to kill the process of each machine that is on. Only Follow's callbacks use it.
	machines map[string]killer
}

// killer ends what runs on a machine.
type killer struct {
	kill context.CancelCauseFunc
	done <-chan struct{} // closed when it has ended
}

var errPowerOff = errors.New("the power is off")

// Run runs the processes until ctx is cancelled. It then sends them SIGTERM and, after [proc.Grace], SIGKILL, and
// returns nil.
func Run(ctx context.Context, o Options) (err error) {
	if len(o.Command) == 0 {
		return errors.New("no command to run on the machines")
	}
	if _, err := exec.LookPath(o.Command[0]); err != nil {
		return fmt.Errorf("run on the machines: %w", err)
	}
	if o.Account != "" && strings.Count(o.Account, "/") != 1 {
		return fmt.Errorf("account %q is not of the form NAMESPACE/SERVICEACCOUNT", o.Account)
	}
	if o.Delay == 0 {
		o.Delay = defaultDelay
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	client, err := o.Cluster.Client()
	if err != nil {
		return err
	}
	// Follow retries forever, so find out first whether there is a cluster.
	if _, err := client.Discovery().ServerVersion(); err != nil {
		return fmt.Errorf("run on the machines: %w", err)
	}
	h := &host{Options: o, ctx: ctx, machines: map[string]killer{}}
	if h.scratch, err = os.MkdirTemp(o.Scratch, "workshop-machines-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(h.scratch)) }()
	defer h.running.Wait()
	return Follow(ctx, client, o.Selector, h.switchOn, h.switchOff)
}

// switchOn starts the process of a machine.
func (h *host) switchOn(node *corev1.Node) {
	ctx, kill := context.WithCancelCause(h.ctx)
	done := make(chan struct{})
	h.machines[node.Name] = killer{kill, done}
	h.running.Go(func() {
		defer close(done)
		defer kill(nil)
		h.keepRunning(ctx, node)
	})
}

// switchOff kills the process of a machine, and returns when it has ended.
func (h *host) switchOff(node *corev1.Node) {
	killer := h.machines[node.Name]
	killer.kill(errPowerOff)
	<-killer.done
	h.log(node, "killed: the machine is off, or has been removed")
}

// keepRunning runs the machine's process again and again until ctx is cancelled.
func (h *host) keepRunning(ctx context.Context, node *corev1.Node) {
	delay := h.Delay
	for {
		start := time.Now()
		err := h.runOnce(ctx, node)
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > mostDelay {
			delay = h.Delay
		}
		h.log(node, "%v; starting it again in %s", err, delay)
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
		delay = min(2*delay, mostDelay)
	}
}

// runOnce runs the machine's process until it has ended. The error says how it ended, and is never nil.
func (h *host) runOnce(ctx context.Context, node *corev1.Node) error {
	kubeconfig, err := h.kubeconfig(ctx, node)
	if err != nil {
		return err
	}
	home := filepath.Join(h.scratch, node.Name)
	env, err := environ.Isolated(home)
	if err != nil {
		return err
	}
	replace := strings.NewReplacer("{node}", node.Name, "{kubeconfig}", kubeconfig)
	args := slices.Clone(h.Command[1:])
	for i := range args {
		args[i] = replace.Replace(args[i])
	}
	cmd := exec.CommandContext(ctx, h.Command[0], args...)
	cmd.Env = append(env, "KUBECONFIG="+kubeconfig, cluster.KubeconfigVariable+"="+h.Cluster.Kubeconfig, "NODE_NAME="+node.Name)
	for _, variable := range h.Env {
		cmd.Env = append(cmd.Env, replace.Replace(variable))
	}
	proc.Group(cmd)
	terminate := cmd.Cancel
	cmd.Cancel = func() error {
		if errors.Is(context.Cause(ctx), errPowerOff) {
			return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
		return terminate()
	}
	output, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	write.Close()
	if err != nil {
		return err
	}
	h.log(node, "started, boot %d", machine.Boots(node))
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		h.copyLines(node, output)
	}()
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)    // its children, which hold the output open
	_ = output.SetReadDeadline(time.Now().Add(proc.Grace)) // unless they have left the process group
	<-copied
	if err == nil {
		err = errors.New("exit status 0")
	}
	return err
}

// kubeconfig returns the path of the kubeconfig of a machine's process.
func (h *host) kubeconfig(ctx context.Context, node *corev1.Node) (string, error) {
	if h.Account == "" {
		return h.Cluster.Kubeconfig, nil
	}
	namespace, name, _ := strings.Cut(h.Account, "/")
	config, err := h.Cluster.NodeServiceAccountConfig(ctx, namespace, name, node)
	if err != nil {
		return "", err
	}
	path := filepath.Join(h.scratch, node.Name+".kubeconfig")
	return path, cluster.WriteKubeconfig(path, config, namespace)
}

// copyLines passes on what a machine's process prints, line by line.
func (h *host) copyLines(node *corev1.Node, from io.Reader) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadSlice('\n') // or the beginning of a line that is too long for the buffer
		if text := strings.TrimSuffix(string(line), "\n"); text != "" || err == nil {
			h.mu.Lock()
			fmt.Fprintf(h.Output, "[%s] %s\n", node.Name, text)
			h.mu.Unlock()
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (h *host) log(node *corev1.Node, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintf(h.Log, "[%s] %s: %s\n", node.Name, filepath.Base(h.Command[0]), fmt.Sprintf(format, args...))
}
