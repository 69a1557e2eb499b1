package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
)

// nodes returns how many Nodes are needed: each can run 110 Pods, and while Pods are being replaced, the old and the
// new ones exist at once.
func (o options) nodes() int {
	most := 2 * len(lessons) * o.pods
	if count := len(o.growth); count > 0 {
		most = max(most, len(lessons)*o.pods+o.growth[count-1])
	}
	return max(20, most/110*6/5+1) // a fifth more than the minimum
}

// deletion is how long one deletion takes with client-go's default limit of 5 requests per second.
const deletion = time.Second / 5

// scenario estimates how long the scenario takes.
func (o options) scenario() time.Duration {
	replacement := time.Duration(o.pods)*deletion + 4*time.Second
	return time.Duration(o.changes+2)*replacement + o.quiet + 2*patience*pollInterval
}

// estimate estimates how long the whole run takes, without building the programs.
func (o options) estimate() time.Duration {
	return o.scenario() + time.Duration(len(o.growth))*(o.window+10*time.Second)
}

// measure starts a cluster, measures all lessons of the repository at root on it, and stops the cluster again.
func measure(ctx context.Context, o options, root string, progress io.Writer) (_ results, err error) {
	programs, err := buildAll(ctx, root, os.Stderr)
	if err != nil {
		return results{}, err
	}
	c, err := cluster.Start(ctx, cluster.Options{Nodes: o.nodes(), Progress: os.Stderr})
	if err != nil {
		return results{}, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		select {
		case <-c.Done():
			cancel(c.Err())
		case <-finished:
		}
	}()
	w := &world{ctx: ctx, fail: cancel, cluster: c, root: root, scratch: filepath.Join(c.Dir(), "score")}
	if err := os.Mkdir(w.scratch, 0o700); err != nil {
		return results{}, err
	}
	if w.client, err = c.Client(); err != nil {
		return results{}, err
	}
	say := func(format string, values ...any) { fmt.Fprintf(progress, "score: "+format+"\n", values...) }
	say("the whole run takes about %s", o.estimate().Round(10*time.Second))

	measured := results{
		Kubernetes: c.Version, System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Nodes: c.Nodes,
		Pods: o.pods, Changes: o.changes, Quiet: o.quiet, Window: o.window, Interval: interval,
		Lessons: make([]score, len(lessons)),
	}
	for i, l := range lessons {
		measured.Lessons[i].Title = l.title
	}
	err = playScenario(w, o, programs, measured.Lessons, say)
	if err == nil {
		err = grow(w, o, programs, measured.Lessons, say)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the reason, not the requests that failed because of it
	}
	return measured, err
}

// playScenario runs all lessons at the same time, each in its own namespace, and fills in their scores.
func playScenario(w *world, o options, programs []string, scores []score, say func(string, ...any)) (err error) {
	scenes := make([]*scene, len(lessons))
	defer func() {
		for _, s := range scenes {
			if s != nil && err != nil {
				err = errors.Join(err, s.stop())
			}
		}
	}()
	say("%d lessons with a frontend of %d Pods each", len(lessons), o.pods)
	for i, l := range lessons {
		if scenes[i], err = open(w, l, programs[i], o.pods, &scores[i]); err != nil {
			return fmt.Errorf("%s: %w", l.title, err)
		}
	}
	started := time.Now()
	if err := together(scenes, func(s *scene) error { return s.runner.start() }); err != nil {
		return err
	}
	if err := together(scenes, func(s *scene) error { return s.awaitSync(started) }); err != nil {
		return err
	}
	for number := range o.changes {
		outcomes, err := changeAll(scenes, func(s *scene, took time.Duration, lost bool) {
			if !lost {
				s.score.Times = append(s.score.Times, took)
			}
		})
		if err != nil {
			return err
		}
		say("change %d of %d: %s", number+1, o.changes, outcomes)
	}

	if err := together(scenes, func(s *scene) error { _, err := s.frontend.atRest(s.replicas); return err }); err != nil {
		return err
	}
	say("idle, for %s", o.quiet)
	var runners []*runner
	for _, s := range scenes {
		runners = append(runners, s.runner)
	}
	from, to, err := w.pause(o.quiet, runners...)
	if err != nil {
		return err
	}

	for _, s := range scenes {
		if err := s.proxy.SetFaults(apiproxy.Fault{Match: apiproxy.Match{Verb: "delete", Resource: "pods", From: 2, To: 2}, Effect: apiproxy.Effect{Refuse: 500}}); err != nil {
			return err
		}
	}
	outcomes, err := changeAll(scenes, nil)
	if err != nil {
		return err
	}
	say("change with one deletion refused: %s", outcomes)
	for _, s := range scenes {
		if err := s.proxy.SetFaults(); err != nil {
			return err
		}
	}

	if err := together(scenes, func(s *scene) error { return s.controller.stop() }); err != nil {
		return err
	}
	if outcomes, err = changeAllAnd(scenes, func(s *scene) error { return s.runner.start() }, nil); err != nil {
		return err
	}
	say("change during a restart: %s", outcomes)
	for _, s := range scenes {
		if err := s.stop(); err != nil {
			return fmt.Errorf("%s: %w", s.lesson.title, err)
		}
		h := s.wire.History()
		s.score.count(h)
		s.score.Rest = perMinute(h, from, to)
	}
	return nil
}

// changeAll changes the config of all scenes at the same moment, and returns a summary of the outcomes.
func changeAll(scenes []*scene, each func(s *scene, took time.Duration, lost bool)) (outcomes string, err error) {
	return changeAllAnd(scenes, func(*scene) error { return nil }, each)
}

// changeAllAnd is changeAll with a step between the change and waiting for its outcome.
func changeAllAnd(scenes []*scene, then func(*scene) error, each func(s *scene, took time.Duration, lost bool)) (outcomes string, err error) {
	if err := together(scenes, func(s *scene) error { _, err := s.frontend.atRest(s.replicas); return err }); err != nil {
		return "", err
	}
	words := make([]string, len(scenes))
	err = together(scenes, func(s *scene) error {
		c, err := s.change()
		if err != nil {
			return err
		}
		if err := then(s); err != nil {
			return err
		}
		took, lost, err := s.outcome(c)
		if err != nil {
			return err
		}
		if each != nil {
			each(s, took, lost)
		}
		word := seconds(took)
		if lost {
			word = "lost"
		}
		for i := range scenes {
			if scenes[i] == s {
				words[i] = s.lesson.title + " " + word
			}
		}
		return nil
	})
	return strings.Join(words, ", "), err
}

// grow measures what an idle controller of each lesson costs with more and more Pods. The three watch the same frontend
// as administrator. They do not interfere, because nothing changes.
func grow(w *world, o options, programs []string, scores []score, say func(string, ...any)) error {
	const namespace = "growth"
	_, err := w.client.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", namespace, err)
	}
	f, err := deploy(w, namespace, lessons[0].dir, 0)
	if err != nil {
		return err
	}
	for _, size := range o.growth {
		if err := f.scale(size); err != nil {
			return err
		}
		if _, err := f.atRest(size); err != nil {
			return err
		}
		say("%d Pods, for %s", size, o.window)
		if err := restAt(f, size, o.window, programs, scores); err != nil {
			return fmt.Errorf("with %d Pods: %w", size, err)
		}
	}
	return nil
}

// restAt measures the idle controllers with one number of Pods.
func restAt(f *frontend, size int, window time.Duration, programs []string, scores []score) (err error) {
	administrator, err := f.cluster.Config()
	if err != nil {
		return err
	}
	var runners []*runner
	stopped := false
	stop := func() error {
		stopped = true
		var errs []error
		for _, r := range runners {
			errs = append(errs, r.stop())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if !stopped {
			err = errors.Join(err, stop())
		}
	}()
	started := time.Now()
	for i, l := range lessons {
		r, err := newRunner(f.world, l, programs[i], f.namespace, administrator)
		if err != nil {
			return err
		}
		runners = append(runners, r)
		if err := r.start(); err != nil {
			return err
		}
	}
	for _, r := range runners {
		if err := r.awaitSync(started); err != nil {
			return fmt.Errorf("%s: %w", r.lesson.title, err)
		}
	}
	from, to, err := f.pause(window, runners...)
	if err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	for i, r := range runners {
		h := r.wire.History()
		scores[i].Growth = append(scores[i].Growth, point{Pods: size, Rest: perMinute(h, from, to), Costs: h.Cost()})
	}
	return nil
}

// pause waits, and returns when it began and ended. On a slow machine, it waits longer than asked: until each of the runners
// that polls has made a few passes. Of one pass or less, the cost depends on which of its requests are in the interval.
func (w *world) pause(long time.Duration, runners ...*runner) (from, to time.Time, err error) {
	from = time.Now()
	select {
	case <-time.After(long):
	case <-w.ctx.Done():
		return from, to, context.Cause(w.ctx)
	}
	err = w.until("the controllers that poll have listed the Pods", func() string {
		for _, r := range runners {
			if !polledSince(r.wire.History(), from) {
				return fmt.Sprintf("%s has listed them fewer than %d times", r.lesson.title, passes)
			}
		}
		return ""
	})
	return from, time.Now(), err
}
