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

// identity is how requests are sent to the API server.
type identity struct {
	config *rest.Config // as it was given
	who    string       // the user, as far as we know
	base   *url.URL     // of the API server

	transport http.RoundTripper
	// upgrading is the transport of requests that become something else than HTTP, which only
	// HTTP/1.1 lets them.
	upgrading http.RoundTripper
	// connections are those of both. A request that has just ended may still hold one, for a moment.
	connections *connrotation.Dialer
}

func newIdentity(config *rest.Config) (*identity, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("find the API server's address: %w", err)
	}
	config = rest.CopyConfig(config)
	own := rest.CopyConfig(config)
	own.UserAgent = ""            // the client's is passed on
	own.DisableCompression = true // and so is what it says of compression
	if own.Proxy == nil {
		own.Proxy = http.ProxyFromEnvironment // as without it, but nobody else's transport
	}
	dial := own.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext // as without it
	}
	connections := connrotation.NewDialer(connrotation.DialFunc(dial))
	own.Dial = connections.DialContext
	transport, err := rest.TransportFor(own)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", base, err)
	}
	own.NextProtos = []string{"http/1.1"}
	upgrading, err := rest.TransportFor(own)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", base, err)
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

// url is where a request to one of our URLs is sent on to.
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

// whoIs names the user of a configuration, or "" where only the API server, or a plugin, knows.
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

// subject returns the user that a ServiceAccount's token says it is of. Nobody has checked that here.
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

// Keys are what a proxy and its clients know each other by. They are secret.
type Keys struct {
	CA          []byte `json:"ca"`          // certificate, PEM; its key was thrown away
	Certificate []byte `json:"certificate"` // the proxy's, PEM, for this machine's loopback addresses
	Key         []byte `json:"key"`         // of the Certificate, PEM
	Token       string `json:"token"`       // of [Proxy.Config]
}

// NewKeys makes keys that are good for a year.
func NewKeys() (*Keys, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	from := time.Now().Add(-time.Minute)
	// With a name of its own: where two proxies' authorities are trusted, they are not mixed up.
	ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "workshop-proxy-" + newToken()[:8], NotBefore: from}, caKey)
	if err != nil {
		return nil, fmt.Errorf("make a certificate authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
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
		return nil, fmt.Errorf("make a certificate: %w", err)
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

// Good says whether the keys can still be used: they are whole, and do not end within a day.
func (k *Keys) Good() bool {
	certs, err := certutil.ParseCertsPEM(k.Certificate)
	return err == nil && k.Token != "" && bytes.Contains(k.CA, []byte("CERTIFICATE")) &&
		time.Now().AddDate(0, 0, 1).Before(certs[0].NotAfter)
}

func newToken() string {
	var random [32]byte
	_, _ = rand.Read(random[:]) // it does not fail
	return hex.EncodeToString(random[:])
}
