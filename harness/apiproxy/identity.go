package apiproxy

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/keyutil"
)

// identity sends requests to the API server with the credentials of one configuration.
type identity struct {
	config *rest.Config // a copy of the one given
	who    string       // the user; "" if the proxy cannot tell
	base   *url.URL     // the API server's URL

	transport http.RoundTripper
	// upgrading is the transport of requests that switch protocols, which takes HTTP/1.1.
	upgrading http.RoundTripper
	// connections are those of both transports. A request that has just ended may still hold one.
	connections *connrotation.Dialer
}

func newIdentity(config *rest.Config) (*identity, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("find the API server's URL: %w", err)
	}
	config = rest.CopyConfig(config)
	own := rest.CopyConfig(config)
	own.UserAgent = ""            // the client's is forwarded
	own.DisableCompression = true // the client decides about compression
	if own.Proxy == nil {
		own.Proxy = http.ProxyFromEnvironment // the default, but set, so that client-go does not share the transport
	}
	dial := own.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext // the default
	}
	connections := connrotation.NewDialer(connrotation.DialFunc(dial))
	own.Dial = connections.DialContext
	transport, err := rest.TransportFor(own)
	if err != nil {
		return nil, fmt.Errorf("create a client of %s: %w", base, err)
	}
	own.NextProtos = []string{"http/1.1"}
	upgrading, err := rest.TransportFor(own)
	if err != nil {
		return nil, fmt.Errorf("create a client of %s: %w", base, err)
	}
	return &identity{
		config: config, who: whoIs(config), base: base,
		transport: transport, upgrading: upgrading, connections: connections,
	}, nil
}

func (i *identity) close() {
	utilnet.CloseIdleConnectionsFor(i.transport)
	utilnet.CloseIdleConnectionsFor(i.upgrading)
	i.connections.CloseAll()
}

// url returns where to send a request for one of the proxy's URLs.
func (i *identity) url(u url.URL) *url.URL {
	u.Scheme, u.Host = i.base.Scheme, i.base.Host
	if prefix := strings.TrimSuffix(i.base.Path, "/"); prefix != "" {
		u.Path = prefix + u.Path
		if u.RawPath != "" {
			u.RawPath = prefix + u.RawPath
		}
	}
	return &u
}

// whoIs returns the user of a configuration, or "" if only the API server or a credential plugin can tell.
func whoIs(config *rest.Config) string {
	if config.Impersonate.UserName != "" {
		return config.Impersonate.UserName
	}
	token := config.BearerToken
	if data, err := os.ReadFile(config.BearerTokenFile); err == nil {
		token = string(data)
	}
	if token != "" {
		return subject(strings.TrimSpace(token))
	}
	cert := config.CertData
	if data, err := os.ReadFile(config.CertFile); err == nil && len(cert) == 0 {
		cert = data
	}
	if certs, err := certutil.ParseCertsPEM(cert); err == nil {
		return certs[0].Subject.CommonName
	}
	return config.Username
}

// subject returns the user that a ServiceAccount token claims, or "". It does not verify the token.
func subject(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct{ Sub string }
	if json.Unmarshal(payload, &claims) != nil || !strings.HasPrefix(claims.Sub, "system:serviceaccount:") {
		return ""
	}
	return claims.Sub
}

// Keys let a proxy and its clients authenticate each other. They are secret.
type Keys struct {
	CA          []byte `json:"ca"`          // certificate of the authority, PEM; its key is not kept
	Certificate []byte `json:"certificate"` // the proxy's certificate, PEM, valid for loopback addresses
	Key         []byte `json:"key"`         // private key of Certificate, PEM
	Token       string `json:"token"`       // bearer token of [Proxy.Config]
}

// NewKeys makes keys that are valid for a year.
func NewKeys() (*Keys, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}
	from := time.Now().Add(-time.Minute)
	// The name is unique, so that a client that trusts the authorities of two proxies can tell them apart.
	ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "workshop-proxy-" + newToken()[:8], NotBefore: from}, caKey)
	if err != nil {
		return nil, fmt.Errorf("create a certificate authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}
	certificate, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(from.UnixNano()),
		Subject:      pkix.Name{CommonName: "workshop-proxy"},
		NotBefore:    from,
		NotAfter:     from.AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}, ca, key.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("create a certificate: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	encode := func(der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der})
	}
	return &Keys{CA: encode(ca.Raw), Certificate: encode(certificate), Key: keyPEM, Token: newToken()}, nil
}

// Good says whether the keys are complete and valid for at least another day.
func (k *Keys) Good() bool {
	certs, err := certutil.ParseCertsPEM(k.Certificate)
	return err == nil && k.Token != "" && bytes.Contains(k.CA, []byte("CERTIFICATE")) &&
		time.Now().AddDate(0, 0, 1).Before(certs[0].NotAfter)
}

func newToken() string {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never returns an error
	return hex.EncodeToString(random[:])
}
