// Package environ makes the environments of the programs that the harness runs.
//
// A controller under torture may ignore the flags that it is given, and a page may run any command. Whatever they
// do, they must not find a cluster, or an account with a cloud, of the person who runs them. So their environment is
// made from nothing: [Isolated] keeps what says how programs run on this machine, and gives them a HOME of their own.
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

// kept are the variables that an isolated program gets from ours. None of them names a cluster, an account, or a
// file that could hold one.
var kept = []string{
	"PATH", "TMPDIR", "USER", "LOGNAME", "SHELL", "TZ",
	"TERM", "COLORTERM", "NO_COLOR", "LANG", "LANGUAGE",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
	"GOCOVERDIR", "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GORACE", "GOTRACEBACK",
}

// Isolated returns an environment in which client-go, kubectl and the clients of clouds find nothing. HOME is home,
// which is made if it is not there. names are further variables of ours that the program gets, if they are set.
// The caller adds the one cluster that the program may use.
func Isolated(home string, names ...string) ([]string, error) {
	if err := makeHome(home); err != nil {
		return nil, fmt.Errorf("make a home directory for a program: %w", err)
	}
	env := []string{"HOME=" + home}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if slices.Contains(kept, name) || strings.HasPrefix(name, "LC_") || slices.Contains(names, name) {
			env = append(env, variable)
		}
	}
	return env, nil
}

// makeHome makes a home directory. In it, the go command is told to count nothing: it does that in a process that
// outlives it, and would write to the directory when that is being removed.
func makeHome(home string) error {
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

// GoCommand returns what the go command needs in an isolated environment to go on with our settings, our downloaded
// modules and our build cache, which it would otherwise look for below HOME. Without a go command it is empty.
func GoCommand(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "-json", "GOCACHE", "GOENV", "GOMODCACHE", "GOPATH").Output()
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
		if strings.HasPrefix(name, "GO") || strings.HasPrefix(name, "CGO_") || isProxy {
			env = append(env, variable)
		}
	}
	for name, value := range settings {
		env = append(env, name+"="+value)
	}
	slices.Sort(env[len(env)-len(settings):])
	return env, nil
}
