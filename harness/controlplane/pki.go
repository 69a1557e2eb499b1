package main

import (
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
)

// keyPair holds the paths of the PEM files of a certificate (or public key) and its private key.
type keyPair struct{ cert, key string }

// pkiFiles holds the paths of the PEM files that the components read.
type pkiFiles struct {
	ca, apiServer, serviceAccount keyPair
	dir                           string // the directory of all these files, in the data directory
}

// ensurePKI returns the cluster's certificates and keys. It creates them on the first call for a data
// directory.
func ensurePKI(dir string) (*pkiFiles, error) {
	files := &pkiFiles{dir: filepath.Join(dir, "pki")}
	pair := func(name, certExt string) keyPair {
		return keyPair{filepath.Join(files.dir, name+certExt), filepath.Join(files.dir, name+".key")}
	}
	files.ca, files.apiServer, files.serviceAccount = pair("ca", ".crt"), pair("apiserver", ".crt"), pair("sa", ".pub")

	// The last file to be written: if it exists, all of them do.
	if _, err := os.Stat(files.apiServer.cert); err == nil {
		return files, nil
	}
	if err := os.MkdirAll(files.dir, 0o700); err != nil {
		return nil, err
	}
	caCert, caKey, err := pkiutil.NewCertificateAuthority(certConfig("workshop", nil))
	if err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	if err := pkiutil.WriteCertAndKey(files.dir, "ca", caCert, caKey); err != nil {
		return nil, err
	}
	saKey, err := pkiutil.GeneratePrivateKey(kubeadm.EncryptionAlgorithmECDSAP256)
	if err != nil {
		return nil, fmt.Errorf("make service account key: %w", err)
	}
	if err := pkiutil.WriteKey(files.dir, "sa", saKey); err != nil {
		return nil, err
	}
	if err := pkiutil.WritePublicKey(files.dir, "sa", saKey.Public()); err != nil {
		return nil, err
	}
	serving := certConfig("kube-apiserver", nil)
	serving.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serving.AltNames = certutil.AltNames{
		IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"},
	}
	cert, key, err := pkiutil.NewCertAndKey(caCert, caKey, serving)
	if err != nil {
		return nil, fmt.Errorf("make serving certificate: %w", err)
	}
	return files, pkiutil.WriteCertAndKey(files.dir, "apiserver", cert, key)
}

func certConfig(commonName string, organizations []string) *pkiutil.CertConfig {
	return &pkiutil.CertConfig{
		Config:              certutil.Config{CommonName: commonName, Organization: organizations},
		EncryptionAlgorithm: kubeadm.EncryptionAlgorithmECDSAP256,
	}
}

// writeKubeconfig writes a kubeconfig for user, a member of system:masters, to path, with mode 0600.
// It holds the user's certificate and key, so the file is all that a client needs.
//
// The components use such kubeconfigs as well, each as its own user: members of that group are authorized
// before the default roles exist, so the components need not wait for those.
func (f *pkiFiles) writeKubeconfig(path, server, user string) error {
	caCert, caKey, err := pkiutil.TryLoadCertAndKeyFromDisk(f.dir, "ca")
	if err != nil {
		return fmt.Errorf("read certificate authority: %w", err)
	}
	config := certConfig(user, []string{"system:masters"})
	config.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	cert, key, err := pkiutil.NewCertAndKey(caCert, caKey, config)
	if err != nil {
		return fmt.Errorf("make certificate of %s: %w", user, err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("encode key of %s: %w", user, err)
	}
	const name = "workshop"
	kubeconfig := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   server,
			CertificateAuthorityData: pkiutil.EncodeCertPEM(caCert),
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{user: {
			ClientCertificateData: pkiutil.EncodeCertPEM(cert),
			ClientKeyData:         keyPEM,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	}
	if err := clientcmd.WriteToFile(kubeconfig, path); err != nil {
		return err
	}
	return os.Chmod(path, 0o600)
}
