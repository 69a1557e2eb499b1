// Package manifests checks the lessons' manifests as they are shipped: what an administrator applies, and what no page and no test
// on simulated kubelets runs. make e2e runs them on kind, with an overlay.
package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/lesson"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/testinput"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

// shipped is what manifests say, as far as it is checked.
type shipped struct {
	workloads []workload
	budgets   []policyv1.PodDisruptionBudget
	roles     []rbacv1.Role // ClusterRoles, too
	policies  []admissionv1.ValidatingAdmissionPolicy
}

// workload is a Deployment or a DaemonSet.
type workload struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Replicas *int32                    `json:"replicas"`
		Strategy appsv1.DeploymentStrategy `json:"strategy"`
		Template corev1.PodTemplateSpec    `json:"template"`
	} `json:"spec"`
}

func (w workload) replicas() int {
	if w.Spec.Replicas == nil {
		return 1
	}
	return int(*w.Spec.Replicas)
}

func read(manifests []byte) (s shipped, err error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return s, err
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(text, &kind); err != nil {
			return s, err
		}
		switch kind.Kind {
		case "Deployment", "DaemonSet":
			var w workload
			err = yaml.Unmarshal(text, &w)
			s.workloads = append(s.workloads, w)
		case "PodDisruptionBudget":
			var budget policyv1.PodDisruptionBudget
			err = yaml.UnmarshalStrict(text, &budget)
			s.budgets = append(s.budgets, budget)
		case "Role", "ClusterRole":
			var role rbacv1.Role
			err = yaml.UnmarshalStrict(text, &role)
			s.roles = append(s.roles, role)
		case "ValidatingAdmissionPolicy":
			var policy admissionv1.ValidatingAdmissionPolicy
			err = yaml.UnmarshalStrict(text, &policy)
			s.policies = append(s.policies, policy)
		}
		if err != nil {
			return s, err
		}
	}
}

// complaints returns what is wrong with manifests. help returns what a program prints for its arguments and --help.
func (s shipped) complaints(help func(image string, args []string) string) (all []string) {
	complain := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, w := range s.workloads {
		name := w.Kind + " " + w.Name
		pod := w.Spec.Template.Spec
		leads := false // after it has taken a Lease
		for _, c := range pod.Containers {
			for _, complaint := range slices.Concat(probes(c), paths(c), machine(pod, c)) {
				complain("%s: %s", name, complaint)
			}
			if !strings.HasSuffix(c.Image, ":dev") {
				continue // it is none of ours
			}
			text := help(c.Image, c.Args)
			leads = leads || strings.Contains(text, "-lease-duration")
			if unknown := regexp.MustCompile(`(?m)unknown (flag|shorthand flag|command).*|flag provided but not defined.*|.*; it must .*`).FindString(text); unknown != "" {
				complain("%s: container %s: %s", name, c.Name, unknown)
			}
			if grace, ok := defaultGrace(text); ok && gracePeriod(pod) <= grace {
				complain("%s: the kubelet kills the Pod after %s, and the program takes up to %s to end", name, gracePeriod(pod), grace)
			}
		}
		if probe := pod.Containers[0].ReadinessProbe; leads && probe != nil && w.Kind == "Deployment" {
			complain("%s: it has a readiness probe, and a replica that waits for the Lease is not ready, so no rollout would end", name)
		}
		if alone := w.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType && w.replicas() == 1; w.Kind == "Deployment" && !leads && !alone {
			complain("%s: its program has no --lease-duration, so it must be one replica, with strategy Recreate: two would act beside each other", name)
		}
		if w.Kind == "DaemonSet" && !slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool {
			return t.Operator == corev1.TolerationOpExists && t.Key == "" && t.Effect == "" && t.TolerationSeconds == nil
		}) {
			complain("%s: it does not tolerate every taint, so it does not run on each Node, and not for as long as it is needed", name)
		}
		var selecting []string
		for _, b := range s.budgets {
			if selects(b, w) {
				selecting = append(selecting, b.Name)
			}
		}
		if len(selecting) > 1 {
			complain("%s: its Pods cannot be evicted, because the budgets %s select them", name, strings.Join(selecting, " and "))
		}
	}
	for _, b := range s.budgets {
		for _, w := range s.workloads {
			if selects(b, w) && !allows(b, w) {
				complain("PodDisruptionBudget %s: it allows no eviction, so a Node with a Pod of %s is never drained", b.Name, w.Name)
			}
		}
		if !slices.ContainsFunc(s.workloads, func(w workload) bool { return w.Kind+" "+w.Name == "Deployment "+b.Name && selects(b, w) }) {
			complain("PodDisruptionBudget %s: it does not select the Deployment of its name", b.Name)
		}
	}
	for _, policy := range s.policies {
		for _, condition := range policy.Spec.MatchConditions {
			if literal := regexp.MustCompile(`serviceaccount:[a-z0-9-]+:[a-z0-9-]+`).FindString(condition.Expression); literal != "" {
				complain("ValidatingAdmissionPolicy %s: its condition %s names %s, which kustomize does not change with the namespace", policy.Name, condition.Name, literal)
			}
		}
	}
	sameRights := map[string][]string{} // verbs, of rules for objects with certain names
	for _, r := range s.roles {
		for _, rule := range r.Rules {
			if kind := fmt.Sprint(rule.APIGroups, rule.Resources); len(rule.ResourceNames) > 0 {
				if verbs, ok := sameRights[kind]; ok && !slices.Equal(verbs, rule.Verbs) {
					complain("%s: it may %v %v of one name, and somebody else may %v those of another", r.Name, rule.Verbs, rule.Resources, verbs)
				}
				sameRights[kind] = rule.Verbs
			}
			if slices.Contains(rule.Resources, "events") && slices.Contains(rule.Verbs, "create") && !slices.Contains(rule.Verbs, "patch") {
				complain("%s: it may create Events, but not patch them, so the second one of its kind is lost", r.Name)
			}
		}
	}
	return all
}

func selects(b policyv1.PodDisruptionBudget, w workload) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && b.Namespace == w.Namespace && selector.Matches(labels.Set(w.Spec.Template.Labels))
}

// allows reports whether a budget allows the eviction of one Pod of a workload whose Pods are all healthy.
func allows(b policyv1.PodDisruptionBudget, w workload) bool {
	replicas := w.replicas()
	if b.Spec.MinAvailable != nil {
		healthy, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, replicas, true)
		return err == nil && healthy < replicas
	}
	unavailable, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, replicas, true)
	return err == nil && unavailable > 0
}

// firstAnswer is twice as many seconds as the programs wait for the API server's first answer before they say why, and exit.
const firstAnswer = 60

// machine returns what is wrong with how a container reaches its machine.
func machine(pod corev1.PodSpec, c corev1.Container) (all []string) {
	for _, mount := range c.VolumeMounts {
		if slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name && v.HostPath != nil }) && !mount.ReadOnly {
			all = append(all, fmt.Sprintf("it may write %s, which is the machine's", mount.MountPath))
		}
	}
	dbus := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "DBUS_SYSTEM_BUS_ADDRESS" })
	confined := c.SecurityContext == nil || c.SecurityContext.AppArmorProfile == nil || c.SecurityContext.AppArmorProfile.Type != corev1.AppArmorProfileTypeUnconfined
	if dbus && confined {
		all = append(all, "it uses D-Bus, which the container runtime's AppArmor profile forbids, and is not unconfined")
	}
	return all
}

// probes returns what is wrong with the probes of a container.
func probes(c corev1.Container) (all []string) {
	served := map[string]bool{} // ports, by name
	for _, port := range c.Ports {
		served[port.Name] = slices.Contains(c.Args, fmt.Sprintf("--address=:%d", port.ContainerPort))
	}
	for what, probe := range map[string]*corev1.Probe{"liveness": c.LivenessProbe, "startup": c.StartupProbe, "readiness": c.ReadinessProbe} {
		if probe == nil {
			continue
		}
		want := map[bool]string{true: "/readyz", false: "/healthz"}[what == "readiness"]
		switch {
		case probe.HTTPGet == nil:
			all = append(all, what+": it asks for no page")
		case probe.HTTPGet.Path != want: // a replica that is not ready, such as one that waits for the Lease, must not be killed
			all = append(all, fmt.Sprintf("%s: it asks for %s, not for %s", what, probe.HTTPGet.Path, want))
		case !served[probe.HTTPGet.Port.String()]:
			all = append(all, fmt.Sprintf("%s: no --address serves port %s", what, probe.HTTPGet.Port.String()))
		case what == "startup" && probe.PeriodSeconds*probe.FailureThreshold < firstAnswer:
			all = append(all, fmt.Sprintf("startup: it gives up after %d s; the program may wait for the API server for half of %d s, and has to say so", probe.PeriodSeconds*probe.FailureThreshold, firstAnswer))
		}
	}
	return all
}

// path finds the absolute paths in arguments, as values of flags or of parts of an address.
var path = regexp.MustCompile(`^(?:--[a-z-]+=)?(?:unix:path=)?(/[^\s,:]*)$`)

// paths returns which paths in the arguments and the environment of a container are in none of its mounts.
func paths(c corev1.Container) (all []string) {
	values := slices.Clone(c.Args)
	for _, variable := range c.Env {
		values = append(values, variable.Value)
	}
	for _, value := range values {
		match := path.FindStringSubmatch(value)
		if match == nil {
			continue
		}
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return match[1] == m.MountPath || strings.HasPrefix(match[1], strings.TrimSuffix(m.MountPath, "/")+"/")
		}) {
			all = append(all, fmt.Sprintf("%s is in none of its mounts", value))
		}
	}
	return all
}

var graceFlag = regexp.MustCompile(`(?s)--?grace\b.*?\(default ([0-9a-z.]+)\)`)

// defaultGrace returns the default of --grace, from what a program says of its flags.
func defaultGrace(help string) (time.Duration, bool) {
	match := graceFlag.FindStringSubmatch(help)
	if match == nil {
		return 0, false
	}
	grace, err := time.ParseDuration(match[1])
	return grace, err == nil
}

func gracePeriod(pod corev1.PodSpec) time.Duration {
	if pod.TerminationGracePeriodSeconds == nil {
		return corev1.DefaultTerminationGracePeriodSeconds * time.Second
	}
	return time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
}

// kustomize returns the manifests of a directory of a lesson, with other parts of it that can be added to them.
func kustomize(t *testing.T, dir string, components, more []string) []byte {
	t.Helper()
	c, err := cluster.Shared()
	require.NoError(t, err)
	overlay := t.TempDir()
	relative := func(path string) string {
		to, err := filepath.EvalSymlinks(path)
		require.NoError(t, err)
		from, err := filepath.EvalSymlinks(overlay)
		require.NoError(t, err)
		relative, err := filepath.Rel(from, to)
		require.NoError(t, err)
		return relative
	}
	text := "resources:\n- " + relative(dir) + "\n"
	for _, path := range more {
		text += "- " + relative(path) + "\n"
	}
	if len(components) > 0 {
		text += "components:\n"
	}
	for _, path := range components {
		text += "- " + relative(path) + "\n"
	}
	require.NoError(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600))
	out, err := exec.CommandContext(t.Context(), filepath.Join(c.Kubectl, "kubectl"), "kustomize", overlay).Output()
	require.NoError(t, err)
	return out
}

// The manifests of each lesson are right, alone and with all that can be added to them.
func TestShippedManifests(t *testing.T) {
	suite.Long(t, "it builds the lessons' programs")
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	lessons, err := lesson.All(root)
	require.NoError(t, err)
	require.NotEmpty(t, lessons)
	for _, l := range lessons {
		t.Run(l.Name(), func(t *testing.T) {
			dir := filepath.Join(l.Dir, "manifests")
			testinput.Declare(dir)
			programs := map[string]string{}
			help := func(image string, args []string) string {
				name := strings.TrimSuffix(image, ":dev")
				if programs[name] == "" {
					programs[name] = clustertest.BuildProgram(t, l.Dir, "./cmd/"+name)
				}
				cmd := exec.CommandContext(t.Context(), programs[name], append(slices.Clone(args), "--help")...)
				cmd.Env = []string{}
				out, _ := cmd.CombinedOutput() // package flag exits with 2 for --help
				return string(out)
			}
			pools, err := filepath.Glob(filepath.Join(dir, "pools", "*"))
			require.NoError(t, err)
			components, err := filepath.Glob(filepath.Join(dir, "host-*"))
			require.NoError(t, err)
			for _, text := range [][]byte{kustomize(t, dir, nil, nil), kustomize(t, dir, components, pools)} {
				s, err := read(text)
				require.NoError(t, err)
				require.NotEmpty(t, s.workloads)
				require.NotEmpty(t, s.roles)
				require.Empty(t, s.complaints(help))
			}
		})
	}
}

const sample = `apiVersion: apps/v1
kind: Deployment
metadata: {name: controller, namespace: x}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: controller}}
    spec:
      terminationGracePeriodSeconds: 11
      containers:
      - name: controller
        image: controller:dev
        args: [run, --address=:8080, --state=/data/state, --selector=app=/x]
        ports: [{name: http, containerPort: 8080}]
        livenessProbe: {httpGet: {path: /healthz, port: http}}
        volumeMounts: [{name: data, mountPath: /data}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: x}
spec:
  template:
    metadata: {labels: {app: agent}}
    spec:
      tolerations: [{operator: Exists}]
      containers:
      - name: agent
        image: other.example.com/agent:1
        env: [{name: DBUS_SYSTEM_BUS_ADDRESS, value: "unix:path=/run/bus/socket"}]
        securityContext: {appArmorProfile: {type: Unconfined}}
        volumeMounts: [{name: bus, mountPath: /run/bus, readOnly: true}]
      volumes: [{name: bus, hostPath: {path: /run/bus}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: single, namespace: x}
spec:
  strategy: {type: Recreate}
  template:
    metadata: {labels: {app: single}}
    spec:
      terminationGracePeriodSeconds: 11
      containers:
      - name: single
        image: single:dev
        args: [--address=:8080]
        ports: [{name: http, containerPort: 8080}]
        startupProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 2, failureThreshold: 30}
        readinessProbe: {httpGet: {path: /readyz, port: http}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: agent}
spec:
  matchConditions: [{name: by-an-agent, expression: "request.userInfo.username.matches('^system:serviceaccount:[a-z0-9-]+:agent$')"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: controller, namespace: x}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: controller}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: controller}
rules: [{apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: controller}
rules: [{apiGroups: [""], resources: [configmaps], resourceNames: [ledger], verbs: [get, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: controller-of-a-pool}
rules: [{apiGroups: [""], resources: [configmaps], resourceNames: [ledger-of-a-pool], verbs: [get, update] }]
`

// What must be complained about.
func TestComplaints(t *testing.T) {
	help := func(image string, args []string) string {
		lease := ""
		if slices.Contains(args, "--no-such-flag") {
			return "unknown flag: --no-such-flag"
		}
		if image != "single:dev" {
			lease = "      --lease-duration duration   how long it leads\n"
		}
		return "Flags:\n" + lease + "      --address string   where (default \":8080\")\n      --grace duration   how long a stop may\n          take (default 10s)\n"
	}
	const secondBudget = "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: agent, namespace: x}\nspec: {maxUnavailable: 1, selector: {matchExpressions: [{key: app, operator: Exists}]}}\n"
	for name, test := range map[string]struct{ old, with, want string }{
		"nothing":                           {"", "", ""},
		"liveness is readiness":             {"livenessProbe: {httpGet: {path: /healthz", "livenessProbe: {httpGet: {path: /readyz", "liveness: it asks for /readyz, not for /healthz"},
		"readiness is liveness":             {"path: /readyz", "path: /healthz", "readiness: it asks for /healthz"},
		"a startup probe of readiness":      {"livenessProbe:", "startupProbe: {httpGet: {path: /readyz, port: http}}\n        livenessProbe:", "startup: it asks for /readyz"},
		"a probe of a port without a name":  {"/healthz, port: http", "/healthz, port: 8080", "no --address serves port 8080"},
		"another port is served":            {"--address=:8080", "--address=:8081", "no --address serves port http"},
		"a loopback address":                {"--address=:8080", "--address=127.0.0.1:8080", "no --address serves port http"},
		"a probe that runs a program":       {"readinessProbe: {httpGet: {path: /readyz, port: http}}", "readinessProbe: {exec: {command: [ready]}}", "readiness: it asks for no page"},
		"a readiness probe with a Lease":    {"livenessProbe:", "readinessProbe: {httpGet: {path: /readyz, port: http}}\n        livenessProbe:", "Deployment controller: it has a readiness probe"},
		"killed as it ends":                 {"terminationGracePeriodSeconds: 11", "terminationGracePeriodSeconds: 10", "the kubelet kills the Pod after 10s, and the program takes up to 10s to end"},
		"killed at once":                    {"terminationGracePeriodSeconds: 11", "terminationGracePeriodSeconds: 0", "kills the Pod after 0s"},
		"a flag that there is not":          {"run, ", "run, --no-such-flag, ", "unknown flag: --no-such-flag"},
		"a path beside the mount":           {"mountPath: /data}", "mountPath: /dat}", "--state=/data/state is in none of its mounts"},
		"a path that begins as the mount":   {"--state=/data/state", "--state=/database", "--state=/database is in none of its mounts"},
		"a socket that is not mounted":      {"unix:path=/run/bus/socket", "unix:path=/var/run/bus/socket", "is in none of its mounts"},
		"one kind of taint only":            {"{operator: Exists}", "{operator: Exists, effect: NoSchedule}", "DaemonSet agent: it does not tolerate every taint"},
		"one taint only":                    {"{operator: Exists}", "{operator: Exists, key: node.kubernetes.io/not-ready}", "does not tolerate every taint"},
		"for a while only":                  {"{operator: Exists}", "{operator: Exists, tolerationSeconds: 300}", "does not tolerate every taint"},
		"no toleration":                     {"[{operator: Exists}]", "[]", "does not tolerate every taint"},
		"a budget for other Pods":           {"matchLabels: {app: controller}", "matchLabels: {app: agent}", "PodDisruptionBudget controller: it does not select the Deployment of its name"},
		"a budget in another namespace":     {"PodDisruptionBudget\nmetadata: {name: controller, namespace: x}", "PodDisruptionBudget\nmetadata: {name: controller, namespace: y}", "does not select the Deployment"},
		"a budget of nothing":               {"maxUnavailable: 1", "maxUnavailable: 0", "PodDisruptionBudget controller: it allows no eviction"},
		"a budget of no percent":            {"maxUnavailable: 1", "maxUnavailable: 0%", "it allows no eviction"},
		"a budget of all replicas":          {"maxUnavailable: 1", "minAvailable: 2", "it allows no eviction"},
		"a budget of nearly all":            {"maxUnavailable: 1", "minAvailable: 51%", "it allows no eviction"},
		"one replica that may be evicted":   {"replicas: 2", "replicas: 1 #", ""},
		"two budgets":                       {"---\napiVersion: rbac", secondBudget + "---\napiVersion: rbac", "Deployment controller: its Pods cannot be evicted, because the budgets controller and agent select them"},
		"Events that cannot be counted":     {"verbs: [create, patch]", "verbs: [create]", "it may create Events, but not patch them"},
		"two replicas without a Lease":      {"strategy: {type: Recreate}", "strategy: {type: Recreate}\n  replicas: 2", "Deployment single: its program has no --lease-duration, so it must be one replica"},
		"no strategy without a Lease":       {"  strategy: {type: Recreate}\n", "", "Deployment single: its program has no --lease-duration"},
		"a rolling update without a Lease":  {"{type: Recreate}", "{type: RollingUpdate}", "with strategy Recreate"},
		"a start that is cut off":           {"failureThreshold: 30", "failureThreshold: 29", "startup: it gives up after 58 s"},
		"a start that is not configured":    {", periodSeconds: 2, failureThreshold: 30", "", "startup: it gives up after 0 s"},
		"a machine that may be written":     {", readOnly: true}", "}", "DaemonSet agent: it may write /run/bus, which is the machine's"},
		"D-Bus under AppArmor":              {"securityContext: {appArmorProfile: {type: Unconfined}}", "securityContext: {runAsUser: 0}", "it uses D-Bus, which"},
		"D-Bus under the runtime's profile": {"{type: Unconfined}", "{type: RuntimeDefault}", "it uses D-Bus, which"},
		"a policy for one namespace":        {"[a-z0-9-]+:agent", "x:agent", "ValidatingAdmissionPolicy agent: its condition by-an-agent names serviceaccount:x:agent"},
		"fewer rights in a pool":            {"verbs: [get, update] ", "verbs: [get] ", "controller-of-a-pool: it may [get] [configmaps] of one name, and somebody else may [get update] those of another"},
		"Events that can only be rewritten": {"verbs: [create, patch]", "verbs: [create, update]", "but not patch them"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, sample, test.old)
			s, err := read([]byte(strings.Replace(sample, test.old, test.with, 1)))
			require.NoError(t, err)
			got := strings.Join(s.complaints(help), "\n")
			if test.want == "" {
				require.Empty(t, got)
			}
			require.Contains(t, got, test.want)
		})
	}
}
