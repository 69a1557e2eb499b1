// Package client tells the programs of the questions which API server and which namespace to use.
package client

import (
	"log"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config returns the configuration that KUBECONFIG names. If there is none, it exits.
func Config() *rest.Config {
	config, err := kubeconfig().ClientConfig()
	if err != nil {
		log.Fatal(err)
	}
	return config
}

// Namespace returns the namespace of the question: KUBECONFIG's default namespace. If there is no KUBECONFIG, it exits.
func Namespace() string {
	namespace, _, err := kubeconfig().Namespace()
	if err != nil {
		log.Fatal(err)
	}
	return namespace
}

func kubeconfig() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
}
