package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// get returns the status and the body of an answer.
func get(t *testing.T, url string) (status int, body string) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

// Metrics and probes are served while the work runs, and no longer.
func TestServe(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx := klog.NewContext(t.Context(), logger)
	ready := false
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "reboot_serve_test", Help: "A metric of this test."})
	var address string
	err := (&server{address: "127.0.0.1:0"}).serve(ctx, func() bool { return ready }, []prometheus.Collector{counter}, func(context.Context) error {
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		address = regexp.MustCompile(`http://[0-9.:]+`).FindString(log)
		status, _ := get(t, address+"/healthz")
		require.Equal(t, http.StatusOK, status)
		status, _ = get(t, address+"/readyz")
		require.Equal(t, http.StatusServiceUnavailable, status)
		ready = true
		status, _ = get(t, address+"/readyz")
		require.Equal(t, http.StatusOK, status)
		status, metrics := get(t, address+"/metrics")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, metrics, "\nreboot_serve_test 0\n")
		return errors.New("the work failed")
	})
	require.EqualError(t, err, "the work failed")
	_, err = net.Dial("tcp", strings.TrimPrefix(address, "http://"))
	require.Error(t, err)
}

func TestServeAtAnAddressThatIsTaken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	address := listener.Addr().String()
	err = (&server{address: address}).serve(t.Context(), nil, nil, func(context.Context) error {
		require.Fail(t, "the work has begun")
		return nil
	})
	require.ErrorContains(t, err, "serve metrics at --address "+address)
	require.ErrorContains(t, err, "address already in use")
}

// readPodTemplate returns the Pod template of a manifest's first object.
func readPodTemplate(t *testing.T, file string) corev1.PodSpec {
	text, err := os.ReadFile(filepath.Join("../../manifests", file))
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(text), "\n---\n")
	inJSON, err := yaml.ToJSON([]byte(first))
	require.NoError(t, err)
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(inJSON, nil, nil)
	require.NoError(t, err)
	switch workload := object.(type) {
	case *appsv1.Deployment:
		return workload.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return workload.Spec.Template.Spec
	}
	require.Fail(t, "neither a Deployment nor a DaemonSet", "%T", object)
	return corev1.PodSpec{}
}

// The manifests run commands that exist, with flags that they have, and probe paths that are served.
func TestManifestsFitTheProgram(t *testing.T) {
	for file, variables := range map[string][]string{
		"controller.yaml":             {"NODE_NAME", "POD_NAME", "POD_NAMESPACE"},
		"pools/batch/controller.yaml": {"NODE_NAME", "POD_NAME", "POD_NAMESPACE"},
		"agent.yaml":                  {"DBUS_SYSTEM_BUS_ADDRESS", "NODE_NAME"},
	} {
		t.Run(file, func(t *testing.T) {
			container := readPodTemplate(t, file).Containers[0]
			cmd, args, err := newCommand().Find(container.Args)
			require.NoError(t, err)
			require.NotEqual(t, "kubectl-reboot", cmd.Name())
			require.NoError(t, cmd.ParseFlags(args))
			require.NoError(t, cobra.NoArgs(cmd, cmd.Flags().Args()))
			require.Equal(t, fmt.Sprintf(":%d", container.Ports[0].ContainerPort), cmd.Flag("address").Value.String())
			require.Equal(t, "/healthz", container.LivenessProbe.HTTPGet.Path)
			require.Equal(t, container.Ports[0].Name, container.LivenessProbe.HTTPGet.Port.String())
			var set []string
			for _, variable := range container.Env {
				set = append(set, variable.Name)
			}
			require.ElementsMatch(t, variables, set)
		})
	}
	// A replica that waits for the Lease is not ready, so with a readiness probe, no rollout of the controller would end.
	require.Nil(t, readPodTemplate(t, "controller.yaml").Containers[0].ReadinessProbe)
	require.Equal(t, "/readyz", readPodTemplate(t, "agent.yaml").Containers[0].ReadinessProbe.HTTPGet.Path)
}

// The controller of a second pool is like the first one, but for its names, its ledger and its Nodes.
func TestTheControllerOfAPool(t *testing.T) {
	first, second := readPodTemplate(t, "controller.yaml"), readPodTemplate(t, "pools/batch/controller.yaml")
	require.Equal(t, append(first.Containers[0].Args, "--ledger=reboot-ledger-batch", "--node-selector=pool=batch"), second.Containers[0].Args)
	second.Containers[0].Args = first.Containers[0].Args
	second.TopologySpreadConstraints = first.TopologySpreadConstraints
	require.Equal(t, first, second)
	require.Equal(t, "reboot-controller.reboot-ledger-batch", leaseName("reboot-ledger-batch"), "the Role names it")
	require.NotEqual(t, leaseName("reboot-ledger"), leaseName("reboot-controller"))
	require.Equal(t, "reboot-controller", leaseName("reboot-ledger"), "as in earlier versions")
}

// An agent runs on every Node, whatever its taints are: the agent of a Node that is not ready must still complete the reboot.
func TestTheAgentRunsOnEveryNode(t *testing.T) {
	spec := readPodTemplate(t, "agent.yaml")
	require.Equal(t, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, spec.Tolerations)
	require.Equal(t, "system-node-critical", spec.PriorityClassName)
	require.Equal(t, map[string]string{corev1.LabelOSStable: "linux"}, spec.NodeSelector, "no agent runs on Windows")
	require.Nil(t, spec.Affinity)
}

// silent is a transport on which nothing is answered.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestDoesNotWaitForeverForAnAPIServerThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://silent"}, &http.Client{Transport: silent{}})
		require.NoError(t, err)
		err = checkNamespace(t.Context(), client, "http://silent", "reboot")
		require.ErrorContains(t, err, "the API server at http://silent does not answer")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// A22: the sentinel command of the component for RHEL trusts what needs-restarting prints, because its status is 1 also if it
// fails.
func TestTheSentinelOfTheComponent(t *testing.T) {
	text, err := os.ReadFile("../../manifests/host-commands/kustomization.yaml")
	require.NoError(t, err)
	var component struct{ Patches []struct{ Patch string } }
	require.NoError(t, yaml.Unmarshal(text, &component))
	var operations []struct {
		Path  string
		Value json.RawMessage
	}
	require.NoError(t, yaml.Unmarshal([]byte(component.Patches[0].Patch), &operations))
	var args []string
	require.NoError(t, json.Unmarshal(operations[0].Value, &args))
	f := &agentFlags{}
	require.NoError(t, agentCommand(f).ParseFlags(append(args[1:], "--node-name=n")))
	require.NoError(t, f.parse())
	require.Equal(t, "/host/root", f.options.Sentinel.Command.Root)

	dir := t.TempDir()
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	sentinel := *f.options.Sentinel
	sentinel.Command.Root = "" // this machine is the host
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	const german = "[ \"$LC_ALL\" = C ] || { echo 'Ein Neustart ist erforderlich.'; exit 1; }\n"
	for name, test := range map[string]struct {
		script string // needs-restarting
		asks   bool
		err    string
	}{
		"required":     {"echo 'Core libraries or services have been updated since boot-up:'; echo '  * kernel'; echo; echo 'Reboot is required to fully utilize these updates.'; exit 1", true, ""},
		"not required": {"echo 'No core libraries or services have been updated since boot-up.'; echo 'Reboot should not be necessary.'", false, ""},
		"fails":        {"echo \"Config error: [Errno 30] Read-only file system: '/var/log/dnf.log'\" >&2; exit 1", false, "Read-only file system"},
		"says nothing": {"exit 1", false, "exited with status 2"},
		"is missing":   {"exit 127", false, "exited with status 2"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "needs-restarting"), []byte("#!/bin/sh\n"+german+test.script+"\n"), 0o755))
			_, asks, err := sentinel.Check(t.Context())
			require.Equal(t, test.asks, asks)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
		})
	}
}
