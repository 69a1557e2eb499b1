// Package torturejob runs plans of torture as an Indexed Job on a cluster, when one machine takes too long.
//
//   - Each index of the Job runs its share of the plans in a control plane of its own, and writes an outcome per line.
//   - A Pod that is lost is replaced by the Job controller, and its index runs again. Outcomes that were read before count.
//   - The Pods need nothing of the cluster but time: no rights, no volumes, no network.
//   - When [Run] returns, the Job is gone, whether it has succeeded or ctx was cancelled.
package torturejob

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"example.com/controllers/harness/torture"
)

const (
	// outcomeMark begins the lines of a Pod's log that have outcomes. Other lines tell how far it is.
	outcomeMark = "outcome "
	// name is the container's, and the label's value by which Jobs and namespaces of this package are known.
	name = "torture"
	// nameLabel is the label.
	nameLabel = "app.kubernetes.io/name"
	// Where the container finds its files.
	programsPath, scenarioPath, plansPath = "/usr/local/bin", "/scenario", "/plans.jsonl"
)

// Options say where and how the plans run.
type Options struct {
	Client kubernetes.Interface
	// Namespace is created if it does not exist, and deleted afterwards if it was created.
	Namespace string
	// Image has the workshop's command, the control plane, the programs under test, the scenario and the plans: see [Image].
	Image string
	// PullPolicy is Never for images that were loaded onto the nodes.
	PullPolicy corev1.PullPolicy
	// Workers is how many Pods there are at a time, each with a share of the plans. Plans is how many plans there are.
	Workers, Plans int
	// Arguments are those of the worker: the scenario's file in the image and more.
	Arguments []string
	// CPU and Memory are what each Pod requests. Memory is its limit, too: as many plans run at a time as it allows.
	CPU, Memory resource.Quantity
	// Retries is how often an index runs again after its Pod has failed. A Pod that was evicted, or lost with its node, has not
	// failed.
	Retries  int32
	Progress io.Writer
}

// Run creates the Job and calls finished for the outcome of each plan, by its number, from one goroutine at a time. It
// returns when all plans have outcomes, the Job has ended, finished returns an error, or ctx is cancelled.
func Run(ctx context.Context, o Options, finished func(number int, outcome torture.Outcome) error) (err error) {
	createdNamespace, err := o.ensureNamespace(ctx)
	if err != nil {
		return err
	}
	if createdNamespace {
		defer func() { err = errors.Join(err, o.cleanUp(ctx, o.deleteNamespace)) }()
	}
	job, err := o.Client.BatchV1().Jobs(o.Namespace).Create(ctx, o.job(), metav1.CreateOptions{FieldManager: "workshop"})
	if err != nil {
		return fmt.Errorf("create the Job: %w", err)
	}
	defer func() {
		err = errors.Join(err, o.cleanUp(ctx, func(ctx context.Context) error { return o.deleteJob(ctx, job) }))
	}()
	fmt.Fprintf(o.Progress, "torture: Job %s/%s: %d plans on %d Pods\n", o.Namespace, job.Name, o.Plans, o.Workers)
	return o.gather(ctx, job, finished)
}

// cleanUp calls do even if ctx was cancelled, but not for long.
func (o Options) cleanUp(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return do(ctx)
}

func (o Options) ensureNamespace(ctx context.Context) (created bool, err error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Namespace, Labels: map[string]string{
		nameLabel: name, "pod-security.kubernetes.io/enforce": "restricted",
	}}}
	_, err = o.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{FieldManager: "workshop"})
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err): // it may still be ours to use
		return false, nil
	}
	return false, fmt.Errorf("create namespace %s: %w", o.Namespace, err)
}

func (o Options) deleteNamespace(ctx context.Context) error {
	err := o.Client.CoreV1().Namespaces().Delete(ctx, o.Namespace, metav1.DeleteOptions{})
	if err != nil {
		return fmt.Errorf("delete namespace %s, which this run has created: %w", o.Namespace, err)
	}
	return nil
}

func (o Options) deleteJob(ctx context.Context, job *batchv1.Job) error {
	err := o.Client.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(job.UID)), PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the Job; delete it with kubectl -n %s delete job %s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// job returns the Job. If this process is killed, the Job goes on, and is deleted an hour after its end.
func (o Options) job() *batchv1.Job {
	labels := map[string]string{nameLabel: name}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "torture-", Namespace: o.Namespace, Labels: labels},
		Spec: batchv1.JobSpec{
			CompletionMode: ptr.To(batchv1.IndexedCompletion), Completions: ptr.To(int32(o.Workers)), Parallelism: ptr.To(int32(o.Workers)),
			BackoffLimitPerIndex: ptr.To(o.Retries), TTLSecondsAfterFinished: ptr.To[int32](3600),
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:          batchv1.PodFailurePolicyActionIgnore,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
			}}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
					SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
					Volumes:         []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
					Containers: []corev1.Container{{
						Name: name, Image: o.Image, ImagePullPolicy: o.PullPolicy,
						Args: append([]string{"torture-worker"}, o.Arguments...),
						Env: []corev1.EnvVar{
							{Name: "TORTURE_WORKERS", Value: fmt.Sprint(o.Workers)}, // the Job controller sets JOB_COMPLETION_INDEX
							{Name: "HOME", Value: "/tmp"}, {Name: "WORKSHOP_PROGRAMS", Value: programsPath}, {Name: "WORKSHOP_CONTROLPLANE", Value: programsPath + "/controlplane"},
						},
						VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
						Resources: corev1.ResourceRequirements{
							Requests: corev1.ResourceList{corev1.ResourceCPU: o.CPU, corev1.ResourceMemory: o.Memory},
							Limits:   corev1.ResourceList{corev1.ResourceMemory: o.Memory},
						},
						TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						},
					}},
				},
			},
		},
	}
}

// gatherer collects the outcomes of a Job's Pods.
type gatherer struct {
	Options
	finished func(number int, outcome torture.Outcome) error
	stop     context.CancelCauseFunc

	mu       sync.Mutex
	done     map[int]bool      // plans that have outcomes
	reading  map[string]bool   // Pods whose logs are read, by UID
	problems map[string]string // why Pods fail or do not start, by name
	group    sync.WaitGroup
}

// errComplete ends the gathering when all plans have outcomes.
var errComplete = errors.New("all plans have outcomes")

// gather follows the logs of all Pods of the Job until all plans have outcomes or no more come.
func (o Options) gather(ctx context.Context, job *batchv1.Job, finished func(int, torture.Outcome) error) error {
	outer := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g := &gatherer{Options: o, finished: finished, stop: stop, done: map[int]bool{}, reading: map[string]bool{}, problems: map[string]string{}}
	defer g.group.Wait()
	defer stop(nil)

	ofJob := informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = batchv1.JobNameLabel + "=" + job.Name })
	pods := informers.NewSharedInformerFactoryWithOptions(o.Client, 0, informers.WithNamespace(o.Namespace), ofJob)
	one := informers.WithTweakListOptions(func(l *metav1.ListOptions) {
		l.FieldSelector = fields.OneTermEqualSelector("metadata.name", job.Name).String()
	})
	jobs := informers.NewSharedInformerFactoryWithOptions(o.Client, 0, informers.WithNamespace(o.Namespace), one)
	ended := make(chan string, 1)
	seen := func(obj any) { g.seePod(ctx, obj) }
	if _, err := pods.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, now any) { seen(now) }}); err != nil {
		return err
	}
	seenJob := func(obj any) {
		if reason, over := endOf(obj); over {
			select {
			case ended <- reason:
			default:
			}
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: seenJob, UpdateFunc: func(_, now any) { seenJob(now) }, DeleteFunc: func(any) {
		select {
		case ended <- "somebody has deleted it":
		default:
		}
	}}
	if _, err := jobs.Batch().V1().Jobs().Informer().AddEventHandler(handler); err != nil {
		return err
	}
	pods.StartWithContext(ctx)
	jobs.StartWithContext(ctx)
	defer func() {
		stop(nil)
		pods.Shutdown()
		jobs.Shutdown()
	}()

	select {
	case <-ctx.Done():
	case reason := <-ended:
		return g.missing(ctx, outer, reason)
	}
	if outer.Err() != nil {
		return context.Cause(outer)
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errComplete) {
		return cause
	}
	return nil
}

// missing waits until the logs are read, and says which plans have no outcome after the Job's end.
func (g *gatherer) missing(ctx, outer context.Context, reason string) error {
	read := make(chan struct{})
	go func() { g.group.Wait(); close(read) }()
	select {
	case <-read:
	case <-ctx.Done():
	}
	if outer.Err() != nil {
		return context.Cause(outer)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errComplete) {
		return cause
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.Plans - len(g.done); n > 0 {
		text := fmt.Sprintf("the Job has ended (%s), and %d of %d plans have no outcome", reason, n, g.Plans)
		for _, pod := range slices.Sorted(maps.Keys(g.problems)) {
			text += "\n" + pod + ": " + g.problems[pod]
		}
		return errors.New(text)
	}
	return nil
}

// endOf reports whether a Job is over, and why.
func endOf(obj any) (reason string, over bool) {
	job, ok := obj.(*batchv1.Job)
	if !ok {
		return "", false
	}
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return strings.TrimSpace(string(c.Type) + " " + c.Message), true
		}
	}
	return "", false
}

// seePod begins to read the log of a Pod when its container has started, and notes why a Pod fails or cannot start.
func (g *gatherer) seePod(ctx context.Context, obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if problem := problemOf(pod); problem != "" {
		g.noteLocked(pod.Name, problem)
	}
	started := slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil || s.State.Terminated != nil })
	if !started || g.reading[string(pod.UID)] || ctx.Err() != nil {
		return
	}
	g.reading[string(pod.UID)] = true
	g.group.Go(func() { g.read(ctx, pod) })
}

// note prints a Pod's problem, and keeps it for the error at the end.
func (g *gatherer) note(pod, problem string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.noteLocked(pod, problem)
}

func (g *gatherer) noteLocked(pod, problem string) {
	if g.problems[pod] != problem {
		g.problems[pod] = problem
		fmt.Fprintf(g.Progress, "torture: Pod %s: %s\n", pod, problem)
	}
}

// problemOf says why a Pod has failed or cannot start; "" if nothing is wrong.
func problemOf(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		switch {
		case s.State.Waiting != nil && !slices.Contains([]string{"ContainerCreating", "PodInitializing"}, s.State.Waiting.Reason):
			return strings.TrimSpace(s.State.Waiting.Reason + ": " + s.State.Waiting.Message)
		case s.State.Terminated != nil && s.State.Terminated.Reason == "OOMKilled":
			return "OOMKilled: its plans needed more memory than --memory allows; give it more, or run fewer at a time with --parallel"
		case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
			lines := strings.Split(strings.TrimSpace(s.State.Terminated.Message), "\n")
			return fmt.Sprintf("exit status %d: %s", s.State.Terminated.ExitCode, lines[len(lines)-1])
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return strings.TrimSpace(c.Reason + ": " + c.Message)
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return strings.TrimSpace(pod.Status.Reason + " " + pod.Status.Message)
	}
	return ""
}

// read follows a Pod's log to its end, and begins again if the connection breaks. It gives up if a Pod is over and its log
// is lost, with its node for example.
func (g *gatherer) read(ctx context.Context, pod *corev1.Pod) {
	const attempts = 5
	for failures := 0; ctx.Err() == nil && failures < attempts; {
		complete, err := g.follow(ctx, pod)
		if complete || apierrors.IsNotFound(err) {
			return
		}
		current, getErr := g.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(getErr) || getErr == nil && current.UID != pod.UID:
			return // its index runs again
		case getErr == nil && err == nil && current.Status.Phase != corev1.PodRunning:
			return // that was all
		case getErr == nil && err != nil && current.Status.Phase != corev1.PodRunning:
			failures++
			g.note(pod.Name, fmt.Sprintf("its log cannot be read: %v", err))
		}
		select { // the kubelet or its node is gone for now
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
	}
}

// follow reads a Pod's log until it ends or breaks off. complete says that the worker has reported its last outcome.
func (g *gatherer) follow(ctx context.Context, pod *corev1.Pod) (complete bool, err error) {
	stream, err := g.Client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: name, Follow: true}).Stream(ctx)
	if err != nil {
		return false, err
	}
	defer stream.Close()
	return g.readLines(stream)
}

// doneLine is the last line of a worker's log.
const doneLine = outcomeMark + "done"

func (g *gatherer) readLines(stream io.Reader) (complete bool, err error) {
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return false, nil // what is left of a line was cut off
		}
		if err != nil {
			return false, err
		}
		text, isOutcome := bytes.CutPrefix(bytes.TrimSpace(line), []byte(outcomeMark))
		switch {
		case !isOutcome:
		case string(text) == strings.TrimPrefix(doneLine, outcomeMark):
			return true, nil
		default:
			number, outcome, err := torture.ReadOutcome(text)
			if err != nil {
				return false, fmt.Errorf("read an outcome: %w", err)
			}
			g.add(number, outcome)
		}
	}
}

// add counts an outcome, unless the plan has one already from a Pod that was lost later.
func (g *gatherer) add(number int, outcome torture.Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done[number] || number < 0 || number >= g.Plans {
		return
	}
	if err := g.finished(number, outcome); err != nil {
		g.stop(err)
		return
	}
	g.done[number] = true
	if len(g.done) == g.Plans {
		g.stop(errComplete)
	}
}
