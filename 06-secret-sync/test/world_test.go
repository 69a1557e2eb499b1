package test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/suite"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

// Each has a control plane of its own. Subtests start later than most other tests, so the two that take a minute start first:
// the page, and TestAtRest.
func TestController(t *testing.T) {
	t.Parallel()
	t.Run("Policy", testPolicy)
	t.Run("Rights", testRights)
	t.Run("NoRightsInSomeNamespaces", testNoRightsInSomeNamespaces)
	t.Run("Refusals", testRefusals)
	t.Run("Namesakes", testNamesakes)
	t.Run("Repairs", testRepairs)
	t.Run("Edits", testEdits)
	t.Run("WhileDown", testWhileDown)
	t.Run("AnotherSelector", testAnotherSelector)
	t.Run("ColdCache", testColdCache)
	t.Run("RecreatedSource", testRecreatedSource)
	t.Run("Immutable", testImmutable)
	t.Run("TerminatingNamespace", testTerminatingNamespace)
	t.Run("HeldUpNamespace", testHeldUpNamespace)
	t.Run("Types", testTypes)
	t.Run("LabelsThatAreAskedFor", testLabelsThatAreAskedFor)
	t.Run("TwoSources", testTwoSources)
	t.Run("LargeAndRefused", testLargeAndRefused)
	t.Run("Narrowed", testNarrowed)
	t.Run("DeletedDuringFanOut", testDeletedDuringFanOut)
	t.Run("DeletesGoFirst", testDeletesGoFirst)
	t.Run("UnrelatedSecrets", testUnrelatedSecrets)
	t.Run("NoSecretBytes", testNoSecretBytes)
	t.Run("MetadataIsNotCopied", testMetadataIsNotCopied)
	t.Run("ManyChanges", testManyChanges)
	t.Run("NoSourceNamespace", testNoSourceNamespace)
}

// world is a control plane of the test's own, because the controller writes in all of its namespaces. Namespace is the
// manifests' own, and the source namespace.
type world struct {
	*clustertest.Env
	t         *testing.T
	program   string // kubectl-secretsync
	client    kubernetes.Interface
	proxy     *apiproxy.Proxy // between the controller and the API server, with the controller's rights
	recording history.Memory

	mu       sync.Mutex
	versions []version // every version of every Secret outside of the source namespace, in the API server's order
}

// version is a version of a Secret.
type version struct {
	kind   watch.EventType
	secret *corev1.Secret
}

// newWorld starts a control plane, and installs the RBAC rules and the policy.
func newWorld(t *testing.T) *world {
	t.Helper()
	suite.Long(t, "it starts a control plane")
	t.Parallel()
	program := clustertest.BuildProgram(t, "..", "./cmd/kubectl-secretsync")
	c, err := cluster.Start(t.Context(), cluster.Options{Progress: io.Discard})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop()) })
	w := &world{Env: clustertest.On(t, c), t: t, program: program}
	w.Namespace = sourceNamespace
	w.Kubectl("create", "namespace", w.Namespace)
	w.Install("../manifests")
	w.Kubectl("delete", "deployment", "--all") // it runs as a process
	w.client = w.Client
	config, err := c.ServiceAccountConfig(t.Context(), w.Namespace, account)
	require.NoError(t, err)
	w.proxy, err = apiproxy.Start(context.Background(), apiproxy.Options{Upstream: config, Record: w.recording.Record})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.proxy.Stop()) })
	w.record()
	return w
}

// record collects every version of every Secret outside of the source namespace.
func (w *world) record() {
	list, err := w.client.CoreV1().Secrets("").List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	watcher, err := w.client.CoreV1().Secrets("").Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	require.NoError(w.t, err)
	var reading sync.WaitGroup
	reading.Go(func() {
		for event := range watcher.ResultChan() {
			if secret, ok := event.Object.(*corev1.Secret); ok && secret.Namespace != w.Namespace {
				w.mu.Lock()
				w.versions = append(w.versions, version{event.Type, secret})
				w.mu.Unlock()
			}
		}
	})
	w.t.Cleanup(func() {
		cancel()
		watcher.Stop()
		reading.Wait()
	})
}

// history returns the versions of a Secret so far.
func (w *world) history(namespace, name string) (of []version) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.versions {
		if v.secret.Namespace == namespace && v.secret.Name == name {
			of = append(of, v)
		}
	}
	return of
}

// start starts a controller with its own rights, and waits until it has synced its caches.
func (w *world) start(args ...string) *clustertest.Running {
	w.t.Helper()
	run := w.startWaiting(args...)
	run.AwaitLog("Caches synced")
	return run
}

// startWaiting starts a controller that may have to wait for its Lease, or for a fault to end.
func (w *world) startWaiting(args ...string) *clustertest.Running {
	w.t.Helper()
	kubeconfig := filepath.Join(w.t.TempDir(), "kubeconfig")
	require.NoError(w.t, cluster.WriteKubeconfig(kubeconfig, w.proxy.Config(), w.Namespace))
	return clustertest.StartProgram(w.t, w.program, append(controllerArgs(kubeconfig, w.Namespace), args...)...)
}

// stop stops a controller, which must end without an error.
func (w *world) stop(run *clustertest.Running) {
	w.t.Helper()
	run.Signal(syscall.SIGTERM)
	require.NoError(w.t, run.Wait())
}

// target creates namespaces that ask for copies.
func (w *world) target(names ...string) {
	w.t.Helper()
	for _, name := range names {
		_, err := w.client.CoreV1().Namespaces().Create(w.t.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: targetLabels},
		}, metav1.CreateOptions{})
		require.NoError(w.t, err)
	}
}

// targets creates the given number of namespaces that ask for copies, and returns their names.
func (w *world) targets(count int) (names []string) {
	w.t.Helper()
	for i := range count {
		names = append(names, fmt.Sprintf("team-%d", i))
	}
	w.target(names...)
	return names
}

// share creates a source.
func (w *world) share(name, value string, change ...func(*corev1.Secret)) *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"password": []byte(value)}}
	mark(secret)
	for _, c := range change {
		c(secret)
	}
	secret, err := w.client.CoreV1().Secrets(w.Namespace).Create(w.t.Context(), secret, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return secret
}

// own creates a Secret that is not a copy.
func (w *world) own(namespace, name, value string) *corev1.Secret {
	w.t.Helper()
	secret, err := w.client.CoreV1().Secrets(namespace).Create(w.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"password": []byte(value)},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return secret
}

// patch sends a merge patch for a Secret.
func (w *world) patch(namespace, name, merge string) {
	w.t.Helper()
	_, err := w.client.CoreV1().Secrets(namespace).Patch(w.t.Context(), name, types.MergePatchType, []byte(merge), metav1.PatchOptions{})
	require.NoError(w.t, err)
}

func (w *world) change(name, value string) {
	w.t.Helper()
	w.patch(w.Namespace, name, fmt.Sprintf(`{"stringData":{"password":%q}}`, value))
}

func (w *world) delete(namespace, name string) {
	w.t.Helper()
	require.NoError(w.t, w.client.CoreV1().Secrets(namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// is waits until a Secret holds a value, and returns it.
func (w *world) is(namespace, name, value string) *corev1.Secret {
	w.t.Helper()
	var secret *corev1.Secret
	w.Eventually("Secret "+namespace+"/"+name, func(ctx context.Context) (wrong string) {
		var err error
		if secret, err = w.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		if got := string(secret.Data["password"]); got != value || len(secret.Data) != 1 {
			return fmt.Sprintf("it has %d keys, and the password is %q, not %q", len(secret.Data), got, value)
		}
		return ""
	})
	return secret
}

// isGone waits until a Secret does not exist.
func (w *world) isGone(namespace, name string) {
	w.t.Helper()
	w.Eventually("Secret "+namespace+"/"+name, func(ctx context.Context) string {
		_, err := w.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return "it still exists"
	})
}

// caughtUp waits until the controller has reacted in these namespaces to a change that follows everything else: a source of
// its own. The recording has all that the controller has written there for it.
func (w *world) caughtUp(namespaces ...string) {
	w.t.Helper()
	name := "marker-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	w.share(name, "x")
	for _, namespace := range namespaces {
		w.is(namespace, name, "x")
	}
	w.delete(w.Namespace, name)
	for _, namespace := range namespaces {
		w.isGone(namespace, name)
		w.Eventually("the recording of a delete", func(context.Context) string {
			if writes := w.writesOf(namespace + "/" + name); !slices.ContainsFunc(writes, isDelete) {
				return fmt.Sprintf("it has %q", writes)
			}
			return ""
		})
	}
}

// event waits for an Event with this reason about an object, and returns its text.
func (w *world) event(name, reason string) (note string) {
	w.t.Helper()
	w.Eventually("Event "+reason, func(ctx context.Context) string {
		list, err := w.client.EventsV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=" + name + ",reason=" + reason})
		if err != nil {
			return err.Error()
		}
		if len(list.Items) == 0 {
			return "there is none about " + name
		}
		note = list.Items[0].Note
		return ""
	})
	return note
}

// writes returns the controller's writes of Secrets so far, as the API server answered them, such as "patch team-a/registry 200".
func (w *world) writes() (writes []string) {
	for _, r := range w.recording.History().Writes() {
		if r.Resource == "secrets" {
			writes = append(writes, fmt.Sprintf("%s %s %d", r.Verb, r.Object(), r.Status))
		}
	}
	return writes
}

// counted is how many writes of Secrets the API server has counted since its start, by whomever.
func (w *world) counted() (total int) {
	w.t.Helper()
	text, err := w.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(w.t.Context())
	require.NoError(w.t, err)
	for _, match := range requestTotal.FindAllSubmatch(text, -1) {
		number, err := strconv.ParseFloat(string(match[1]), 64)
		require.NoError(w.t, err)
		total += int(number)
	}
	return total
}

var requestTotal = regexp.MustCompile(`(?m)^apiserver_request_total\{[^}]*resource="secrets"[^}]*verb="(?:APPLY|DELETE|DELETECOLLECTION|PATCH|POST|PUT)"[^}]*\} (\S+)$`)

// secret returns a Secret.
func (w *world) secret(namespace, name string) *corev1.Secret {
	w.t.Helper()
	secret, err := w.client.CoreV1().Secrets(namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return secret
}

// label sets a label of a namespace, or removes it if the value is "".
func (w *world) label(namespace, label, value string) {
	w.t.Helper()
	text := "null"
	if value != "" {
		text = strconv.Quote(value)
	}
	_, err := w.client.CoreV1().Namespaces().Patch(w.t.Context(), namespace, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, label, text), metav1.PatchOptions{})
	require.NoError(w.t, err)
}

// writesOf returns those of one Secret.
func (w *world) writesOf(object string) (writes []string) {
	for _, write := range w.writes() {
		if strings.Contains(write, " "+object+" ") {
			writes = append(writes, write)
		}
	}
	return writes
}

// wrote waits until the controller has made that many writes of a kind, not counting the first ones.
func (w *world) wrote(from int, verb string, count int) {
	w.t.Helper()
	w.Eventually("writes", func(context.Context) string {
		got := 0
		for _, write := range w.writes()[from:] {
			if strings.HasPrefix(write, verb+" ") {
				got++
			}
		}
		if got < count {
			return fmt.Sprintf("%d times %s", got, verb)
		}
		return ""
	})
}

// metrics returns what a controller serves at the address in its log.
func (w *world) metrics(run *clustertest.Running) string {
	w.t.Helper()
	match := regexp.MustCompile(`metrics="(http://[^"]+)"`).FindStringSubmatch(run.Log())
	require.NotNil(w.t, match)
	response, err := http.Get(match[1])
	require.NoError(w.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	return string(text)
}
