package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/history"
	lessonpage "example.com/controllers/harness/lesson"
	"example.com/controllers/harness/proc"
)

// hangs bounds every wait. It is not an expectation of how long anything takes.
const hangs = 5 * time.Minute

// world is what all scenes share.
type world struct {
	ctx     context.Context // cancelled to end the run; its cause says why
	fail    func(error)     // ends the run
	cluster *cluster.Cluster
	client  kubernetes.Interface
	root    string // of the repository
	scratch string // directory that is removed with the cluster
}

// frontend is a frontend and its config, in a namespace of their own.
type frontend struct {
	*world
	namespace string
	*podWatch
}

// deploy creates the frontend of a lesson in a namespace. Its Pods are created in a later second than the config;
// otherwise a lesson that compares timestamps could not tell which came first.
func deploy(w *world, namespace, dir string, replicas int) (*frontend, error) {
	f := &frontend{world: w, namespace: namespace}
	text, err := os.ReadFile(filepath.Join(w.root, dir, "frontend.yaml"))
	if err != nil {
		return nil, err
	}
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read frontend.yaml of %s: %w", dir, err)
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("read frontend.yaml of %s: %w", dir, err)
		}
		switch object := object.(type) {
		case *corev1.ConfigMap:
			made, err := w.client.CoreV1().ConfigMaps(namespace).Create(w.ctx, object, metav1.CreateOptions{})
			if err != nil {
				return nil, fmt.Errorf("create the config of %s: %w", namespace, err)
			}
			if err := w.until("the second of the config is over", func() string { return sameSecond(made.CreationTimestamp.Time) }); err != nil {
				return nil, err
			}
		case *appsv1.Deployment:
			object.Spec.Replicas = new(int32(replicas))
			if _, err := w.client.AppsV1().Deployments(namespace).Create(w.ctx, object, metav1.CreateOptions{}); err != nil {
				return nil, fmt.Errorf("create the frontend of %s: %w", namespace, err)
			}
		default:
			return nil, fmt.Errorf("frontend.yaml of %s has a %T; expected a ConfigMap and then a Deployment", dir, object)
		}
	}
	if f.podWatch, err = watchPods(w.ctx, w.client, namespace); err != nil {
		return nil, err
	}
	return f, nil
}

// scale sets the number of replicas.
func (f *frontend) scale(replicas int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := f.client.AppsV1().Deployments(f.namespace).Patch(f.ctx, "frontend", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("scale the frontend of %s: %w", f.namespace, err)
	}
	return nil
}

// atRest waits until there are that many Pods, all Ready and created in an earlier second than now, and no event of them
// has arrived for a second. It returns their UIDs.
func (f *frontend) atRest(replicas int) (pods []types.UID, err error) {
	const moment = time.Second
	err = f.until("the Pods of "+f.namespace+" come to rest", func() string {
		uids, youngest, since, why := f.state(replicas)
		pods = uids
		switch {
		case why != "":
			return why
		case time.Since(since) < moment:
			return "an event has just arrived"
		}
		return sameSecond(youngest)
	})
	return pods, err
}

// sameSecond returns "" if a timestamp of the API server, which is in whole seconds, is of an earlier second than now.
func sameSecond(t time.Time) string {
	if time.Now().Truncate(time.Second).After(t) {
		return ""
	}
	return "it is still the same second"
}

// until polls until check returns "". After too long, it fails with what check returned last.
func (w *world) until(what string, check func() string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); ; {
		last := check()
		if last == "" {
			return nil
		}
		if time.Since(begin) > hangs {
			return fmt.Errorf("wait until %s: %s after %s", what, last, hangs)
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			return context.Cause(w.ctx)
		}
	}
}

// runner runs a lesson's controller behind a proxy, which records it.
type runner struct {
	*world
	lesson     lesson
	program    string // path
	namespace  string
	wire       *history.Memory
	proxy      *apiproxy.Proxy
	controller *controller // the last one that was started
}

// newRunner starts a proxy for a lesson's controller, which forwards requests with the credentials of upstream.
func newRunner(w *world, l lesson, program, namespace string, upstream *rest.Config) (*runner, error) {
	r := &runner{world: w, lesson: l, program: program, namespace: namespace, wire: &history.Memory{}}
	var err error
	// The proxy must outlive the controller, or the recording would end with requests that were cut off.
	r.proxy, err = apiproxy.Start(context.Background(), apiproxy.Options{Upstream: upstream, Record: r.wire.Record})
	return r, err
}

// start starts the controller.
func (r *runner) start() (err error) {
	kubeconfig := filepath.Join(r.scratch, r.namespace+"-"+r.lesson.account+".kubeconfig")
	r.controller, err = start(r.program, r.lesson.args, r.proxy.Config(), r.namespace, kubeconfig, func(err error) {
		r.fail(fmt.Errorf("%s: %w", r.lesson.title, err))
	})
	return err
}

// awaitSync waits until the controller, which was started after a time, has synced, and has been sent no event for a
// second.
func (r *runner) awaitSync(started time.Time) error {
	const moment = time.Second
	return r.until("the controller has synced", func() string {
		h := r.wire.History()
		switch {
		case !synced(h, started):
			return fmt.Sprintf("it has made %d requests and received %d events", len(h.Requests), len(h.Events))
		case len(h.Events) > 0 && time.Since(h.Events[len(h.Events)-1].Time) < moment:
			return "it has just received an event"
		}
		return ""
	})
}

// stop stops the controller and then the proxy, after which the recording is complete.
func (r *runner) stop() error {
	var err error
	if r.controller != nil {
		err = r.controller.stop()
	}
	return errors.Join(err, r.proxy.Stop())
}

// scene is a lesson with a frontend of its own, and what is measured there.
type scene struct {
	*runner
	frontend *frontend
	replicas int
	score    *score
}

// open creates the namespace of a lesson, with its ServiceAccount, its rights and a frontend.
func open(w *world, l lesson, program string, replicas int, result *score) (*scene, error) {
	stage, err := lessonpage.Prepare(w.ctx, lessonpage.Lesson{Dir: filepath.Join(w.root, l.dir)}, w.cluster, w.scratch)
	if err != nil {
		return nil, err
	}
	if err := stage.Open(w.ctx); err != nil {
		return nil, err
	}
	rbac := exec.CommandContext(w.ctx, filepath.Join(w.cluster.Kubectl, "kubectl"),
		"apply", "--filename", filepath.Join(w.root, l.dir, "manifests", "rbac.yaml"))
	rbac.Env = append(os.Environ(), w.cluster.Env(w.scratch)...)
	proc.Group(rbac)
	if out, err := rbac.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("apply manifests/rbac.yaml: %w\n%s", err, out)
	}
	f, err := deploy(w, stage.Namespace, l.dir, replicas)
	if err != nil {
		return nil, err
	}
	upstream, err := w.cluster.ServiceAccountConfig(w.ctx, stage.Namespace, l.account)
	if err != nil {
		return nil, err
	}
	r, err := newRunner(w, l, program, stage.Namespace, upstream)
	if err != nil {
		return nil, err
	}
	return &scene{runner: r, frontend: f, replicas: replicas, score: result}, nil
}

// change is a change of the config.
type change struct {
	made            time.Time   // just before the request
	resourceVersion string      // of the config after the change
	old             []types.UID // the Pods that must be replaced
}

// change changes the config, in a later second than those of the Pods.
func (s *scene) change() (change, error) {
	old, err := s.frontend.atRest(s.replicas)
	if err != nil {
		return change{}, err
	}
	c := change{made: time.Now(), old: old}
	patch := fmt.Appendf(nil, `{"data":{"greeting":"it is %d"}}`, c.made.UnixNano())
	config, err := s.client.CoreV1().ConfigMaps(s.namespace).Patch(s.ctx, configName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return change{}, fmt.Errorf("change the config: %w", err)
	}
	c.resourceVersion = config.ResourceVersion
	return c, nil
}

// outcome waits until a change has been applied or is lost. It returns how long it took until the last of the old Pods
// was being deleted.
func (s *scene) outcome(c change) (took time.Duration, lost bool, err error) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var idle idleness
	for begin := time.Now(); ; {
		count, last := s.frontend.replaced(c.old)
		if done := count == len(c.old); done || lost {
			s.score.Changes++
			s.score.Old += len(c.old)
			s.score.Replaced += count
			if !done {
				s.score.Lost++
			}
			return last.Sub(c.made), !done, nil
		}
		if time.Since(begin) > hangs {
			return 0, false, fmt.Errorf("after %s, %d of %d Pods have been replaced, and the controller is still active", hangs, count, len(c.old))
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return 0, false, context.Cause(s.ctx)
		}
		// With a request in it, an iteration takes longer when the API server is slow.
		if _, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(s.ctx, configName, metav1.GetOptions{}); err != nil {
			return 0, false, fmt.Errorf("get the config: %w", err)
		}
		lost = idle.observe(s.wire.History(), c.resourceVersion)
	}
}

// together calls do for all scenes concurrently and returns when the last call does. The first error ends the run.
func together(scenes []*scene, do func(*scene) error) error {
	var group errgroup.Group
	for _, s := range scenes {
		group.Go(func() error {
			err := do(s)
			if err != nil {
				err = fmt.Errorf("%s: %w", s.lesson.title, err)
				s.fail(err)
			}
			return err
		})
	}
	return group.Wait()
}
