package torturejob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/torture"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

// lines are a worker's log: the plans with these numbers passed.
func lines(t *testing.T, numbers ...int) *bytes.Buffer {
	t.Helper()
	var text bytes.Buffer
	w := torture.NewOutcomeWriter(marked{&text})
	for _, n := range numbers {
		require.NoError(t, w.Write(n, torture.Outcome{Plan: torture.NoFault, History: &history.History{}}))
	}
	return &text
}

func newGatherer(plans int, finished func(int)) (*gatherer, context.Context) {
	ctx, stop := context.WithCancelCause(context.Background())
	return &gatherer{
		Options: Options{Plans: plans, Progress: io.Discard}, stop: stop, done: map[int]bool{}, problems: map[string]string{},
		finished: func(n int, _ torture.Outcome) error { finished(n); return nil },
	}, ctx
}

// The controllers that a worker runs could reach the cluster that the worker is in, with a Pod's own service account.
func TestAWorkerHasNoServiceAccountToken(t *testing.T) {
	pod := Options{Workers: 1}.job().Spec.Template.Spec
	require.Equal(t, ptr.To(false), pod.AutomountServiceAccountToken)
	for _, volume := range pod.Volumes {
		require.Nil(t, volume.Projected, volume.Name)
		require.Nil(t, volume.Secret, volume.Name)
	}
}

// A Pod is lost in the middle of a line. Its index runs again, and reports all of its plans.
func TestOutcomesOfALostPodCountOnce(t *testing.T) {
	var finished []int
	g, ctx := newGatherer(3, func(n int) { finished = append(finished, n) })
	cut := lines(t, 0, 2)
	cut.Truncate(cut.Len() - 10)
	complete, err := g.readLines(io.MultiReader(strings.NewReader("torture: baseline\n"), cut))
	require.NoError(t, err)
	require.False(t, complete)
	require.Equal(t, []int{0}, finished)
	require.NoError(t, ctx.Err())

	complete, err = g.readLines(io.MultiReader(lines(t, 0, 2), strings.NewReader(doneLine+"\n")))
	require.NoError(t, err)
	require.True(t, complete)
	_, err = g.readLines(lines(t, 1, 7)) // there is no plan 7
	require.NoError(t, err)
	require.Equal(t, []int{0, 2, 1}, finished)
	require.ErrorIs(t, context.Cause(ctx), errComplete)
}

func TestLinesThatAreNotOutcomes(t *testing.T) {
	g, _ := newGatherer(1, func(int) {})
	_, err := g.readLines(strings.NewReader(outcomeMark + "{\n"))
	require.ErrorContains(t, err, "read an outcome")
}

func TestAnErrorOfTheCallerEndsIt(t *testing.T) {
	g, ctx := newGatherer(2, func(int) {})
	full := errors.New("the disk is full")
	g.finished = func(int, torture.Outcome) error { return full }
	_, err := g.readLines(lines(t, 0))
	require.NoError(t, err)
	require.ErrorIs(t, context.Cause(ctx), full)
}

func TestProblemOf(t *testing.T) {
	state := func(s corev1.ContainerState) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: s}}}}
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"it starts":                 {state(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}), ""},
		"the image is not there":    {state(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull", Message: "not present"}}), "ErrImageNeverPull: not present"},
		"it has failed":             {state(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "a\nworkshop: no space\n"}}), "exit status 1: workshop: no space"},
		"it had too little memory":  {state(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}), "OOMKilled: its plans needed more memory than --memory allows; give it more, or run fewer at a time with --parallel"},
		"it has succeeded":          {state(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: doneLine}}), ""},
		"it fits on no node":        {&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes"}}}}, "Unschedulable: 0/3 nodes"},
		"it was lost with its node": {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "NodeLost"}}, "NodeLost"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, problemOf(c.pod)) })
	}
}

func TestEndOf(t *testing.T) {
	job := &batchv1.Job{}
	_, over := endOf(job)
	require.False(t, over)
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Message: "index 1 failed"}}
	reason, over := endOf(job)
	require.True(t, over)
	require.Equal(t, "Failed index 1 failed", reason)
}

// The API server accepts the Job, its Pods are admitted under the restricted Pod Security Standard, and nothing stays behind.
// The Pods of a simulated node complete at once and have no logs.
func TestJobOnAControlPlane(t *testing.T) {
	f := clustertest.New(t)
	var progress bytes.Buffer
	o := Options{
		Client: f.Client, Namespace: f.Namespace + "-torture", Image: "torture:dev", PullPolicy: corev1.PullNever, Workers: 2, Plans: 4,
		Arguments: []string{"--scenario", scenarioPath}, CPU: resource.MustParse("100m"), Memory: resource.MustParse("64Mi"), Retries: 1, Progress: &progress,
	}
	err := Run(t.Context(), o, func(int, torture.Outcome) error { return nil })
	require.ErrorContains(t, err, "4 of 4 plans have no outcome")
	require.ErrorContains(t, err, "its log cannot be read")
	f.Eventually("wait until the namespace is gone", func(ctx context.Context) string {
		namespace, err := f.Client.CoreV1().Namespaces().Get(ctx, o.Namespace, metav1.GetOptions{})
		if err == nil && namespace.DeletionTimestamp == nil {
			return "it is not being deleted"
		}
		return ""
	})

	// A namespace that was there before stays, and the Job does not.
	o.Namespace = f.Namespace
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := errors.New("cancelled")
	created := make(chan struct{})
	o.Progress = writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("4 plans on 2 Pods")) {
			close(created)
			cancel()
		}
		return len(p), nil
	})
	err = Run(ctx, o, func(int, torture.Outcome) error { return cancelled })
	<-created
	require.ErrorIs(t, err, context.Canceled)
	jobs, err := f.Client.BatchV1().Jobs(f.Namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, jobs.Items)
	_, err = f.Client.CoreV1().Namespaces().Get(t.Context(), f.Namespace, metav1.GetOptions{})
	require.False(t, apierrors.IsNotFound(err))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestReadWorkerWrongInput(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	scenario := write("scenario.yaml", "resources: [pods]\nsteps: []\nconverged: [{rule: \"true\"}]\n")
	plans := write("plans.jsonl", `{"kind":"no fault","faults":[]}`+"\n")
	command := []string{"/bin/true"}
	_, err := ReadWorker(t.Context(), scenario, plans, command)
	require.ErrorContains(t, err, `JOB_COMPLETION_INDEX is ""`)
	t.Setenv("JOB_COMPLETION_INDEX", "1")
	t.Setenv("TORTURE_WORKERS", "2")
	w, err := ReadWorker(t.Context(), scenario, plans, command)
	require.NoError(t, err)
	require.Equal(t, 1, w.Index)
	require.Equal(t, torture.Single("/bin/true"), w.Commands)

	var out bytes.Buffer
	w.Out = &out
	require.NoError(t, w.Run(t.Context())) // there is one plan, which index 0 runs
	require.Equal(t, doneLine+"\n", out.String())

	_, err = ReadWorker(t.Context(), scenario, write("broken.jsonl", "{"), command)
	require.ErrorContains(t, err, "broken.jsonl: plan 1")
	_, err = ReadWorker(t.Context(), scenario, plans, nil)
	require.ErrorContains(t, err, "the scenario names no controller")
	_, err = ReadWorker(t.Context(), filepath.Join(dir, "none.yaml"), plans, command)
	require.ErrorContains(t, err, "none.yaml")
}
