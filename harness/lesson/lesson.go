// Package lesson finds the lessons of the repository and plays them on a cluster.
//
// A lesson is a directory "NN-name" with a page, README.md (package play), and a kustomization in
// manifests/, which says which namespace the lesson uses, and which objects it creates outside of it.
package lesson

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/machine"
	"example.com/controllers/harness/play"
	"example.com/controllers/harness/proc"
)

// Label marks the namespaces that were created for a lesson. Its value is the lesson's directory.
const Label = "workshop.controllers.example.com/lesson"

// Lesson is one of the repository's lessons.
type Lesson struct {
	Number int
	Dir    string // absolute
}

// Name returns the name of the lesson's directory.
func (l Lesson) Name() string { return filepath.Base(l.Dir) }

// PagePath returns the path of the lesson's page.
func (l Lesson) PagePath() string { return filepath.Join(l.Dir, "README.md") }

var directory = regexp.MustCompile(`^(\d\d)-`)

// All returns the lessons of the repository at root, in order.
func All(root string) ([]Lesson, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var lessons []Lesson
	for _, entry := range entries {
		match := directory.FindStringSubmatch(entry.Name())
		if match == nil || !entry.IsDir() {
			continue
		}
		if number, err := strconv.Atoi(match[1]); err == nil {
			lessons = append(lessons, Lesson{Number: number, Dir: filepath.Join(root, entry.Name())})
		}
	}
	return lessons, nil
}

// Find returns the lesson with a number. If there is none, the error lists the lessons.
func Find(root, number string) (Lesson, error) {
	lessons, err := All(root)
	if err != nil {
		return Lesson{}, err
	}
	if wanted, err := strconv.Atoi(number); err == nil {
		for _, l := range lessons {
			if l.Number == wanted {
				return l, nil
			}
		}
	}
	var all []string
	for _, l := range lessons {
		all = append(all, fmt.Sprintf("  make lesson %d   (%s)", l.Number, l.Name()))
	}
	complaint := fmt.Sprintf("there is no lesson %q.", number)
	if number == "" {
		complaint = "which lesson?"
	}
	return Lesson{}, fmt.Errorf("%s There are:\n%s", complaint, strings.Join(all, "\n"))
}

// Stage is a cluster with a lesson's namespace in it.
type Stage struct {
	Lesson    Lesson
	Cluster   *cluster.Cluster
	Namespace string
	// Outside names the objects of the lesson's manifests that are in no namespace, such as "ClusterRole naive-loop".
	Outside []string

	// Workshop is the path of the workshop's command, which is then on the PATH of the page's commands; "" if they need none.
	Workshop string
	// Page is what [Stage.Play] plays; if it is nil, the lesson's page, whose quotes must then be what the files have.
	Page *play.Page

	// Recordings is a directory for recordings of the requests of the page's programs; "" if there are to be none.
	Recordings string

	client  kubernetes.Interface
	scratch string
}

// Prepare finds out what playing the lesson would create on the cluster, without changing anything there. scratch is a
// directory for files; the caller removes it at the end.
func Prepare(ctx context.Context, l Lesson, c *cluster.Cluster, scratch string) (*Stage, error) {
	client, err := c.Client()
	if err != nil {
		return nil, err
	}
	s := &Stage{Lesson: l, Cluster: c, client: client, scratch: scratch}
	manifests, err := s.kubectl(ctx, "kustomize", "manifests")
	if err != nil {
		return nil, err
	}
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		var object metav1.PartialObjectMetadata
		if err := documents.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read the manifests of %s: %w", l.Name(), err)
		}
		switch {
		case object.Namespace == "":
			s.Outside = append(s.Outside, object.Kind+" "+object.Name)
		case s.Namespace == "":
			s.Namespace = object.Namespace
		case s.Namespace != object.Namespace:
			return nil, fmt.Errorf("the manifests of %s use two namespaces, %s and %s", l.Name(), s.Namespace, object.Namespace)
		}
	}
	if s.Namespace == "" {
		return nil, fmt.Errorf("the manifests of %s name no namespace; set one in %s/manifests/kustomization.yaml", l.Name(), l.Name())
	}
	return s, nil
}

// RequireNodes returns an error unless the cluster has at least that many simulated nodes.
func (s *Stage) RequireNodes(ctx context.Context, count int) error {
	if count == 0 {
		return nil
	}
	nodes, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: machine.PowerLabel})
	if err != nil {
		return fmt.Errorf("count the simulated nodes of %s: %w", s.Cluster.Name, err)
	}
	if len(nodes.Items) < count {
		return fmt.Errorf("lesson %d needs %d simulated nodes, and %s has %d", s.Lesson.Number, count, s.Cluster.Name, len(nodes.Items))
	}
	return nil
}

// openLimit is how long [Stage.Open] waits for the namespace of an earlier run to be gone.
const openLimit = 2 * time.Minute

// Open creates the lesson's namespace. It first deletes one that an earlier run of the lesson has left, which takes at most
// two minutes. A namespace of that name that no lesson created is an error, and so is an object of the manifests that
// exists without the namespace. They are not touched.
func (s *Stage) Open(ctx context.Context) error {
	namespace, err := s.client.CoreV1().Namespaces().Get(ctx, s.Namespace, metav1.GetOptions{})
	switch {
	case err == nil && namespace.Labels[Label] != s.Lesson.Name():
		return fmt.Errorf("there is a namespace %q on %s that the lesson did not create; it was not touched. Play the lesson on another cluster",
			s.Namespace, s.Cluster.Name)
	case err == nil:
		cleaning, cancel := context.WithTimeout(ctx, openLimit)
		defer cancel()
		if err := s.Clean(cleaning); err != nil {
			return fmt.Errorf("delete what an earlier run of the lesson has left: %w", err)
		}
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get namespace %s: %w", s.Namespace, err)
	default:
		found, err := s.kubectl(ctx, "get", "-k", "manifests", "--ignore-not-found", "--output", "name")
		if err != nil {
			return err
		}
		if names := strings.Fields(string(found)); len(names) > 0 {
			return fmt.Errorf("on %s there is already %s, which the lesson did not create; it was not touched. Play the lesson on another cluster, or, if an earlier run has left it, delete it: kubectl delete --ignore-not-found -k %s/manifests",
				s.Cluster.Name, strings.Join(names, ", "), s.Lesson.Name())
		}
	}
	_, err = s.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: s.Namespace, Labels: map[string]string{Label: s.Lesson.Name()},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", s.Namespace, err)
	}
	return nil
}

// Clean deletes the objects of the lesson's manifests and the namespace, and waits until the namespace is gone.
func (s *Stage) Clean(ctx context.Context) error {
	if err := s.Delete(ctx); err != nil {
		return err
	}
	return s.AwaitGone(ctx)
}

// Delete deletes the objects of the lesson's manifests, and then the namespace, which shows until then that they are the
// lesson's. It returns when the API server has accepted the deletions; the namespace may not be gone yet. A deletion that fails
// is retried until ctx ends, unless it is forbidden.
func (s *Stage) Delete(ctx context.Context) error {
	deleteManifests := func(ctx context.Context) error {
		_, err := s.kubectl(ctx, "delete", "-k", "manifests", "--ignore-not-found", "--wait=false")
		return err
	}
	deleteNamespace := func(ctx context.Context) error {
		err := s.client.CoreV1().Namespaces().Delete(ctx, s.Namespace, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	if err := retry(ctx, deleteManifests); err != nil {
		return err
	}
	if err := retry(ctx, deleteNamespace); err != nil {
		return fmt.Errorf("delete namespace %s on %s: %w", s.Namespace, s.Cluster.Name, err)
	}
	return nil
}

// retry calls do until it succeeds, ctx ends, or the API server forbids it.
func retry(ctx context.Context, do func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := do(ctx)
		if ctx.Err() == nil || last == nil { // the end of ctx must not hide what was wrong before
			last = err
		}
		if apierrors.IsForbidden(err) || err != nil && strings.Contains(err.Error(), "(Forbidden)") { // as kubectl says it
			return false, err
		}
		return err == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%v (%w)", last, context.Cause(ctx))
	}
	return last
}

// AwaitGone waits until the namespace is gone.
func (s *Stage) AwaitGone(ctx context.Context) error {
	var last *corev1.Namespace
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		current, err := s.client.CoreV1().Namespaces().Get(ctx, s.Namespace, metav1.GetOptions{})
		if err == nil {
			last = current
		}
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		return fmt.Errorf("namespace %s on %s is being deleted but is not gone yet: %w%s", s.Namespace, s.Cluster.Name, context.Cause(ctx), remainingFinalizers(last))
	}
	return nil
}

// remainingFinalizers returns which finalizers block the deletion of a namespace, according to its conditions. A lesson that
// was interrupted may leave objects whose finalizers no controller removes any more.
func remainingFinalizers(namespace *corev1.Namespace) string {
	if namespace == nil {
		return ""
	}
	for _, c := range namespace.Status.Conditions {
		if c.Type == corev1.NamespaceFinalizersRemaining && c.Status == corev1.ConditionTrue {
			return "; " + c.Message + ". Remove them with kubectl edit"
		}
	}
	return ""
}

// Play plays the lesson's page, and returns the requests that reached the API server meanwhile. It sets the player's Env
// and Scratch.
func (s *Stage) Play(ctx context.Context, player play.Player) (result play.Result, asked *history.History, err error) {
	page := s.Page
	if page == nil {
		if page, err = play.Read(s.Lesson.PagePath()); err != nil {
			return play.Result{}, nil, err
		}
	}
	upstream, err := s.Cluster.Config()
	if err != nil {
		return play.Result{}, nil, err
	}
	var recording history.Memory
	record := recording.Record
	if s.Recordings != "" {
		file, fileErr := apiproxy.NewFileRecorder(filepath.Join(s.Recordings, "all.jsonl"))
		if fileErr != nil {
			return play.Result{}, nil, fileErr
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		record = func(r history.Record) {
			recording.Record(r)
			file.Record(r)
		}
		player.Typed, player.Ran = typed(file.Record), ran(file.Record)
		player.Env = append(slices.Clone(player.Env), apiproxy.RecordingsVariable+"="+s.Recordings)
	}
	proxy, err := apiproxy.Start(context.WithoutCancel(ctx), apiproxy.Options{Upstream: upstream, Record: record})
	if err != nil {
		return play.Result{}, nil, fmt.Errorf("record the requests to %s: %w", s.Cluster.Name, err)
	}
	defer func() { err = errors.Join(err, proxy.Stop()) }()
	if err := cluster.WriteKubeconfig(s.Kubeconfig(), proxy.Config(), s.Namespace); err != nil {
		return play.Result{}, nil, err
	}
	player.Scratch = s.scratch
	builds, err := gobuild.Env(ctx)
	if err != nil {
		return play.Result{}, nil, err
	}
	player.Env = slices.Concat(builds, s.Env(), player.Env)
	result, err = player.Play(ctx, page)
	return result, recording.History(), err
}

// Kubeconfig returns the path of the kubeconfig that the page's commands use. It is there once [Stage.Play] has begun, and leads
// through a proxy that ends with it.
func (s *Stage) Kubeconfig() string { return filepath.Join(s.scratch, s.Namespace+".kubeconfig") }

// Env returns the variables with which the page's commands reach the cluster and the workshop's command. Their requests go through
// a proxy, so they are answered while [Stage.Play] runs.
func (s *Stage) Env() []string {
	here := *s.Cluster
	here.Kubeconfig = s.Kubeconfig()
	env := append(here.Env(s.scratch), cluster.KubeconfigVariable+"="+s.Cluster.Kubeconfig)
	if s.Workshop != "" {
		path := []string{filepath.Dir(s.Workshop), os.Getenv("PATH")}
		if here.Kubectl != "" {
			path = append([]string{here.Kubectl}, path...)
		}
		env = append(env, "PATH="+strings.Join(path, string(os.PathListSeparator)))
	}
	return env
}

// kubectl runs kubectl in the lesson's directory and returns its output. Ctrl-C does not reach it: a clean-up goes on.
func (s *Stage) kubectl(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.Cluster.Kubectl, "kubectl"), args...)
	cmd.Dir = s.Lesson.Dir
	cmd.Env = append(os.Environ(), s.Cluster.Env(s.scratch)...)
	proc.Group(cmd)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
