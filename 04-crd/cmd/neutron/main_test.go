package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The tests start the test binary as the program, so that they can send it signals and see its exit status.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program is a running process of the program.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr bytes.Buffer // complete when the process has ended
}

// start starts the program on a free port. It is killed if it still runs after five minutes.
func start(t *testing.T, env []string, args ...string) *program {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	p := &program{t: t, cmd: exec.CommandContext(ctx, os.Args[0], append([]string{"--address=127.0.0.1:0"}, args...)...)}
	p.cmd.Env = append([]string{"RUN_MAIN=yes", "PATH=" + os.Getenv("PATH")}, env...)
	p.cmd.Stderr, p.cmd.WaitDelay = &p.stderr, time.Minute
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.stdout = bufio.NewReader(stdout)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = p.cmd.Wait() // fails if the test has already waited
	})
	return p
}

// line returns the next line that the program, or its command, prints.
func (p *program) line() string {
	p.t.Helper()
	line, err := p.stdout.ReadString('\n')
	require.NoError(p.t, err)
	return strings.TrimSpace(line)
}

// end waits until the program ends. It returns the rest of what it prints, and its exit status.
func (p *program) end() (stdout string, status int) {
	p.t.Helper()
	rest, err := io.ReadAll(p.stdout)
	require.NoError(p.t, err)
	_ = p.cmd.Wait() // its error is the exit status
	return string(rest), p.cmd.ProcessState.ExitCode()
}

// get returns the status code and body of a response to an ordinary user.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	request.Header.Set("X-User-Id", "u")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func TestServesUntilItIsStopped(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			p := start(t, nil)
			url := p.line()
			status, body := get(t, url+"/v2.0/networks")
			require.Equal(t, http.StatusOK, status)
			require.JSONEq(t, `{"networks":[]}`, body)
			require.NoError(t, p.cmd.Process.Signal(signal))
			_, status = p.end()
			require.Zero(t, status, p.stderr.String())
			require.Empty(t, p.stderr.String())
		})
	}
}

func TestRequestIDsMakeErrorsDiffer(t *testing.T) {
	for flag, differ := range map[string]bool{"--request-ids=false": false, "--request-ids": true} {
		t.Run(flag, func(t *testing.T) {
			url := start(t, nil, flag).line()
			_, first := get(t, url+"/v2.0/networks/none")
			_, second := get(t, url+"/v2.0/networks/none")
			require.Equal(t, differ, first != second, "%s %s", first, second)
		})
	}
}

// post creates an object as an ordinary user, and returns the status code and the body of the response.
func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("X-User-Id", "tester")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(answer)
}

func TestPageSize(t *testing.T) {
	url := start(t, nil, "--page-size=1").line()
	for range 2 {
		status, _ := post(t, url+"/v2.0/networks", `{"network":{}}`)
		require.Equal(t, http.StatusCreated, status)
	}
	_, list := get(t, url+"/v2.0/networks")
	require.Contains(t, list, `"networks_links":[{"href":"`+url+`/v2.0/networks?limit=1`)
}

func TestQuotaOfSubnets(t *testing.T) {
	url := start(t, nil, "--subnets=1").line()
	_, body := post(t, url+"/v2.0/networks", `{"network":{}}`)
	_, rest, _ := strings.Cut(body, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	for number, want := range []int{http.StatusCreated, http.StatusConflict} {
		status, answer := post(t, url+"/v2.0/subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"ip_version":4,"cidr":"10.0.%d.0/24"}}`, id, number))
		require.Equal(t, want, status, answer)
	}
}

func TestServesUntilTheCommandEnds(t *testing.T) {
	p := start(t, nil, "sh", "-c", "echo at $NEUTRON_URL")
	require.Contains(t, p.line(), "at http://127.0.0.1:", "the URL alone would be taken for the command's output")
	out, status := p.end()
	require.Zero(t, status, p.stderr.String())
	require.Empty(t, out)

	p = start(t, nil, "sh", "-c", "exit 3")
	_, status = p.end()
	require.Equal(t, 1, status)
	require.Equal(t, "neutron: sh: exit status 3\n", p.stderr.String())
}

func TestStopsTheCommandWithItself(t *testing.T) {
	p := start(t, nil, "sh", "-c", `trap "echo stopped; exit 0" TERM; echo started; while :; do sleep 0.1; done`)
	require.Equal(t, "started", p.line())
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	out, _ := p.end()
	require.Equal(t, "stopped\n", out)
}

func TestDoesNotStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	tests := map[string]struct {
		env, args []string
		want      string
	}{
		"the port is taken":             {nil, []string{"--address=" + taken.Addr().String()}, "serve at --address " + taken.Addr().String() + ": "},
		"request IDs with --real":       {nil, []string{"--real", "--request-ids"}, "--request-ids, --page-size and --subnets do not go with --real"},
		"pages with --real":             {nil, []string{"--real", "--page-size=1"}, "--request-ids, --page-size and --subnets do not go with --real"},
		"a quota with --real":           {nil, []string{"--real", "--subnets=1"}, "--request-ids, --page-size and --subnets do not go with --real"},
		"a negative quota":              {nil, []string{"--subnets=-1"}, "--subnets must be 0 or more, not -1"},
		"a negative page size":          {nil, []string{"--page-size=-1"}, "--page-size must be 0 or more, not -1"},
		"request IDs with the variable": {[]string{"NEUTRON=real"}, []string{"--request-ids"}, "--request-ids, --page-size and --subnets do not go with --real"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := start(t, test.env, test.args...)
			_, status := p.end()
			require.Equal(t, 1, status)
			require.Contains(t, p.stderr.String(), "neutron: "+test.want)
		})
	}
}
