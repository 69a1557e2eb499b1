// Program rebooter is an agent for torture's own tests. It reboots its machine once whenever the Node is given the
// annotation torture/reboot-wanted.
//
// It first writes the boot ID to the annotation torture/reboot-in-progress. When the Node has another boot ID than that,
// the machine has rebooted, and both annotations are removed.
//
// With BUG=restart-is-reboot in its environment, an agent that has just started takes that for the end of a reboot.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	wanted     = "torture/reboot-wanted"
	inProgress = "torture/reboot-in-progress"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig")
	node := flag.String("node", "", "name of the Node that this machine is")
	command := flag.String("reboot-command", "", "command that reboots the machine, its words separated by spaces")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rebooter:", err)
		os.Exit(1)
	}
	a := &agent{client: kubernetes.NewForConfigOrDie(config), node: *node, command: strings.Fields(*command), justStarted: true}
	a.run(ctx)
}

type agent struct {
	client      kubernetes.Interface
	node        string
	command     []string
	justStarted bool
	isRebooting bool // it has told the machine to reboot
}

func (a *agent) run(ctx context.Context) {
	factory := informers.NewSharedInformerFactoryWithOptions(a.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, a.node).String()
	}))
	nodes := factory.Core().V1().Nodes()
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // the next reconcile sees this change too
		}
	}
	_, _ = nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(_, _ any) { notify() },
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		node, err := nodes.Lister().Get(a.node)
		if err != nil {
			continue // it has been removed, and the machine with it
		}
		if err := a.reconcile(node); err != nil {
			fmt.Fprintln(os.Stderr, "rebooter:", err)
			time.AfterFunc(200*time.Millisecond, notify)
		}
		if a.justStarted = false; a.isRebooting {
			<-ctx.Done() // the machine goes down; a second command might reboot it again when it is up
			return
		}
	}
}

// reconcile takes the next step of a reboot. It is safe to repeat.
func (a *agent) reconcile(node *corev1.Node) error {
	_, isWanted := node.Annotations[wanted]
	before, isInProgress := node.Annotations[inProgress]
	bootID := node.Status.NodeInfo.BootID
	switch {
	case isInProgress && (before != bootID || a.justStarted && os.Getenv("BUG") == "restart-is-reboot"):
		return a.annotate(node, map[string]any{wanted: nil, inProgress: nil})
	case isInProgress: // whether the command was run before is unknown
		out, err := exec.Command(a.command[0], a.command[1:]...).CombinedOutput()
		if err != nil {
			return errors.New(string(out))
		}
		a.isRebooting = true
	case isWanted:
		return a.annotate(node, map[string]any{inProgress: bootID})
	}
	return nil
}

// annotate changes annotations, unless the Node has changed meanwhile.
func (a *agent) annotate(node *corev1.Node, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": node.ResourceVersion, "annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = a.client.CoreV1().Nodes().Patch(context.Background(), a.node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
