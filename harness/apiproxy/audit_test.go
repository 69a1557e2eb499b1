package apiproxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/suite"
)

const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Metadata"}],"omitStages":["RequestReceived","ResponseStarted"]}`

// What is recorded is what the API server says in its own audit log, line by line.
func TestTheRecordingIsTheAuditLog(t *testing.T) {
	suite.Long(t, "it starts a control plane of its own")
	ctx, dir := t.Context(), t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	require.NoError(t, os.WriteFile(policy, []byte(auditPolicy), 0o600))
	c, err := cluster.Start(ctx, cluster.Options{Nodes: 1, Progress: os.Stderr, APIServerFlags: []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + log, "--audit-log-mode=blocking",
	}})
	require.NoError(t, err)
	running := true
	defer func() {
		if running {
			require.NoError(t, c.Stop())
		}
	}()
	client, err := c.Client()
	require.NoError(t, err)

	recorded := map[string]*history.History{}
	for account, use := range map[string]func(t *testing.T, kubectl, kubeconfig string, client kubernetes.Interface){
		"kubectl-apply":     kubectlApply,
		"kubectl-get":       kubectlGetWatch,
		"sample-controller": sampleController,
	} {
		config, err := accountOf(ctx, c, client, account)
		require.NoError(t, err)
		var memory history.Memory
		proxy, err := apiproxy.Start(ctx, apiproxy.Options{Upstream: config, Record: memory.Record})
		require.NoError(t, err)
		kubeconfig := filepath.Join(dir, account)
		require.NoError(t, cluster.WriteKubeconfig(kubeconfig, proxy.Config(), metav1.NamespaceDefault))
		use(t, filepath.Join(c.Kubectl, "kubectl"), kubeconfig, client)
		require.NoError(t, proxy.Stop())
		recorded[account] = memory.History()
	}
	answered, unanswered := map[string][]string{}, map[string][]string{}
	for account, h := range recorded {
		for _, r := range h.Requests {
			kind := answered
			if r.Status == 0 {
				kind = unanswered
			}
			kind[account] = append(kind[account], line(r.Who, r.Verb, r.URI, r.Agent, r.Status, auditv1.ObjectReference{
				APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource, Subresource: r.Subresource,
				Namespace: r.Namespace, Name: r.Name,
			}))
		}
		// A watch has its line when the API server has noticed that its client is gone.
		await(t, "the audit log has the last lines of "+account, func() bool {
			return len(auditLog(t, log)[audited(account)]) >= len(answered[account])
		})
	}
	running = false
	require.NoError(t, c.Stop())

	for account := range recorded {
		t.Run(account, func(t *testing.T) {
			lines := answered[account]
			require.Greater(t, len(lines), 3)
			missing, more := difference(lines, auditLog(t, log)[audited(account)])
			require.Empty(t, missing, "recorded, but not in the audit log")
			// A client that ended while it waited for an answer was not told one. The API server gave it one,
			// if it was asked at all.
			for _, l := range more {
				at := slices.IndexFunc(unanswered[account], func(u string) bool { return request(u) == request(l) })
				require.GreaterOrEqual(t, at, 0, "in the audit log, but not recorded: %s", l)
				unanswered[account] = slices.Delete(unanswered[account], at, at+1)
			}
			t.Logf("%d requests", len(lines))
		})
	}
}

// audited is how the audit log calls an account.
func audited(account string) string {
	return "system:serviceaccount:" + metav1.NamespaceDefault + ":" + account
}

// difference returns the lines that only one of the two has, as often as it has them more.
func difference(a, b []string) (onlyA, onlyB []string) {
	onlyB = slices.Clone(b)
	for _, l := range a {
		if at := slices.Index(onlyB, l); at >= 0 {
			onlyB = slices.Delete(onlyB, at, at+1)
		} else {
			onlyA = append(onlyA, l)
		}
	}
	return onlyA, onlyB
}

// accountOf makes a ServiceAccount that may do anything, and with which nobody else asks for anything.
func accountOf(ctx context.Context, c *cluster.Cluster, client kubernetes.Interface, name string) (*rest.Config, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return c.ServiceAccountConfig(ctx, metav1.NamespaceDefault, name)
}

// line is what can be compared of a request.
func line(who, verb, uri, agent string, status int, o auditv1.ObjectReference) string {
	return fmt.Sprintf("%s %s %s %q %s/%s %s/%s %s/%s = %d",
		who, verb, uri, agent, o.APIGroup, o.APIVersion, o.Resource, o.Subresource, o.Namespace, o.Name, status)
}

// request is a line without what was answered.
func request(line string) string {
	return line[:strings.LastIndex(line, " = ")]
}

// auditLog returns the lines of each user, as far as they are written.
func auditLog(t *testing.T, path string) map[string][]string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := map[string][]string{}
	for whole := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
		var e auditv1.Event
		require.NoError(t, json.Unmarshal(whole, &e))
		var object auditv1.ObjectReference
		if e.ObjectRef != nil {
			object = *e.ObjectRef
		}
		who := e.User.Username
		lines[who] = append(lines[who], line(who, e.Verb, e.RequestURI, e.UserAgent, int(e.ResponseStatus.Code), object))
	}
	return lines
}

func kubectlIn(t *testing.T, kubectl, kubeconfig string) func(stdin string, args ...string) string {
	cache := t.TempDir()
	return func(stdin string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), kubectl, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+cache, "KUBECTL_KUBERC=false")
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "kubectl %s: %s", args, out)
		return string(out)
	}
}

// kubectlApply makes, changes and leaves as they are several objects, and asks for one that is not there.
func kubectlApply(t *testing.T, kubectl, kubeconfig string, _ kubernetes.Interface) {
	run := kubectlIn(t, kubectl, kubeconfig)
	manifest := func(color string) string {
		return `{"apiVersion":"v1","kind":"List","items":[
			{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"colors"},"data":{"color":"` + color + `"}},
			{"apiVersion":"v1","kind":"Secret","metadata":{"name":"key"},"stringData":{"key":"` + color + `"}},
			{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"never"},"spec":{"schedule":"0 0 31 2 *","jobTemplate":
				{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"x"}]}}}}}}]}`
	}
	for _, color := range []string{"red", "blue", "blue"} {
		run(manifest(color), "apply", "--filename", "-")
	}
	run(manifest("green"), "apply", "--server-side", "--force-conflicts", "--filename", "-")
	run(manifest("green"), "apply", "--dry-run=server", "--filename", "-")
	run("", "get", "configmap", "nothing", "--ignore-not-found")
	run(manifest("green"), "delete", "--filename", "-")
}

// kubectlGetWatch watches Pods until it has printed one that is gone again.
func kubectlGetWatch(t *testing.T, kubectl, kubeconfig string, client kubernetes.Interface) {
	watch := clustertest.StartProgramIn(t, []string{"KUBECONFIG=" + kubeconfig}, kubectl, "get", "pods", "--watch", "--output-watch-events", "--no-headers",
		"--output=custom-columns=EVENT:.type,POD:.object.metadata.name")
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	await(t, "the watch has begun", func() bool {
		// What is made before it has, is printed too.
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "seen-"}, Spec: corev1.PodSpec{
			NodeName: "nowhere", Containers: []corev1.Container{{Name: "c", Image: "x"}}}}
		made, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, pods.Delete(t.Context(), made.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		return strings.Contains(watch.Log(), "DELETED")
	})
	watch.Signal(syscall.SIGINT)
	_ = watch.Wait() // its status says that it was interrupted
}

// sampleController has the Kubernetes project's own example bring up a Deployment, and bring it up again.
func sampleController(t *testing.T, kubectl, kubeconfig string, client kubernetes.Interface) {
	const module = "k8s.io/sample-controller"
	program := clustertest.BuildProgram(t, "../others", module)
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module)
	list.Dir, list.Env = "../others", append(os.Environ(), "GOWORK=off")
	dir, err := list.Output()
	require.NoError(t, err)
	examples := filepath.Join(strings.TrimSpace(string(dir)), "artifacts", "examples")

	run := kubectlIn(t, kubectl, kubeconfig) // as the controller's account, so it is recorded and audited too
	run("", "apply", "--filename", filepath.Join(examples, "crd-status-subresource.yaml"))
	run("", "wait", "--for=condition=Established", "crd/foos.samplecontroller.k8s.io")
	controller := clustertest.StartProgram(t, program, "--kubeconfig="+kubeconfig)
	run("", "apply", "--filename", filepath.Join(examples, "example-foo.yaml"))
	deployments := client.AppsV1().Deployments(metav1.NamespaceDefault)
	var first string
	there := func(but string) func() bool {
		return func() bool {
			d, err := deployments.Get(t.Context(), "example-foo", metav1.GetOptions{})
			if err != nil || string(d.UID) == but {
				return false
			}
			first = string(d.UID)
			return d.Status.AvailableReplicas == 1
		}
	}
	await(t, "the Deployment is there", there(""))
	require.NoError(t, deployments.Delete(t.Context(), "example-foo", metav1.DeleteOptions{}))
	await(t, "the Deployment is there again", there(first))
	controller.Signal(syscall.SIGTERM)
	require.NoError(t, controller.Wait())
}

// await waits for something that takes a cluster's time.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, 5*hangs, 50*time.Millisecond, what)
}
