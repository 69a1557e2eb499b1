package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/controllers/reboot"
	"example.com/controllers/reboot/agent"
	"example.com/controllers/reboot/policy"
)

// noEnvironment hides the variables that are defaults of flags.
func noEnvironment(t *testing.T) {
	for _, name := range []string{"NODE_NAME", "POD_NAME", "POD_NAMESPACE", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} {
		t.Setenv(name, "")
	}
}

// words splits a command line. A "~" stands for a space within a word.
func words(line string) []string {
	all := strings.Fields(line)
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], "~", " ")
	}
	return all
}

func TestAgentFlags(t *testing.T) {
	noEnvironment(t)
	client := fake.NewClientset()
	parse := func(line string) (agent.Options, error) {
		f := &agentFlags{}
		require.NoError(t, agentCommand(f).ParseFlags(words(line)))
		err := f.parse()
		f.complete(client)
		return f.options, err
	}
	for _, test := range []struct {
		flags string
		want  func(*agent.Options) // changes what the defaults are
	}{
		{"", func(*agent.Options) {}},
		{"--boot-id=file:/id", func(o *agent.Options) { o.BootID = agent.KernelBootID("/id") }},
		{"--boot-id=init:/proc/1", func(o *agent.Options) { o.BootID = agent.InitBootID("/proc/1") }},
		{"--boot-id=node", func(o *agent.Options) { o.BootID = agent.NodeBootID{Client: client, Node: "n1"} }},
		{"--reboot-method=none", func(o *agent.Options) { o.Rebooter = agent.DryRun{} }},
		{"--reboot-method=command --reboot-command=halt", func(o *agent.Options) { o.Rebooter = agent.Command{Line: "halt"} }},
		{"--reboot-method=command --reboot-command=shutdown~-r~now", func(o *agent.Options) { o.Rebooter = agent.Command{Line: "shutdown -r now"} }},
		{"--sentinel-file=/run/asks", func(o *agent.Options) {
			o.Sentinel = &agent.Sentinel{File: "/run/asks", Interval: time.Minute}
		}},
		{"--sentinel-command=asks~me --sentinel-interval=2s", func(o *agent.Options) {
			o.Sentinel = &agent.Sentinel{Command: agent.Command{Line: "asks me"}, Interval: 2 * time.Second}
		}},
		{"--sentinel-command=asks --sentinel-status=1", func(o *agent.Options) {
			o.Sentinel = &agent.Sentinel{Command: agent.Command{Line: "asks"}, AsksWith: 1, Interval: time.Minute}
		}},
		{"--sentinel-command=asks --host-root=/host", func(o *agent.Options) {
			o.Sentinel = &agent.Sentinel{Command: agent.Command{Line: "asks", Root: "/host"}, Interval: time.Minute}
		}},
		{"--reboot-method=command --reboot-command=halt --host-root=/host", func(o *agent.Options) { o.Rebooter = agent.Command{Line: "halt", Root: "/host"} }},
		{"--sentinel-interval=1ns", func(*agent.Options) {}}, // without a sentinel
	} {
		t.Run(test.flags, func(t *testing.T) {
			want := agent.Options{
				NodeName: "n1", BootID: agent.KernelBootID("/proc/sys/kernel/random/boot_id"), Rebooter: agent.Logind{},
				RebootRetry: 2 * time.Minute, Backoff: time.Second, MaxBackoff: time.Minute,
			}
			test.want(&want)
			options, err := parse("--node-name=n1 " + test.flags)
			require.NoError(t, err)
			require.Equal(t, want, options)
		})
	}
	for _, test := range []struct{ flags, want string }{
		{"--node-name=", "--node-name is missing, and so is NODE_NAME in the environment; in a Pod, set it from spec.nodeName"},
		{"--boot-id=file:id", `--boot-id is "file:id"; it must be file:PATH, init:DIRECTORY or node`},
		{"--boot-id=init:", `--boot-id is "init:"; it must be file:PATH, init:DIRECTORY or node`},
		{"--boot-id=disk:/id", `--boot-id is "disk:/id"; it must be file:PATH, init:DIRECTORY or node`},
		{"--boot-id=node:n1", `--boot-id is "node:n1"; it must be file:PATH, init:DIRECTORY or node`},
		{"--reboot-method=kexec", `--reboot-method is "kexec"; it must be logind, command or none`},
		{"--reboot-method=command", "--reboot-method is command, and --reboot-command is missing"},
		{"--reboot-method=command --reboot-command=~", "--reboot-method is command, and --reboot-command is missing"},
		{"--reboot-command=halt", `--reboot-command has no effect, because --reboot-method is "logind"; set it to command`},
		{"--sentinel-file=asks", `--sentinel-file is "asks"; it must be an absolute path`},
		{"--sentinel-file=/asks --sentinel-command=asks", "--sentinel-file and --sentinel-command exclude each other"},
		{"--sentinel-command=~", "--sentinel-command has no words"},
		{"--sentinel-status=1", "--sentinel-status has no effect without --sentinel-command"},
		{"--sentinel-status=256 --sentinel-command=asks", "--sentinel-status is 256; an exit status is from 0 to 255"},
		{"--sentinel-status=-1 --sentinel-command=asks", "--sentinel-status is -1; an exit status is from 0 to 255"},
		{"--host-root=host --sentinel-command=asks", `--host-root is "host"; it must be an absolute path`},
		{"--host-root=/host", "--host-root has no effect without --sentinel-command or --reboot-command; name the sentinel file as the agent sees it"},
		{"--host-root=/host --sentinel-file=/run/asks", "--host-root has no effect without --sentinel-command or --reboot-command; name the sentinel file as the agent sees it"},
		{"--sentinel-file=/asks --sentinel-interval=0", "--sentinel-interval is 0s; it must be greater than 0"},
		{"--reboot-retry=0", "--reboot-retry is 0s; it must be greater than 0"},
	} {
		t.Run(test.flags, func(t *testing.T) {
			_, err := parse("--node-name=n1 " + test.flags)
			require.EqualError(t, err, test.want)
		})
	}
}

func TestControllerFlags(t *testing.T) {
	noEnvironment(t)
	parse := func(line string) (*controllerFlags, error) {
		f := &controllerFlags{}
		require.NoError(t, controllerCommand(f).ParseFlags(words(line)))
		return f, f.parse()
	}
	f, err := parse("--namespace=reboot")
	require.NoError(t, err)
	require.True(t, f.options.Selector.Empty())
	require.Equal(t, reboot.Options{
		Policy:    policy.Policy{MaxUnavailable: intstr.FromInt32(1), MaxPerDomain: intstr.FromInt32(1), Selector: f.options.Selector},
		Namespace: "reboot", Ledger: "reboot-ledger",
		DrainTimeout: 30 * time.Minute, AgentTimeout: 5 * time.Minute, RebootTimeout: 10 * time.Minute,
		RetryInterval: 5 * time.Minute, MaxRetryInterval: 2 * time.Hour,
		Workers: 10, Backoff: 100 * time.Millisecond, MaxBackoff: time.Minute, Grace: 10 * time.Second,
	}, f.options)
	require.Equal(t, 15*time.Second, f.leaseDuration)

	f, err = parse("--namespace=reboot --blocking-pods=app=db --lease-duration=1s")
	require.NoError(t, err)
	require.Len(t, f.options.BlockingPods, 1)
	require.Equal(t, "app=db", f.options.BlockingPods[0].String())
	require.Equal(t, time.Second, f.leaseDuration)
	// A19: both of two selectors block.
	f, err = parse("--namespace=reboot --blocking-pods=app=db,tier!=a --blocking-pods=migrates --blocking-pods=")
	require.NoError(t, err)
	require.Len(t, f.options.BlockingPods, 2, "an empty one, which would select every Pod, does not count")
	require.Equal(t, "app=db,tier!=a", f.options.BlockingPods[0].String())
	require.Equal(t, "migrates", f.options.BlockingPods[1].String())
	f, err = parse("--namespace=reboot --lease-duration=0")
	require.NoError(t, err)
	require.Zero(t, f.leaseDuration)

	for _, test := range []struct{ flags, want string }{
		{"--namespace=", "--namespace is missing; name the namespace of the ConfigMap in which slots are recorded"},
		{"--max-unavailable=0", `--max-unavailable: "0" would never let a Node reboot; it must be at least 1; to pause all reboots, use "kubectl reboot pause"`},
		{"--topology-key=zone --max-unavailable-per-domain=x", `--max-unavailable-per-domain: "x" is neither a number nor a percentage, such as 1 or 10%`},
		{"--node-selector==", `--node-selector: found '=', expected: !, identifier, or 'end of string'`},
		{"--blocking-pods==", `--blocking-pods: found '=', expected: !, identifier, or 'end of string'`},
		{"--start-time=22:00", "--start-time and --end-time are needed both"},
		{"--end-time=22:00 --reboot-days=mon", "--start-time and --end-time are needed both"},
		{"--lease-duration=999ms", "--lease-duration is 999ms; it must be a whole number of seconds, or 0 to run without a Lease"},
		{"--lease-duration=1900ms", "--lease-duration is 1.9s; it must be a whole number of seconds, or 0 to run without a Lease"},
		{"--lease-duration=-1s", "--lease-duration is -1s; it must be a whole number of seconds, or 0 to run without a Lease"},
		{"--pause-after-reboot=-1s", "--pause-after-reboot is -1s; it must not be negative"},
		{"--agent-pods==", `--agent-pods: found '=', expected: !, identifier, or 'end of string'`},
		{"--blocking-pods=a --blocking-pods==", `--blocking-pods: found '=', expected: !, identifier, or 'end of string'`},
		{"--grace=-1s", "--grace is -1s; it must not be negative"},
	} {
		t.Run(test.flags, func(t *testing.T) {
			_, err := parse("--namespace=reboot " + test.flags)
			require.EqualError(t, err, test.want)
		})
	}
}

func TestWindowFlags(t *testing.T) {
	wednesday := time.Date(2024, 11, 20, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		flags string
		open  []time.Duration // after the beginning of Wednesday, when there is a window that contains it
		shut  []time.Duration
	}{
		{"", nil, nil},
		{"--start-time=22:00 --end-time=23:00", []time.Duration{22 * time.Hour, 46 * time.Hour}, []time.Duration{0, 23 * time.Hour}},
		{"--start-time=22:00 --end-time=23:00 --reboot-days=wed", []time.Duration{22 * time.Hour}, []time.Duration{0, 46 * time.Hour}},
		{"--start-time=22:00 --end-time=23:00 --time-zone=Europe/Berlin", []time.Duration{21 * time.Hour}, []time.Duration{22 * time.Hour}},
		{"--reboot-days=wed", []time.Duration{0, 22 * time.Hour}, []time.Duration{24 * time.Hour}},
		{"--reboot-days=wed --time-zone=Pacific/Auckland", []time.Duration{-13 * time.Hour, 10 * time.Hour}, []time.Duration{-14 * time.Hour, 11 * time.Hour}},
	} {
		t.Run(test.flags, func(t *testing.T) {
			f := &controllerFlags{}
			require.NoError(t, controllerCommand(f).ParseFlags(strings.Fields(test.flags)))
			policy, err := f.policy()
			require.NoError(t, err)
			require.Equal(t, test.flags == "", policy.Window == nil)
			for _, after := range test.open {
				require.True(t, policy.Window.Contains(wednesday.Add(after)), after)
			}
			for _, after := range test.shut {
				require.False(t, policy.Window.Contains(wednesday.Add(after)), after)
			}
		})
	}
}

func TestOwnPod(t *testing.T) {
	for _, test := range []struct{ namespace, name, want string }{
		{"reboot", "c-1", "reboot/c-1"}, {"reboot", "", ""}, {"", "c-1", ""}, {"", "", ""},
	} {
		t.Setenv("POD_NAMESPACE", test.namespace)
		t.Setenv("POD_NAME", test.name)
		require.Equal(t, test.want, ownPod())
	}
}

// execute runs the program with arguments.
func execute(ctx context.Context, line string) error {
	cmd := newCommand()
	cmd.SetArgs(words(line))
	return cmd.ExecuteContext(ctx)
}

// Wrong flags are reported first, then what is wrong with the kubeconfig.
func TestWhatIsReportedBeforeTheFirstRequest(t *testing.T) {
	noEnvironment(t)
	t.Setenv("HOME", t.TempDir())
	dir := t.TempDir()
	missing, empty, invalid := filepath.Join(dir, "missing"), filepath.Join(dir, "empty"), filepath.Join(dir, "invalid")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.NoError(t, os.WriteFile(invalid, []byte(kubeconfig("https://api.example.com:notaport")), 0o600))
	for _, command := range []string{"controller --namespace=reboot", "agent --node-name=n1"} {
		for _, test := range []struct{ flags, want string }{
			{"--backoff=0", "--backoff is 0s; it must be greater than 0"},
			{"--backoff=0 --kubeconfig=" + missing, "--backoff is 0s; it must be greater than 0"},
			{"--backoff=0 --kubeconfig=" + invalid, "--backoff is 0s; it must be greater than 0"},
			{"", "not in a Pod, and no --kubeconfig or KUBECONFIG: unable to load in-cluster configuration"},
			{"--kubeconfig=" + missing, "read kubeconfig " + missing + ": stat " + missing + ": no such file or directory"},
			{"--kubeconfig=" + empty, "read kubeconfig " + empty + ": it names no cluster"},
			{"--kubeconfig=" + invalid, `host must be a URL or a host:port pair: "https://api.example.com:notaport"`},
		} {
			t.Run(command+" "+test.flags, func(t *testing.T) {
				require.ErrorContains(t, execute(t.Context(), command+" "+test.flags), test.want)
			})
		}
	}
	for _, command := range []string{"status", "why n1", "request n1", "cancel n1", "pause"} {
		t.Run(command, func(t *testing.T) {
			require.ErrorContains(t, execute(t.Context(), command+" --kubeconfig="+missing), missing)
			require.ErrorContains(t, execute(t.Context(), command+" --kubeconfig="+invalid), "notaport")
		})
	}
}

// kubeconfig returns a kubeconfig for a server.
func kubeconfig(server string) string {
	return `{"apiVersion": "v1", "kind": "Config", "current-context": "test", "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
		"users": [{"name": "test"}], "clusters": [{"name": "test", "cluster": {"server": "` + server + `"}}]}`
}

// An apiServer has a namespace, and never answers a request for anything else.
type apiServer struct {
	kubeconfig string
	mu         sync.Mutex
	resources  []string
}

func startAPIServer(t *testing.T) *apiServer {
	s := &apiServer{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/reboot") && strings.Count(r.URL.Path, "/") == 4 {
			w.Header().Set("Content-Type", "application/json")
			w.Write([]byte(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "reboot"}}`))
			return
		}
		s.mu.Lock()
		s.resources = append(s.resources, r.URL.Path)
		s.mu.Unlock()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	require.NoError(t, os.WriteFile(s.kubeconfig, []byte(kubeconfig(server.URL)), 0o600))
	return s
}

// asked returns the paths of the requests.
func (s *apiServer) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.resources...)
}

func TestAControllerWithoutALeaseBegins(t *testing.T) {
	noEnvironment(t)
	server := startAPIServer(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- execute(ctx, "controller --namespace=reboot --lease-duration=0 --address=127.0.0.1:0 --kubeconfig="+server.kubeconfig)
	}()
	eventually(t, func() bool { return len(server.asked()) > 0 }, &buffer{})
	require.Equal(t, "/api/v1/namespaces/reboot/configmaps/reboot-ledger", server.asked()[0])
	stop()
	require.NoError(t, <-ended)
}

func TestTheControllerStopsBeforeTheFirstAnswer(t *testing.T) {
	noEnvironment(t)
	server := startAPIServer(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, execute(ctx, "controller --namespace=reboot --address=127.0.0.1:0 --kubeconfig="+server.kubeconfig))
	require.Empty(t, server.asked())
}

// A controller that may not write its flags runs without the plugin knowing them, and says so.
func TestPublishAndRun(t *testing.T) {
	for _, test := range []struct {
		name               string
		forbidden, stopped bool
		warns              bool
	}{
		{"allowed", false, false, false},
		{"forbidden", true, false, true},
		{"stopped", true, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
			defer stop()
			client := fake.NewClientset()
			if test.forbidden {
				client.PrependReactor("create", "configmaps", forbid)
			}
			f := &controllerFlags{values: map[string]string{"max-unavailable": "2"}}
			require.NoError(t, controllerCommand(f).ParseFlags([]string{"--namespace=reboot"}))
			require.NoError(t, f.parse())
			controller, err := reboot.New(ctx, client, f.options)
			require.NoError(t, err)
			client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
				stop()
				return false, nil, nil
			})
			if test.stopped {
				stop()
			}
			_ = f.publishAndRun(ctx, client, controller)
			log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			require.Equal(t, test.warns, strings.Contains(log, "Cannot publish the flags"))
			if !test.forbidden {
				configMap, err := client.CoreV1().ConfigMaps("reboot").Get(t.Context(), "reboot-ledger", metav1.GetOptions{})
				require.NoError(t, err)
				require.Equal(t, `{"max-unavailable":"2"}`, configMap.Data["flags"])
			}
		})
	}
}

// A19: no flag of any command can be given twice with the first value ignored.
func TestFlagsThatAreRepeated(t *testing.T) {
	noEnvironment(t)
	lists := map[string]bool{"blocking-pods": true, "reboot-days": true, "as-group": true, "as-user-extra": true}
	for _, cmd := range newCommand().Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			value := map[string]string{"bool": "true", "int": "1", "duration": "1s"}[f.Value.Type()]
			if value == "" {
				value = "x"
			}
			require.NoError(t, cmd.Flags().Set(f.Name, value), "%s --%s", cmd.Name(), f.Name)
			err := cmd.Flags().Set(f.Name, value)
			if lists[f.Name] {
				require.NoError(t, err, "%s --%s", cmd.Name(), f.Name)
				return
			}
			require.ErrorContains(t, err, fmt.Sprintf("--%s may be given only once, and was %q before", f.Name, value), "%s --%s", cmd.Name(), f.Name)
		})
	}
}
