package main

import (
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// peer measures kubernetes-replicator, with an administrator's rights and Secrets only. Its sources have the label of a copy,
// and so have its copies, which get the labels of their source; that is how the benchmark sees them.
func (b *bench) peer(s size, one *round) (err error) {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	running, err := b.start("kubernetes-replicator", b.cluster.Kubeconfig, "-kubeconfig="+b.cluster.Kubeconfig, "-status-addr="+address,
		"-replicate-configmaps=false", "-replicate-roles=false", "-replicate-role-bindings=false", "-replicate-service-accounts=false", "-log-level=warn")
	if err != nil {
		return err
	}
	defer func() {
		_ = running.stop() // it does not handle SIGTERM
	}()
	client := &http.Client{Timeout: 5 * time.Second}
	if err := b.until("it is ready", func() string {
		request, err := http.NewRequestWithContext(b.ctx, http.MethodGet, "http://"+address+"/readyz", nil)
		if err != nil {
			return err.Error()
		}
		response, err := client.Do(request)
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return response.Status
		}
		return ""
	}); err != nil {
		return err
	}
	pushed := func(name string, data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: copyLabels(), Annotations: map[string]string{"replicator.v1.mittwald.de/replicate-to": "team-.*"},
		}, Data: data}
	}
	if one.peer.create, err = b.create(s, pushed); err != nil {
		return err
	}
	if one.peer.update, err = b.change(s, 1); err != nil {
		return err
	}
	if one.peer.remove, err = b.remove(s); err != nil {
		return err
	}
	one.peerMemory, err = running.memory()
	return err
}

// freeAddress returns a free port of a loopback address.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}
