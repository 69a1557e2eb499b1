package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/controllers/reboot/drain"
	"example.com/controllers/reboot/protocol"
)

// watch keeps the view up to date, and calls changed after each change, until ctx is cancelled or changed returns an error. It
// watches the Nodes, the ledger, the Pods that forbid reboots, and the Pods of the selected Nodes that are being drained.
func (o *observer) watch(ctx context.Context, selected func(*corev1.Node) bool, changed func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{observer: o, updates: make(chan func() bool), drains: map[string]func(){}}
	defer w.informers.Wait()
	defer cancel()
	if err := w.watchNodes(ctx); err != nil {
		return err
	}
	if o.settings != nil {
		if err := w.watchLedger(ctx, o.settings.Namespace, o.settings.Name); err != nil {
			return err
		}
	}
	if err := w.watchBlockers(ctx); err != nil {
		return err
	}
	if err := w.watchAgents(ctx); err != nil {
		return err
	}
	if err := w.watchDrains(ctx, selected); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case update := <-w.updates:
			if !update() {
				continue
			}
			if err := w.watchDrains(ctx, selected); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return nil // whatever failed, failed because of that
			}
			if err := changed(); err != nil {
				return err
			}
		}
	}
}

// watch is the state of observer.watch. Its goroutine alone uses the observer: informers hand it updates, which report whether
// they have changed the view.
type watch struct {
	*observer
	updates   chan func() bool
	informers sync.WaitGroup
	drains    map[string]func() // each ends the watch of a Node's Pods
}

// update lets the goroutine of the watch call f, and returns when it is about to.
func (w *watch) update(ctx context.Context, f func() bool) {
	select {
	case w.updates <- f:
	case <-ctx.Done():
	}
}

// start starts a factory's informer, which gives its events to handle, on the goroutine of the watch: object is the one after
// the event, and nil if it was deleted.
func (w *watch) start(ctx context.Context, factory informers.SharedInformerFactory, informer cache.SharedIndexInformer, handle func(name string, object any) bool) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			w.update(ctx, func() bool { return handle(object.(metav1.Object).GetName(), object) })
		},
		UpdateFunc: func(_, object any) {
			w.update(ctx, func() bool { return handle(object.(metav1.Object).GetName(), object) })
		},
		DeleteFunc: func(object any) {
			name, err := cache.DeletionHandlingObjectToName(object)
			if err != nil {
				return
			}
			w.update(ctx, func() bool { return handle(name.Name, nil) })
		},
	})
	if err != nil {
		return err
	}
	// The reflector repeats a request that fails. To say so once is enough.
	err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil {
			w.update(ctx, func() bool {
				w.warn("a watch was interrupted, and is retried: %v", err)
				return false
			})
		}
	})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	w.informers.Go(func() {
		<-ctx.Done()
		factory.Shutdown()
	})
	return nil
}

func (w *watch) watchNodes(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(w.client, 0)
	informer := factory.Core().V1().Nodes().Informer()
	version := informer.GetStore().LastStoreSyncResourceVersion
	err := w.start(ctx, factory, informer, func(name string, object any) bool {
		i := slices.IndexFunc(w.view.Nodes, func(node *corev1.Node) bool { return node.Name == name })
		switch node, exists := object.(*corev1.Node); {
		case exists && i >= 0:
			old := w.view.Nodes[i]
			w.view.Nodes[i] = node
			if !protocol.Differ(old, node) { // a heartbeat, or one that was listed before
				return false
			}
		case exists:
			w.view.Nodes = append(w.view.Nodes, node)
		case i >= 0:
			w.view.Nodes = slices.Delete(w.view.Nodes, i, i+1)
		}
		w.refresh(version())
		return true
	})
	if err != nil {
		return err
	}
	// A Node that was deleted before the informer listed has no event.
	w.informers.Go(func() {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return
		}
		w.update(ctx, func() bool {
			w.view.Nodes = slices.DeleteFunc(w.view.Nodes, func(node *corev1.Node) bool {
				_, exists, err := informer.GetStore().GetByKey(node.Name)
				return err == nil && !exists
			})
			w.refresh(version())
			return true
		})
	})
	return nil
}

// refresh applies the settings to the current Nodes.
func (w *watch) refresh(nodesVersion string) {
	if err := w.setSettings(w.settings, nodesVersion); err != nil {
		w.warn("%v", err)
	}
}

func (w *watch) watchLedger(ctx context.Context, namespace, name string) error {
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithNamespace(namespace), only(metav1.ObjectNameField, name))
	return w.start(ctx, factory, factory.Core().V1().ConfigMaps().Informer(), func(changed string, object any) bool {
		if changed != name {
			return false
		}
		before := w.pausedLine()
		w.settings = nil
		if configMap, ok := object.(*corev1.ConfigMap); ok {
			w.settings = protocol.SettingsOf(configMap)
		}
		w.refresh("") // no Node that is missing is taken to be deleted
		switch after := w.pausedLine(); {
		case after == before:
		case after == "":
			fmt.Fprintln(w.warnings, "Reboots are resumed.")
		default:
			fmt.Fprintln(w.warnings, after)
		}
		return true
	})
}

func (w *watch) watchBlockers(ctx context.Context) error {
	var blocking []listers.PodLister
	for _, selector := range w.flags.options.BlockingPods {
		lister, err := w.watchPods(ctx, metav1.NamespaceAll, selector, func() bool {
			var pods []*corev1.Pod
			for _, lister := range blocking {
				some, _ := lister.List(labels.Everything()) // a lister's cache cannot fail
				pods = append(pods, some...)
			}
			before := w.view.Blockers
			w.view.Blockers = drain.Names(drain.Blockers(pods))
			return !maps.Equal(before, w.view.Blockers)
		})
		if err != nil {
			return err
		}
		blocking = append(blocking, lister)
	}
	return nil
}

func (w *watch) watchAgents(ctx context.Context) (err error) {
	if w.view.Agents == nil {
		return nil // not taken into account, or not to be read
	}
	var agents listers.PodLister
	agents, err = w.watchPods(ctx, w.agentNamespace(), w.flags.options.AgentPods, func() bool {
		pods, _ := agents.List(labels.Everything())
		before := w.view.Agents
		w.view.Agents = drain.Running(pods)
		return !maps.Equal(before, w.view.Agents)
	})
	return err
}

// watchPods watches some Pods, and calls changed on the goroutine of the watch, which runs after this has returned.
func (w *watch) watchPods(ctx context.Context, namespace string, selector labels.Selector, changed func() bool) (listers.PodLister, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(list *metav1.ListOptions) { list.LabelSelector = selector.String() }))
	lister := factory.Core().V1().Pods().Lister()
	return lister, w.start(ctx, factory, factory.Core().V1().Pods().Informer(), func(string, any) bool { return changed() })
}

// watchDrains watches the Pods of the selected Nodes that are being drained, and no others.
func (w *watch) watchDrains(ctx context.Context, selected func(*corev1.Node) bool) error {
	draining := map[string]bool{}
	for _, node := range w.view.Nodes {
		if selected(node) && protocol.PhaseOf(node) == protocol.Draining {
			draining[node.Name] = true
		}
	}
	for name, cancel := range w.drains {
		if !draining[name] {
			cancel()
			delete(w.drains, name)
			delete(w.view.Remaining, name)
		}
	}
	var errs []error
	for name := range draining {
		if _, watched := w.drains[name]; watched {
			continue
		}
		podsCtx, cancel := context.WithCancel(ctx)
		w.drains[name] = cancel
		factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, only("spec.nodeName", name))
		errs = append(errs, w.start(podsCtx, factory, factory.Core().V1().Pods().Informer(), func(string, any) bool {
			if podsCtx.Err() != nil {
				return false
			}
			w.observeDrain(podsCtx, name)
			return true
		}))
		w.observeDrain(podsCtx, name) // a Node without Pods has no events
	}
	return errors.Join(errs...)
}

// only lets informers see the objects of which a field has a value.
func only(field, value string) informers.SharedInformerOption {
	return informers.WithTweakListOptions(func(list *metav1.ListOptions) {
		list.FieldSelector = fields.OneTermEqualSelector(field, value).String()
	})
}
