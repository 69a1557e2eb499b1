package apiproxy_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/history"
)

// proxied is a test's namespace in a real cluster, and a proxy in front of it.
type proxied struct {
	*clustertest.Env
	*apiproxy.Proxy
	t      *testing.T
	direct *rest.Config
	memory history.Memory
	file   string // the recording
}

func newProxied(t *testing.T, faults ...apiproxy.Fault) *proxied {
	t.Helper()
	p := &proxied{Env: clustertest.New(t), t: t, file: filepath.Join(t.TempDir(), "recording")}
	var err error
	p.direct, err = p.Env.Config()
	require.NoError(t, err)
	recorder, err := apiproxy.NewFileRecorder(p.file)
	require.NoError(t, err)
	ignore := goleak.IgnoreCurrent()
	p.Proxy, err = apiproxy.Start(t.Context(), apiproxy.Options{Upstream: p.direct, Faults: faults, Record: func(r history.Record) {
		p.memory.Record(r)
		recorder.Record(r)
	}})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, p.Stop())
		require.NoError(t, recorder.Close())
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		goleak.VerifyNone(t, ignore)
	})
	return p
}

// Config is that of the proxy.
func (p *proxied) Config() *rest.Config { return p.Proxy.Config() }

// ofNamespace is what was recorded in the test's namespace.
func (p *proxied) ofNamespace() *history.History {
	return p.memory.History().Where(func(r history.Request) bool { return r.Namespace == p.Namespace })
}

var contentTypes = []string{"application/json", "application/vnd.kubernetes.protobuf"}

func with(config *rest.Config, contentType string) *rest.Config {
	config.ContentType, config.AcceptContentTypes = contentType, contentType
	return config
}

// What the API server answers to writes that change something, and to those that do not.
func TestNoOps(t *testing.T) {
	for _, contentType := range contentTypes {
		t.Run(contentType, func(t *testing.T) {
			p := newProxied(t)
			ctx := t.Context()
			client := clientset(t, with(p.Config(), contentType))
			configMaps, pods := client.CoreV1().ConfigMaps(p.Namespace), client.CoreV1().Pods(p.Namespace)
			var last history.Request
			is := func(what string, noOp bool, err error) {
				t.Helper()
				require.NoError(t, err, what)
				requests := p.memory.History().Requests
				last = requests[len(requests)-1]
				require.Equal(t, noOp, last.NoOp, "%s: %+v", what, last)
				require.True(t, last.IsWrite() || last.DryRun)
			}
			const changed, same = false, true

			m, err := configMaps.Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "map-"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
			is("create", changed, err)
			require.Equal(t, m.Name, last.Name, "the API server has made it up")
			require.Equal(t, m.ResourceVersion, last.RVAfter)
			require.Equal(t, string(m.UID), last.UID)
			require.Empty(t, last.RVBefore)

			_, err = configMaps.Update(ctx, m, metav1.UpdateOptions{})
			is("update to the same", same, err)
			require.Equal(t, m.ResourceVersion, last.RVBefore)
			unconditional := m.DeepCopy()
			unconditional.ResourceVersion = ""
			_, err = configMaps.Update(ctx, unconditional, metav1.UpdateOptions{})
			is("update to the same, whatever it is now", same, err)
			patch := func(kind types.PatchType, text string, o metav1.PatchOptions) error {
				_, err := configMaps.Patch(ctx, m.Name, kind, []byte(text), o)
				return err
			}
			is("merge patch to the same", same, patch(types.MergePatchType, `{"data":{"a":"b"}}`, metav1.PatchOptions{}))
			is("strategic patch to the same", same, patch(types.StrategicMergePatchType, `{"data":{"a":"b"}}`, metav1.PatchOptions{}))
			is("JSON patch to the same", same, patch(types.JSONPatchType, `[{"op":"replace","path":"/data/a","value":"b"}]`, metav1.PatchOptions{}))
			is("dry run", changed, patch(types.MergePatchType, `{"data":{"a":"c"}}`, metav1.PatchOptions{DryRun: []string{"All"}}))
			require.True(t, last.DryRun)
			is("merge patch", changed, patch(types.MergePatchType, `{"data":{"a":"c"}}`, metav1.PatchOptions{}))
			require.Equal(t, m.ResourceVersion, last.RVBefore)
			m, err = configMaps.Get(ctx, m.Name, metav1.GetOptions{})
			require.NoError(t, err)
			m.Data["a"] = "d"
			m, err = configMaps.Update(ctx, m, metav1.UpdateOptions{})
			is("update", changed, err)
			require.Equal(t, m.ResourceVersion, last.RVAfter)

			apply := func(manager string) error {
				text := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"},"data":{"x":"y"}}`
				_, err := configMaps.Patch(ctx, "applied", types.ApplyPatchType, []byte(text), metav1.PatchOptions{FieldManager: manager})
				return err
			}
			is("apply that creates", changed, apply("one"))
			is("apply of the same", same, apply("one"))
			is("apply of the same by another", changed, apply("two"))

			is("delete that must wait for its dependents", changed,
				configMaps.Delete(ctx, "applied", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}))
			is("delete", changed, configMaps.Delete(ctx, m.Name, metav1.DeleteOptions{}))
			require.Empty(t, last.RVAfter, "the answer is a Status")

			hold := func(name string) {
				t.Helper()
				_, err := pods.Create(ctx, &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/hold"}},
					// On no Node of ours, so that nobody but us changes it.
					Spec: corev1.PodSpec{NodeName: "nowhere", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
				}, metav1.CreateOptions{})
				is("create a Pod", changed, err)
			}
			deletePod := func(grace int64, dryRun ...string) error {
				return pods.Delete(ctx, "held", metav1.DeleteOptions{GracePeriodSeconds: &grace, DryRun: dryRun})
			}
			hold("held")
			is("delete for dry", changed, deletePod(30, "All"))
			require.True(t, last.DryRun)
			is("graceful delete", changed, deletePod(30))
			is("the same again", same, deletePod(30))
			is("sooner", changed, deletePod(10))
			is("at once, but for the finalizer", changed, deletePod(0))
			is("that again", same, deletePod(0))
			_, err = pods.Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/hold"]}}`), metav1.PatchOptions{})
			is("patch of what is being deleted, to the same", same, err)
			_, err = pods.Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			is("patch that removes it", changed, err)
			_, err = pods.Get(ctx, "held", metav1.GetOptions{})
			require.ErrorContains(t, err, "not found")

			_, err = pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "free"},
				Spec: corev1.PodSpec{NodeName: "nowhere", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
			is("create a Pod", changed, err)
			is("delete at once", changed, pods.Delete(ctx, "free", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
			require.NotEmpty(t, last.RVAfter, "the answer is the Pod")
			is("delete them all", changed, pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		})
	}
}

// What somebody else did meanwhile is not taken for what the write did.
func TestNoOpWithoutHavingSeenTheObject(t *testing.T) {
	p := newProxied(t)
	ctx := t.Context()
	direct := p.Client.CoreV1().ConfigMaps(p.Namespace)
	through := clientset(t, p.Config()).CoreV1().ConfigMaps(p.Namespace)
	patch := func(value string) history.Request {
		t.Helper()
		_, err := through.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"x":"`+value+`"}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		writes := p.ofNamespace().Writes()
		return writes[len(writes)-1]
	}
	m, err := direct.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"x": "1"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.False(t, patch("1").NoOp, "we cannot know")
	require.True(t, patch("1").NoOp, "now we do")
	m.Data["x"] = "2"
	_, err = direct.Update(ctx, m, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.False(t, patch("2").NoOp, "we cannot know again")
	_, err = direct.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"x":"3"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = through.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	last := patch("3")
	require.True(t, last.NoOp, "the list was at a later resourceVersion")
	require.NotEqual(t, last.RVBefore, last.RVAfter)
}

func TestInformer(t *testing.T) {
	for _, contentType := range contentTypes {
		t.Run(contentType, func(t *testing.T) {
			p := newProxied(t)
			ctx, cancel := context.WithCancel(t.Context())
			maps := p.Client.CoreV1().ConfigMaps(p.Namespace)
			create := func(name string) {
				_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			const before = 200 // enough that it is worth to compress them
			for i := range before {
				create(fmt.Sprint("before-", i))
			}
			config := with(p.Config(), contentType)
			client, err := kubernetes.NewForConfig(config) // with client-go's own compression
			require.NoError(t, err)
			factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(p.Namespace))
			lister := factory.Core().V1().ConfigMaps().Lister().ConfigMaps(p.Namespace)
			informer := factory.Core().V1().ConfigMaps().Informer()
			gone := make(chan string, 1)
			_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
				DeleteFunc: func(object any) { gone <- object.(*corev1.ConfigMap).Name },
			})
			require.NoError(t, err)
			factory.Start(ctx.Done())
			for _, ok := range factory.WaitForCacheSync(ctx.Done()) {
				require.True(t, ok)
			}
			create("after")
			eventually(t, "it has come", func() bool {
				_, err := lister.Get("after")
				return err == nil
			})
			require.NoError(t, maps.Delete(ctx, "after", metav1.DeleteOptions{}))
			require.Equal(t, "after", <-gone)
			cancel()
			factory.Shutdown()
			eventually(t, "recorded", func() bool {
				for _, r := range p.ofNamespace().Requests {
					if r.Open {
						return false
					}
				}
				return true
			})

			h := p.ofNamespace()
			counts := map[string]int{}
			var bytes int
			for _, e := range h.Events {
				counts[e.Type]++
				bytes += e.Bytes
				require.NotEmpty(t, e.ResourceVersion)
				if e.Type != "BOOKMARK" {
					require.NotEmpty(t, e.Name)
					require.NotEmpty(t, e.UID)
					require.Equal(t, p.Namespace, e.Namespace)
				}
			}
			require.GreaterOrEqual(t, counts["ADDED"], before+1) // and kube-root-ca.crt, which may come late
			require.Equal(t, 1, counts["DELETED"])
			require.Positive(t, counts["BOOKMARK"])
			require.Less(t, bytes, 100*before, "they came compressed")
			require.Empty(t, h.Writes())
			for _, r := range h.Requests {
				require.False(t, r.Failed(), "%+v", r)
				require.Equal(t, "workshop:admin", r.Who)
			}
			client.CoreV1().RESTClient().(*rest.RESTClient).Client.CloseIdleConnections()
		})
	}
}

// A watch and a list through the proxy are, byte for byte, those of the API server.
func TestSameBytesAsDirectly(t *testing.T) {
	p := newProxied(t)
	ctx := t.Context()
	secrets := p.Client.CoreV1().Secrets(p.Namespace)
	first, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "first"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	const objects = 30
	var last *corev1.Secret
	for i := range objects {
		last, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s-", i)},
			StringData: map[string]string{"x": strings.Repeat("\"}\n\\", 2000)}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, secrets.Delete(ctx, "first", metav1.DeleteOptions{}))
	path := "/api/v1/namespaces/" + p.Namespace + "/secrets"
	for _, accept := range []string{
		"application/json", "application/vnd.kubernetes.protobuf", "application/json;as=Table;v=v1;g=meta.k8s.io",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
	} {
		for _, encoding := range []string{"identity", "gzip"} {
			for what, query := range map[string]string{
				// It ends by itself, and what happened since then is replayed.
				"watch": "?watch=1&timeoutSeconds=1&resourceVersion=" + first.ResourceVersion,
				"list":  "?resourceVersionMatch=Exact&resourceVersion=" + last.ResourceVersion,
			} {
				if (what == "list") == strings.Contains(accept, "as=PartialObjectMetadata;") {
					continue // of no use in a list
				}
				if (what == "watch") == strings.Contains(accept, "as=PartialObjectMetadataList;") {
					continue
				}
				t.Run(strings.Join([]string{what, encoding, accept}, " "), func(t *testing.T) {
					t.Parallel()
					headers := []string{"Accept", accept, "Accept-Encoding", encoding}
					want, wantBody := do(t, client(t, p.direct), p.direct.Host, "GET", path+query, "", headers...)
					require.Equal(t, 200, want.StatusCode, "%s", wantBody)
					got, gotBody := do(t, client(t, p.Config()), p.URL(), "GET", path+query, "", headers...)
					require.True(t, wantBody == gotBody, "the bodies differ")
					require.Greater(t, len(wantBody), 1000)
					for _, name := range []string{"Date", "Audit-Id"} {
						require.NotEmpty(t, got.Header.Get(name))
						want.Header.Del(name)
						got.Header.Del(name)
					}
					require.Equal(t, want.Header, got.Header)
					require.Equal(t, want.ContentLength, got.ContentLength)
				})
			}
		}
	}
	t.Cleanup(func() { // after the parallel ones
		for _, r := range p.ofNamespace().Requests {
			h := p.memory.History().Where(func(other history.Request) bool { return other.ID == r.ID })
			if r.Verb == "list" {
				require.Equal(t, last.ResourceVersion, r.RVAfter, "%+v", r)
			} else {
				require.Len(t, h.Events, objects+1, "%+v", r)
			}
		}
	})
}

// kubectl with a kubeconfig that goes through the proxy.
func TestKubectl(t *testing.T) {
	p := newProxied(t)
	ctx := t.Context()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, cluster.WriteKubeconfig(kubeconfig, p.Config(), p.Namespace))
	kubectl := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, filepath.Join(p.Cluster.Kubectl, "kubectl"), args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+t.TempDir(), "KUBECTL_KUBERC=false")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := kubectl("create", "secret", "generic", "s", "--from-literal=password=open-sesame")
	require.NoError(t, err, out)
	out, err = kubectl("get", "secret", "s", "--output", "jsonpath={.data.password}")
	require.NoError(t, err, out)
	require.Equal(t, out64("open-sesame"), out)
	out, err = kubectl("auth", "whoami", "--output", "jsonpath={.status.userInfo.username}")
	require.NoError(t, err, out)
	require.Equal(t, "workshop:admin", out)
	out, err = kubectl("annotate", "secret", "s", "a=b", "--as=system:serviceaccount:"+p.Namespace+":default")
	require.Error(t, err)
	require.Contains(t, out, "forbidden")

	// A ServiceAccount's token in place of ours.
	account, err := p.ServiceAccountConfig(ctx, p.Namespace, "default")
	require.NoError(t, err)
	out, err = kubectl("config", "set-credentials", "workshop", "--token="+account.BearerToken)
	require.NoError(t, err, out)
	out, err = kubectl("auth", "whoami", "--output", "jsonpath={.status.userInfo.username}")
	require.NoError(t, err, out)
	require.Equal(t, "system:serviceaccount:"+p.Namespace+":default", out)
	out, err = kubectl("get", "secrets")
	require.Error(t, err)
	require.Contains(t, out, "forbidden")

	// And one in the way of a library.
	viaProxy, err := p.ConfigFor(account)
	require.NoError(t, err)
	_, err = clientset(t, viaProxy).CoreV1().Secrets(p.Namespace).List(ctx, metav1.ListOptions{})
	require.ErrorContains(t, err, "forbidden")

	// Nobody in particular is the API server's affair: it knows system:anonymous, and allows it little.
	response, _ := do(t, client(t, rest.AnonymousClientConfig(p.Config())), p.URL(), "GET", "/api/v1/namespaces/"+p.Namespace+"/secrets", "")
	require.Equal(t, http.StatusForbidden, response.StatusCode)
	response, _ = do(t, client(t, rest.AnonymousClientConfig(p.Config())), p.URL(), "GET", "/api/v1/namespaces/"+p.Namespace+"/secrets", "",
		"Authorization", "Bearer nonsense")
	require.Equal(t, http.StatusUnauthorized, response.StatusCode)

	asAccount := p.ofNamespace().Where(func(r history.Request) bool {
		return r.Who == "system:serviceaccount:"+p.Namespace+":default" && r.Status == http.StatusForbidden
	})
	require.Len(t, asAccount.Requests, 3, "by --as, by its token, by ConfigFor")

	recording, err := os.ReadFile(p.file)
	require.NoError(t, err)
	require.Contains(t, string(recording), `"name":"s"`)
	for _, secret := range []string{"open-sesame", out64("open-sesame"), "password", account.BearerToken,
		strings.Split(account.BearerToken, ".")[2], p.Config().BearerToken, viaProxy.BearerToken, "Bearer"} {
		require.False(t, bytes.Contains(recording, []byte(secret)), "%s is in the recording", secret)
	}
	h, err := history.ReadFile(p.file)
	require.NoError(t, err)
	require.Equal(t, len(p.memory.History().Requests), len(h.Requests))
}

func out64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// An informer is told late, and so it acts on what is no more.
func TestLateInformer(t *testing.T) {
	const late = 300 * time.Millisecond
	p := newProxied(t, apiproxy.Fault{Match: apiproxy.Match{Verb: "watch", Resource: "configmaps"}, Effect: apiproxy.Effect{Late: late}})
	ctx, cancel := context.WithCancel(t.Context())
	client, err := kubernetes.NewForConfig(p.Config())
	require.NoError(t, err)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(p.Namespace))
	lister := factory.Core().V1().ConfigMaps().Lister().ConfigMaps(p.Namespace)
	informer := factory.Core().V1().ConfigMaps().Informer()
	factory.Start(ctx.Done())
	require.True(t, cache.WaitForCacheSync(ctx.Done(), informer.HasSynced))
	start := time.Now()
	_, err = p.Client.CoreV1().ConfigMaps(p.Namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "it has come", func() bool {
		_, err := lister.Get("a")
		return err == nil
	})
	require.GreaterOrEqual(t, time.Since(start), late)
	cancel()
	factory.Shutdown()
	client.CoreV1().RESTClient().(*rest.RESTClient).Client.CloseIdleConnections()
}
