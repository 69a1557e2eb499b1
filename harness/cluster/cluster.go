// Package cluster starts Kubernetes clusters, or opens existing ones.
//
//   - [Start] starts a control plane that does not outlive this process, however the process ends.
//   - [Up] starts a control plane that does, and keeps its state in a directory; [Find] finds it again.
//   - [Open] opens an existing cluster, given a context of the user's kubeconfig, which it does not modify, and
//     [OpenFile] one of a kubeconfig of our own.
//
// Each returns a [Cluster] that is ready for use. Package kind creates clusters of containers.
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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Cluster is a cluster that is ready for use.
type Cluster struct {
	// Kubeconfig is the path of a kubeconfig whose current context is this cluster. Its user is a cluster
	// administrator, unless [Open] has copied it from the user's own kubeconfig.
	Kubeconfig string
	// Name describes the cluster in messages.
	Name string
	// Version is the API server's, such as "v1.37.1".
	Version string
	// Nodes is the number of Nodes at the time when the cluster was started or opened.
	Nodes int
	// Kubectl is the directory that contains kubectl, of version [KubernetesVersion]. It is first in the PATH of Env.
	Kubectl string

	process *process // the control plane, if Start has started the cluster; otherwise nil
}

// KubeconfigVariable is the name of an environment variable with the path of the kubeconfig that "workshop node" uses.
// The commands of pages, and the processes on simulated machines, have it in their environments: with the KUBECONFIG that
// they have, they may have no rights for the machines' Nodes, and their requests are recorded.
const KubeconfigVariable = "WORKSHOP_KUBECONFIG"

// Config returns a client configuration for the cluster. It has no client-side rate limit (client-go's default is 5
// requests a second), so that the harness is never throttled by its own client.
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

// ServiceAccountConfig returns a client configuration that authenticates as a ServiceAccount, with a token that
// expires after an hour. It has the rights of the ServiceAccount's roles and no others, and client-go's default rate
// limit, as a controller in a Pod has.
func (c *Cluster) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	return c.serviceAccountConfig(ctx, namespace, name, authenticationv1.TokenRequestSpec{})
}

// NodeServiceAccountConfig is ServiceAccountConfig with a token that is bound to a Node, as that of a Pod on the Node is:
// admission policies see the Node's name in the extra field authentication.kubernetes.io/node-name of the user, and the
// token is no longer valid when the Node has been removed. It expires after a day.
func (c *Cluster) NodeServiceAccountConfig(ctx context.Context, namespace, name string, node *corev1.Node) (*rest.Config, error) {
	day := int64(24 * time.Hour / time.Second)
	return c.serviceAccountConfig(ctx, namespace, name, authenticationv1.TokenRequestSpec{
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		ExpirationSeconds: &day,
	})
}

func (c *Cluster) serviceAccountConfig(ctx context.Context, namespace, name string, spec authenticationv1.TokenRequestSpec) (*rest.Config, error) {
	admin, err := c.Config()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := rest.AnonymousClientConfig(admin)
	config.QPS = 0
	config.BearerToken = token.Status.Token
	return config, nil
}

// WriteKubeconfig writes a kubeconfig with mode 0600 to path. config is a client configuration that authenticates
// with a token or a client certificate, such as one from [Cluster.ServiceAccountConfig]. namespace is the namespace
// of the kubeconfig's context, "workshop".
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

// Env returns the environment variables of a command that uses the cluster: KUBECONFIG, a PATH that begins with our
// kubectl, and settings with which kubectl's cache and the go command's temporary files go to the directory scratch.
func (c *Cluster) Env(scratch string) []string {
	env := []string{
		"KUBECONFIG=" + c.Kubeconfig,
		"KUBECACHEDIR=" + filepath.Join(scratch, "kubectl-cache"),
		"KUBECTL_KUBERC=false", // ignore the user's own defaults and aliases for kubectl
		"GOTMPDIR=" + scratch,  // "go run" leaves files there when it is killed
	}
	if c.Kubectl != "" {
		env = append(env, "PATH="+c.Kubectl+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	return env
}

// Open opens the cluster of a context of the user's kubeconfig, which it finds as kubectl does. It writes a kubeconfig
// with only that context to the directory scratch and leaves the user's file unchanged. It builds our kubectl if
// necessary and reports that to progress, which may be nil.
func Open(ctx context.Context, contextName, scratch string, progress io.Writer) (*Cluster, error) {
	all, err := loadContext(contextName)
	if err != nil {
		return nil, err
	}
	all.CurrentContext = contextName
	if err := errors.Join(clientcmdapi.MinifyConfig(all), clientcmdapi.FlattenConfig(all)); err != nil {
		return nil, fmt.Errorf("read context %q: %w", contextName, err)
	}
	path, err := programPath(ctx, progress)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Kubeconfig: filepath.Join(scratch, "kubeconfig"), Kubectl: filepath.Dir(path)}
	if err := clientcmd.WriteToFile(*all, c.Kubeconfig); err != nil {
		return nil, err
	}
	c.Name = fmt.Sprintf("context %q (%s)", contextName, all.Clusters[all.Contexts[contextName].Cluster].Server)
	if err := c.probe(ctx); err != nil {
		return nil, fmt.Errorf("%s does not answer: %w", c.Name, err)
	}
	return c, nil
}

// CheckContext returns an error if the user's kubeconfig has no context of this name, as [Open] does. It asks no cluster.
func CheckContext(contextName string) error {
	_, err := loadContext(contextName)
	return err
}

// loadContext reads the user's kubeconfig, as kubectl does, which must have a context of this name.
func loadContext(contextName string) (*clientcmdapi.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	all, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	if _, ok := all.Contexts[contextName]; !ok {
		return nil, fmt.Errorf("there is no context %q in %s; it has %s",
			contextName, kubeconfigFiles(rules), joinNames(sortedKeys(all.Contexts), "none"))
	}
	return all, nil
}

// OpenFile opens the cluster of a kubeconfig's current context. name describes it in messages. It builds our kubectl if
// necessary and reports that to progress, which may be nil.
func OpenFile(ctx context.Context, kubeconfig, name string, progress io.Writer) (*Cluster, error) {
	path, err := programPath(ctx, progress)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Kubeconfig: kubeconfig, Name: name, Kubectl: filepath.Dir(path)}
	if err := c.probe(ctx); err != nil {
		return nil, fmt.Errorf("%s does not answer: %w", c.Name, err)
	}
	return c, nil
}

// probe sets Version and Nodes. It fails if the API server does not answer within 10 s.
func (c *Cluster) probe(ctx context.Context) error {
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
