// Package environ builds the environments of the programs that the harness runs.
//
//   - An isolated program finds no cluster and no cloud account of the user: no variable and no file in its HOME
//     leads to one.
//   - It runs as the user's other programs do: PATH, terminal, locale and certificates are the same.
//
// A controller under torture may ignore its flags, and a page may run any command, so it is not enough to give them
// a kubeconfig. [Isolated] therefore starts from an empty environment and inherits only what is known to be harmless.
package environ

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// inherited lists the variables that an isolated program inherits. None of them names a cluster or an account, or a
// file that could contain credentials for one.
var inherited = []string{
	"PATH", "TMPDIR", "USER", "LOGNAME", "SHELL", "TZ",
	"TERM", "COLORTERM", "NO_COLOR", "LANG", "LANGUAGE",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
	"GOCOVERDIR", "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GORACE", "GOTRACEBACK",
}

// Isolated returns an environment in which client-go, kubectl and cloud clients find neither a cluster nor an account.
// HOME is the directory home, which is created if it does not exist. names are additional variables to inherit if
// they are set. The caller adds what leads to the one cluster that the program may use.
func Isolated(home string, names ...string) ([]string, error) {
	if err := createHome(home); err != nil {
		return nil, fmt.Errorf("create a home directory for an isolated program: %w", err)
	}
	env := []string{"HOME=" + home}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if slices.Contains(inherited, name) || strings.HasPrefix(name, "LC_") {
			env = append(env, variable)
		}
	}
	for _, name := range names {
		if value, isSet := os.LookupEnv(name); isSet { // so the go command knows that the result of a test depends on it
			env = append(env, name+"="+value)
		}
	}
	return env, nil
}

// createHome creates a home directory in which the go command's telemetry is off. Telemetry runs in a process that
// outlives the go command, and would write to the directory while it is being removed.
func createHome(home string) error {
	config := filepath.Join(home, ".config")
	if runtime.GOOS == "darwin" {
		config = filepath.Join(home, "Library", "Application Support")
	}
	telemetry := filepath.Join(config, "go", "telemetry")
	if err := os.MkdirAll(telemetry, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(telemetry, "mode"), []byte("off"), 0o600)
}

// GoCommand returns the variables with which the go command, in an isolated environment, uses the same settings,
// downloaded modules and build cache as ours. It would otherwise look for them in the new HOME. If there is no go
// command on the PATH, the result is empty.
func GoCommand(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "-json").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	var settings map[string]string
	if err := json.Unmarshal(out, &settings); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	var env []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		isProxy := slices.Contains([]string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}, strings.ToUpper(name))
		if _, isSetting := settings[name]; isSetting || isProxy { // not all that begin with GO: some name credentials
			env = append(env, variable)
		}
	}
	for _, name := range []string{"GOCACHE", "GOENV", "GOMODCACHE", "GOPATH"} {
		env = append(env, name+"="+settings[name])
	}
	return env, nil
}
