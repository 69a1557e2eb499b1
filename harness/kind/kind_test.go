package kind

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	kindexec "sigs.k8s.io/kind/pkg/exec"
)

// install makes the given scripts the only commands on the PATH, by name.
func install(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	}
	t.Setenv("PATH", dir)
	t.Setenv(engineVariable, "")
}

// docker is a docker command whose daemon answers with this script.
func docker(script string) string {
	return "if [ $1 = --version ]; then echo Docker version 28.2.2, build e6534b4; exit; fi\n" + script
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		scripts map[string]string
		chosen  string
		want    string
	}{
		"nothing is installed": {
			want: "kind needs Docker or Podman, and there is no docker or podman or nerdctl command; install Docker: https://docs.docker.com/engine/install",
		},
		"the daemon is not running": {
			scripts: map[string]string{"docker": docker("echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?' >&2; exit 1")},
			want:    `Docker is installed but not running; start it, with "sudo systemctl start docker" or by opening Docker Desktop (docker ps --quiet: exit status 1: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?)`,
		},
		"the daemon of a new client is not running": {
			scripts: map[string]string{"docker": docker("echo 'failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct and if the daemon is running' >&2; exit 1")},
			want:    "Docker is installed but not running; start it",
		},
		"no permission": {
			scripts: map[string]string{"docker": docker("echo 'permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock' >&2; exit 1")},
			want:    `you may not use Docker; add yourself to its group with "sudo usermod -aG docker $USER", and log in again (`,
		},
		"podman, which was chosen, is absent": {
			scripts: map[string]string{"docker": docker("")},
			chosen:  "podman",
			want:    "kind needs Docker or Podman, and there is no podman command",
		},
		"an unknown engine was chosen": {
			chosen: "rkt",
			want:   `KIND_EXPERIMENTAL_PROVIDER is "rkt"; it must be docker, podman or nerdctl`,
		},
		"an unknown error": {
			scripts: map[string]string{"docker": docker("echo 'out of cheese' >&2; exit 1")},
			want:    "docker ps --quiet: exit status 1: out of cheese",
		},
	} {
		t.Run(name, func(t *testing.T) {
			install(t, c.scripts)
			t.Setenv(engineVariable, c.chosen)
			dir := filepath.Join(t.TempDir(), "kind")
			_, err := Up(t.Context(), Options{Dir: dir})
			require.ErrorContains(t, err, c.want)
			require.NoDirExists(t, dir, "it leaves files behind")
		})
	}
}

func TestFirstEngineThatWorksIsUsed(t *testing.T) {
	install(t, map[string]string{"docker": "echo podman version 5.4.0", "podman": "exit 0"})
	e, _, err := findEngine(t.Context())
	require.NoError(t, err)
	require.Equal(t, engine{"Podman", "podman"}, e, "docker is only another name for podman here")

	install(t, map[string]string{"docker": docker("exit 0"), "podman": "exit 0"})
	e, _, err = findEngine(t.Context())
	require.NoError(t, err)
	require.Equal(t, "docker", e.command)
	t.Setenv(engineVariable, "podman")
	e, _, err = findEngine(t.Context())
	require.NoError(t, err)
	require.Equal(t, "podman", e.command)

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	_, _, err = findEngine(ctx)
	require.ErrorContains(t, err, "interrupted")
}

func TestExplainReadsTheOutputOfKindsCommands(t *testing.T) {
	e := engine{"Docker", "docker"}
	wrapped := func(output string) error {
		return &kindexec.RunError{Command: []string{"docker", "run"}, Output: []byte(output), Inner: errors.New("exit status 125")}
	}
	for output, want := range map[string]string{
		"docker: write /var/lib/docker/x: no space left on device.\nRun 'docker run --help' for more information": `Docker has no disk space left; free some, for example with "docker system prune" (docker: write /var/lib/docker/x: no space left on device.)`,
		"docker: something else": "command \"docker run\" failed with error: exit status 125\ndocker: something else",
	} {
		require.ErrorContains(t, e.explain(wrapped(output)), want)
	}
	pull := fmt.Errorf("failed to pull image %q: %w", "kindest/node:v9", wrapped("dial tcp: lookup registry-1.docker.io: no such host"))
	require.ErrorContains(t, e.explain(pull), "the node image can be neither found on this computer nor pulled; check the network, or set KIND_NODE_IMAGE")
	require.NoError(t, e.explain(nil))
}

// Somebody's own cluster may have our default name. It is neither used nor deleted.
func TestClustersOfOthersAreNotTouched(t *testing.T) {
	kubeconfig := func(authority string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"kind-workshop","users":[{"name":"kind-workshop"}],
"clusters":[{"name":"kind-workshop","cluster":{"server":"https://127.0.0.1:1","certificate-authority-data":%q}}],
"contexts":[{"name":"kind-workshop","context":{"cluster":"kind-workshop","user":"kind-workshop"}}]}`, base64.StdEncoding.EncodeToString([]byte(authority)))
	}
	theirs := filepath.Join(t.TempDir(), "admin.conf")
	require.NoError(t, os.WriteFile(theirs, []byte(kubeconfig("theirs")), 0o600))
	running, stopped := "cat "+theirs, "exit 1"
	for name, c := range map[string]struct {
		kubeconfig string // which an earlier command has left; "-" for none
		container  string // what reading the cluster's own kubeconfig does
		age        time.Duration
		ours       bool
	}{
		"none of that name was created here":                       {"-", running, 0, false},
		"another one of that name was":                             {kubeconfig("ours"), running, 0, false},
		"it was":                                                   {kubeconfig("theirs"), running, 0, true},
		"it was, and its containers are stopped":                   {kubeconfig("theirs"), stopped, time.Hour, true},
		"it was, by a command that was killed":                     {"", running, -10 * time.Minute, true},
		"it was not, and its containers are stopped":               {"-", stopped, 0, false},
		"another one was, and the containers of this are stopped":  {kubeconfig("ours"), stopped, -24 * time.Hour, false},
		"another one was to be, by a command that was then killed": {"", running, -24 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Dir: t.TempDir(), Name: "workshop"}
			changed := filepath.Join(t.TempDir(), "changed")
			install(t, map[string]string{"cat": `exec /bin/cat "$@"`, "docker": docker(`case "$*" in
"ps --quiet") ;;
"ps -a "*.Label*) echo workshop ;;
"ps -a "*) echo workshop-control-plane ;;
inspect*role*) echo control-plane ;;
"inspect workshop-control-plane") echo '[{"Created": "` + time.Now().Add(-c.age).Format(time.RFC3339Nano) + `"}]' ;;
exec*admin.conf) ` + c.container + ` ;;
*) echo "$*" >> ` + changed + `; exit 1
esac`)})
			if c.kubeconfig != "-" {
				require.NoError(t, os.WriteFile(o.kubeconfig(), []byte(c.kubeconfig), 0o600))
			}
			existed, err := Delete(t.Context(), o)
			if c.ours {
				require.True(t, existed)
				require.FileExists(t, changed, "it was not deleted")
				require.ErrorContains(t, err, "docker rm")
				again, _ := Delete(t.Context(), o) // what could not be deleted is still ours
				require.True(t, again)
				return
			}
			const want = `kind cluster "workshop" was not created from this directory, and was not touched; set KIND_CLUSTER to another name, or delete it: docker rm --force $(docker ps --all --quiet --filter label=io.x-k8s.kind.cluster=workshop)`
			require.EqualError(t, err, want)
			_, err = Up(t.Context(), o)
			require.EqualError(t, err, want)
			require.NoFileExists(t, changed)
		})
	}
}

func TestConfigure(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, Workers: 3, MaxPods: 20, AuditPolicy: "rules: []\n"}
	t.Setenv(NameVariable, "mine")
	t.Setenv(ImageVariable, "local/node:v1")
	o.setDefaults()
	require.Equal(t, "mine", o.Name)
	require.Equal(t, "local/node:v1", o.Image)
	config, err := configure(o)
	require.NoError(t, err)
	var roles []v1alpha4.NodeRole
	for _, node := range config.Nodes {
		roles = append(roles, node.Role)
	}
	require.Equal(t, []v1alpha4.NodeRole{"control-plane", "worker", "worker", "worker"}, roles)
	require.Contains(t, config.KubeadmConfigPatches[0], "maxPods: 20\n")
	require.Contains(t, config.KubeadmConfigPatches[1], "audit-log-path")
	policy, err := os.ReadFile(config.Nodes[0].ExtraMounts[0].HostPath)
	require.NoError(t, err)
	require.Equal(t, "rules: []\n", string(policy))

	t.Setenv(NameVariable, "")
	t.Setenv(ImageVariable, "")
	plain := Options{}
	plain.setDefaults()
	require.Equal(t, "workshop", plain.Name)
	require.Empty(t, plain.Image, "kind chooses it")
	config, err = configure(plain)
	require.NoError(t, err)
	require.Len(t, config.Nodes, 1)
	require.Empty(t, config.KubeadmConfigPatches)
}

func TestProgressHasALineForEachStep(t *testing.T) {
	var out bytes.Buffer
	l := &logger{out: &out}
	l.V(0).Infof("Creating cluster %q ...\n", "workshop")
	l.V(0).Infof(" • %s  ...\n", "Preparing nodes 📦 📦 ")
	l.V(0).Infof(" ✓ %s\n", "Preparing nodes 📦 📦 ")
	l.V(1).Info(" • a detail ...")
	l.Warnf("cgroup v%d is deprecated", 1)
	require.Equal(t, "kind: preparing nodes\nkind: cgroup v1 is deprecated\n", out.String())
	require.True(t, l.V(0).Enabled())
	require.False(t, l.V(1).Enabled())
}
