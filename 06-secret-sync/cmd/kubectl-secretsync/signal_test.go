package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A kubelet stops the controller with SIGTERM, which is no failure. It has begun: it waits for an API server that does not answer.
func TestSIGTERMIsNoFailure(t *testing.T) {
	asked, end := make(chan struct{}, 100), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-end:
		}
	}))
	defer server.Close()
	defer close(end)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.Contexts["c"], config.CurrentContext = &clientcmdapi.Cluster{Server: server.URL}, &clientcmdapi.Context{Cluster: "c"}, "c"
	require.NoError(t, clientcmd.WriteToFile(*config, kubeconfig))
	program := exec.CommandContext(t.Context(), os.Args[0], "controller", "--source-namespace=shared", "--address=127.0.0.1:0", "--kubeconfig="+kubeconfig)
	program.Env = []string{"RUN_MAIN=yes", "HOME=" + t.TempDir()}
	var log strings.Builder
	program.Stderr = &log
	require.NoError(t, program.Start())
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	select {
	case <-asked:
	case err := <-ended:
		require.FailNow(t, "it has ended before it was told to", "%v %s", err, &log)
	}
	require.NoError(t, program.Process.Signal(syscall.SIGTERM))
	require.NoError(t, <-ended, "%s", &log)
}
