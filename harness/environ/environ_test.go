package environ

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// credentialVariables are examples of variables that lead to a cluster or an account.
var credentialVariables = []string{
	"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBERNETES_MASTER", "KUBE_CONTEXT", "KUBE_FEATURE_X",
	"OS_CLOUD", "OS_AUTH_URL", "OS_CLIENT_CONFIG_FILE", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "GOOGLE_APPLICATION_CREDENTIALS",
	"CLOUDSDK_CONFIG", "AZURE_CONFIG_DIR", "XDG_CONFIG_HOME", "DOCKER_HOST", "SSH_AUTH_SOCK", "WORKSHOP_KUBECONFIG", "HTTPS_PROXY",
	"USE_EXISTING_CLUSTER", "GOVC_PASSWORD", "GOOGLE_CREDENTIALS",
}

func TestIsolatedInheritsNoCredentials(t *testing.T) {
	for _, name := range append(credentialVariables, "LC_ALL", "NAMED") {
		t.Setenv(name, "the caller's")
	}
	t.Setenv("HOME", "the caller's")
	home := filepath.Join(t.TempDir(), "new", "home")
	env, err := Isolated(home, "NAMED", "NOT_SET")
	require.NoError(t, err)
	require.DirExists(t, home)
	names := []string{}
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		names = append(names, name)
		if value == "the caller's" {
			require.Contains(t, []string{"LC_ALL", "NAMED"}, name)
		}
	}
	require.Contains(t, env, "HOME="+home)
	require.Contains(t, env, "PATH="+os.Getenv("PATH"))
	require.Contains(t, env, "NAMED=the caller's")
	require.Contains(t, env, "LC_ALL=the caller's")
	require.NotContains(t, names, "NOT_SET")

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = Isolated(filepath.Join(file, "home"))
	require.ErrorContains(t, err, "create a home directory for an isolated program: ")
}

// Some names of variables with credentials begin like those of the go command's settings.
func TestGoCommandHasNoCredentials(t *testing.T) {
	for _, name := range append(credentialVariables, "GOFLAGS", "CGO_CFLAGS") {
		if name != "HTTPS_PROXY" && name != "XDG_CONFIG_HOME" {
			t.Setenv(name, "-the=caller")
		}
	}
	env, err := GoCommand(t.Context())
	require.NoError(t, err)
	var names []string
	for _, variable := range env {
		if name, value, _ := strings.Cut(variable, "="); value == "-the=caller" {
			names = append(names, name)
		}
	}
	require.ElementsMatch(t, []string{"GOFLAGS", "CGO_CFLAGS"}, names)
}

func TestIsolatedGoCommandUsesTheSameCaches(t *testing.T) {
	settings, err := GoCommand(t.Context())
	require.NoError(t, err)
	home := t.TempDir()
	isolated, err := Isolated(home)
	require.NoError(t, err)
	goEnv := func(env []string) string {
		cmd := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOENV", "GOFLAGS", "GOMODCACHE", "GOPATH", "GOPROXY", "GOTOOLCHAIN")
		cmd.Env = env
		out, err := cmd.Output()
		require.NoError(t, err)
		return string(out)
	}
	require.Equal(t, goEnv(os.Environ()), goEnv(slices.Concat(isolated, settings)))
	require.NoDirExists(t, filepath.Join(home, ".config", "go", "telemetry", "local"), "the go command has collected telemetry")

	t.Setenv("PATH", t.TempDir())
	settings, err = GoCommand(t.Context())
	require.NoError(t, err)
	require.Empty(t, settings)
}
