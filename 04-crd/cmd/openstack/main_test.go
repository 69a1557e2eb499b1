package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"github.com/stretchr/testify/require"

	"example.com/controllers/crd/neutron"
	"example.com/controllers/crd/neutrontest"
)

// The tests start the test binary as the program, so that they see what it prints and its exit status.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// runProgram runs the program with the Neutron at a URL. It returns what the program prints, with each sequence of spaces as
// one, and its exit status.
func runProgram(t *testing.T, url string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = []string{"RUN_MAIN=yes", "HOME=" + t.TempDir(), "NEUTRON_URL=" + url, "NEUTRON_PROJECT=shop", "NEUTRON_ROLES=admin"}
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	_ = cmd.Run() // its error is the exit status
	spaces := regexp.MustCompile(" +")
	return spaces.ReplaceAllString(out.String(), " "), errors.String(), cmd.ProcessState.ExitCode()
}

// newCloud returns the URL of a Neutron, and a client of a regular user.
func newCloud(t *testing.T) (url string, client *gophercloud.ServiceClient) {
	server := httptest.NewServer(&neutrontest.Server{})
	t.Cleanup(server.Close)
	t.Setenv("NEUTRON_URL", server.URL)
	t.Setenv("NEUTRON_PROJECT", "shop")
	cloud, err := neutron.Connect(t.Context())
	require.NoError(t, err)
	return server.URL, cloud.Client
}

func TestCommands(t *testing.T) {
	url, client := newCloud(t)
	network, err := networks.Create(t.Context(), client, networks.CreateOpts{Name: "front", Description: "of the shop"}).Extract()
	require.NoError(t, err)
	subnet, err := subnets.Create(t.Context(), client, subnets.CreateOpts{NetworkID: network.ID, Description: "of the front", CIDR: "10.0.0.0/24", IPVersion: 4}).Extract()
	require.NoError(t, err)
	run := func(args ...string) string {
		t.Helper()
		out, problem, status := runProgram(t, url, args...)
		require.Zero(t, status, problem)
		require.Empty(t, problem)
		return out
	}
	require.Equal(t, "ID NAME DESCRIPTION\n"+network.ID+" front of the shop\n", run("network", "list"))
	require.Equal(t, "ID CIDR GATEWAY DESCRIPTION\n"+subnet.ID+" 10.0.0.0/24 10.0.0.1 of the front\n", run("subnet", "list"))
	require.Empty(t, run("subnet", "set", subnet.ID, "10.0.1.1"))
	require.Contains(t, run("subnet", "list"), " 10.0.1.1 ")

	require.Equal(t, "ID NAME NETWORK\n", run("port", "list"))
	port := strings.TrimSpace(run("port", "create", network.ID, "web"))
	require.Equal(t, "ID NAME NETWORK\n"+port+" web "+network.ID+"\n", run("port", "list"))
	require.Empty(t, run("port", "delete", port))
	require.Equal(t, "ID NAME NETWORK\n", run("port", "list"))

	require.Empty(t, run("quota", "set", "shop", "1"))
	_, err = networks.Create(t.Context(), client, networks.CreateOpts{}).Extract()
	require.ErrorContains(t, err, "Quota exceeded")
	require.Empty(t, run("quota", "set", "shop", "2"))
	_, err = networks.Create(t.Context(), client, networks.CreateOpts{}).Extract()
	require.NoError(t, err)
}

func TestFailures(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	t.Cleanup(server.Close)
	tests := map[string]struct{ args, want string }{
		"no arguments":         {"", "usage: openstack network list"},
		"half a command":       {"network", "usage: "},
		"an unknown command":   {"router list", "usage: "},
		"an argument too many": {"network list all", "usage: "},
		"an argument too few":  {"port create front", "usage: "},
		"list networks":        {"network list", "openstack: network list: "},
		"list subnets":         {"subnet list", "openstack: subnet list: "},
		"set a gateway":        {"subnet set 1 10.0.0.1", "openstack: subnet set: "},
		"list ports":           {"port list", "openstack: port list: "},
		"create a port":        {"port create 1 web", "openstack: port create: "},
		"delete a port":        {"port delete 1", "openstack: port delete: "},
		"set a quota":          {"quota set shop 1", "openstack: quota set: Expected HTTP response code"},
		"a quota of many":      {"quota set shop many", `openstack: quota set: "many" is not a number of networks`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out, problem, status := runProgram(t, server.URL, strings.Fields(test.args)...)
			require.Equal(t, 1, status)
			require.Contains(t, problem, test.want)
			require.Empty(t, out)
		})
	}
	t.Run("no cloud", func(t *testing.T) {
		_, problem, status := runProgram(t, "", "network", "list")
		require.Equal(t, 1, status)
		require.Contains(t, problem, "openstack: no cloud is configured")
	})
}
