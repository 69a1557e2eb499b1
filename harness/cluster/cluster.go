// Package cluster is where a cluster comes from.
//
//   - [Start] starts a control plane of our own, as a process that lives no longer than this one.
//   - [Up] starts one that stays, in a directory that keeps its state; [Find] finds it again.
//   - [Open] is for a cluster that somebody else runs, named by a context of a kubeconfig.
//
// All of them are a [Cluster]: a kubeconfig, and what is asked of one.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Cluster is a cluster that can be used now.
type Cluster struct {
	// Kubeconfig is the path of a kubeconfig whose current context is this cluster, as administrator
	// or as whoever its owner made of us.
	Kubeconfig string
	// Name says which cluster it is, in words for a person.
	Name string
	// Version is the API server's, such as "v1.37.1".
	Version string
	// Nodes is how many Nodes there were when it was started or opened.
	Nodes int
	// Kubectl is the directory of our kubectl, or "" when there is none.
	Kubectl string

	process *process // of our own, started by Start; nil otherwise
}

// Config returns a client configuration for the cluster, without client-go's limit of 5 requests a
// second: what the harness does should not wait for itself.
func (c *Cluster) Config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", c.Kubeconfig, err)
	}
	config.QPS = -1
	return config, nil
}

// Client returns a client of the cluster.
func (c *Cluster) Client() (kubernetes.Interface, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// ServiceAccountConfig returns a client configuration that authenticates as a ServiceAccount, with a
// token good for an hour: what runs with it may do what the account's roles say, and no more. It
// keeps client-go's default limits, as a controller in a Pod would have.
func (c *Cluster) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	admin, err := c.Config()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := rest.AnonymousClientConfig(admin)
	config.QPS = 0
	config.BearerToken = token.Status.Token
	return config, nil
}

// WriteKubeconfig writes a kubeconfig with mode 0600 for a configuration of this cluster, such as
// one of ServiceAccountConfig. Its context has the given namespace.
func WriteKubeconfig(path string, config *rest.Config, namespace string) error {
	ca := config.CAData
	if len(ca) == 0 && config.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(config.CAFile); err != nil {
			return err
		}
	}
	const name = "workshop"
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   config.Host,
			TLSServerName:            config.ServerName,
			InsecureSkipTLSVerify:    config.Insecure,
			CertificateAuthorityData: ca,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			Token:                 config.BearerToken,
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name, Namespace: namespace}},
		CurrentContext: name,
	}, path)
}

// Env returns the environment of a command that is to use the cluster: KUBECONFIG, a PATH with our
// kubectl first, and scratch as the place for what kubectl keeps, and "go run" leaves when it is killed.
func (c *Cluster) Env(scratch string) []string {
	env := []string{
		"KUBECONFIG=" + c.Kubeconfig,
		"KUBECACHEDIR=" + filepath.Join(scratch, "kubectl-cache"),
		"KUBECTL_KUBERC=false", // a person's own defaults and aliases for kubectl
		"GOTMPDIR=" + scratch,
	}
	if c.Kubectl != "" {
		env = append(env, "PATH="+c.Kubectl+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	return env
}

// Open opens the cluster of a context of the person's kubeconfig, which is found as kubectl finds it.
// The copy in scratch has that context alone, as the current one; the person's file is not touched.
// Our kubectl is built first, if it has to be; progress is told how far that is.
func Open(ctx context.Context, contextName, scratch string, progress io.Writer) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	all, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	if _, ok := all.Contexts[contextName]; !ok {
		return nil, fmt.Errorf("there is no context %q in %s; it has %s",
			contextName, describe(rules), list(sortedKeys(all.Contexts), "none"))
	}
	all.CurrentContext = contextName
	if err := errors.Join(clientcmdapi.MinifyConfig(all), clientcmdapi.FlattenConfig(all)); err != nil {
		return nil, fmt.Errorf("read context %q: %w", contextName, err)
	}
	path, err := program(ctx, progress)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Kubeconfig: filepath.Join(scratch, "kubeconfig"), Kubectl: filepath.Dir(path)}
	if err := clientcmd.WriteToFile(*all, c.Kubeconfig); err != nil {
		return nil, err
	}
	c.Name = fmt.Sprintf("context %q (%s)", contextName, all.Clusters[all.Contexts[contextName].Cluster].Server)
	if err := c.look(ctx); err != nil {
		return nil, fmt.Errorf("%s does not answer: %w", c.Name, err)
	}
	return c, nil
}

// openFile opens one of our clusters by its kubeconfig.
func openFile(ctx context.Context, kubeconfig string) (*Cluster, error) {
	path, err := program(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Kubeconfig: kubeconfig, Name: "the cluster of " + kubeconfig, Kubectl: filepath.Dir(path)}
	if err := c.look(ctx); err != nil {
		return nil, fmt.Errorf("%s does not answer: %w", c.Name, err)
	}
	return c, nil
}

// look asks the cluster for its version and counts its Nodes.
func (c *Cluster) look(ctx context.Context) error {
	config, err := c.Config()
	if err != nil {
		return err
	}
	config.Timeout = 10 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	version, err := discovery.ToServerVersionInterfaceWithContext(client.Discovery()).ServerVersionWithContext(ctx)
	if err != nil {
		return err
	}
	c.Version = version.GitVersion
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	c.Nodes = len(nodes.Items)
	return nil
}
