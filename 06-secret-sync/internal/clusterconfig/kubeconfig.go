// Package clusterconfig reads kubeconfigs.
package clusterconfig

import (
	"errors"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Load reads a kubeconfig, or merges several: KUBECONFIG may be a list of files, of which those that do not exist are skipped,
// as kubectl does. It reads no other file, so that a controller never acts on a cluster that nobody has named.
func Load(kubeconfig string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	if files := filepath.SplitList(kubeconfig); len(files) > 1 {
		rules = &clientcmd.ClientConfigLoadingRules{Precedence: files}
	}
	merged, err := rules.Load()
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.NewDefaultClientConfig(*merged, &clientcmd.ConfigOverrides{}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("it names no cluster")
	}
	return config, err
}
