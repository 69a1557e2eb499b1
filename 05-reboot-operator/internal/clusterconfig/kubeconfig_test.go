package clusterconfig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// KUBECONFIG may be a list of files. The clusters, users and contexts of all of them count, and so does the first current context.
func TestLoadsAListOfKubeconfigs(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	contexts := file("contexts", `{apiVersion: v1, kind: Config, current-context: b, contexts: [{name: b, context: {cluster: second}}]}`)
	clusters := file("clusters", `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: first}}],
		clusters: [{name: first, cluster: {server: "http://first"}}, {name: second, cluster: {server: "http://second"}}]}`)
	empty, broken, missing := file("empty", ""), file("broken", "{"), filepath.Join(dir, "missing")
	t.Setenv("HOME", dir) // a file that nobody has named is not read
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".kube"), 0o700))
	file(".kube/config", `{apiVersion: v1, kind: Config, current-context: h, contexts: [{name: h, context: {cluster: h}}], clusters: [{name: h, cluster: {server: "http://home"}}]}`)
	list := func(paths ...string) string {
		joined := ""
		for i, path := range paths {
			if i > 0 {
				joined += string(filepath.ListSeparator)
			}
			joined += path
		}
		return joined
	}
	for _, test := range []struct{ kubeconfig, host, err string }{
		{clusters, "http://first", ""},
		{list(contexts, clusters), "http://second", ""},
		{list(missing, clusters, empty), "http://first", ""},
		{missing, "", "no such file or directory"},
		{empty, "", "it names no cluster"},
		{list(missing, empty), "", "it names no cluster"},
		{list(broken, clusters), "", "broken"},
	} {
		config, err := Load(test.kubeconfig)
		if test.err != "" {
			require.ErrorContains(t, err, test.err, test.kubeconfig)
			continue
		}
		require.NoError(t, err, test.kubeconfig)
		require.Equal(t, test.host, config.Host, test.kubeconfig)
	}
}
