package neutron_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/controllers/crd/neutron"
)

// keystone is an OpenStack with one user, me, whose password is "secret". Each region of its catalog has a Neutron that
// records requests.
type keystone struct {
	*testing.T
	url      string
	service  string        // type of the service in the catalog
	tokens   int           // number of tokens issued; only the last one is valid
	requests []string      // "REGION PATH TOKEN" of the requests to a Neutron
	hangs    chan struct{} // if not nil, no Neutron says which versions it has; there is a value for each that was asked
}

func newKeystone(t *testing.T) *keystone {
	for _, name := range []string{"NEUTRON_URL", "OS_CLOUD", "OS_AUTH_URL", "OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_NAME", "OS_DOMAIN_NAME", "OS_REGION_NAME", "OS_USER_DOMAIN_NAME", "OS_PROJECT_DOMAIN_ID", "OS_INTERFACE", "OS_CACERT"} {
		t.Setenv(name, "")
	}
	k := &keystone{T: t, service: "network"}
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	k.url = server.URL
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	text := `{clouds: {test: {region_name: north, auth: {auth_url: "%s/v3", username: me, password: secret, project_name: shop, domain_name: Default}}}}`
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, text, k.url), 0o600))
	t.Setenv("OS_CLIENT_CONFIG_FILE", file)
	return k
}

// setVariables sets the variables by which OpenStack's own client finds an account without clouds.yaml.
func (k *keystone) setVariables() {
	for name, value := range map[string]string{
		"OS_AUTH_URL": k.url + "/v3", "OS_USERNAME": "me", "OS_PASSWORD": "secret", "OS_PROJECT_NAME": "shop", "OS_DOMAIN_NAME": "Default", "OS_REGION_NAME": "south",
	} {
		k.Setenv(name, value)
	}
}

// ServeHTTP implements [http.Handler].
func (k *keystone) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if region, path, isNeutron := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/v2.0/"); isNeutron {
		token := r.Header.Get("X-Auth-Token")
		k.requests = append(k.requests, region+" "+path+" "+token)
		if token != fmt.Sprint("token-", k.tokens) {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprint(w, `{"networks":[]}`)
		return
	}
	if r.URL.Path != "/v3/auth/tokens" { // which versions a Neutron has
		if k.hangs != nil && r.URL.Path != "/v3/" {
			k.hangs <- struct{}{}
			<-k.Context().Done()
			return
		}
		fmt.Fprintf(w, `{"versions":[{"id":"v2.0","status":"CURRENT","links":[{"rel":"self","href":"%s/v2.0/"}]}]}`, k.url+strings.TrimSuffix(r.URL.Path, "/"))
		return
	}
	var login struct {
		Auth struct {
			Identity struct {
				Password struct {
					User struct{ Name, Password string }
				}
			}
			Scope struct{ Project struct{ Name string } }
		}
	}
	assert.NoError(k, json.NewDecoder(r.Body).Decode(&login))
	if user := login.Auth.Identity.Password.User; user.Name != "me" || user.Password != "secret" || login.Auth.Scope.Project.Name != "shop" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	k.tokens++
	w.Header().Set("X-Subject-Token", fmt.Sprint("token-", k.tokens))
	w.WriteHeader(http.StatusCreated)
	endpoint := func(region string) string {
		return fmt.Sprintf(`{"id":"%[2]s","interface":"public","region":"%[2]s","region_id":"%[2]s","url":"%[1]s/%[2]s"}`, k.url, region)
	}
	internal := fmt.Sprintf(`{"id":"inside","interface":"internal","region":"south","region_id":"south","url":"%s/inside"}`, k.url)
	fmt.Fprintf(w, `{"token":{"expires_at":"2100-01-01T00:00:00Z","catalog":[{"id":"1","name":"neutron","type":"%s","endpoints":[%s,%s,%s]}]}}`,
		k.service, endpoint("south"), endpoint("north"), internal)
}

func TestConnectWithKeystone(t *testing.T) {
	tests := map[string]struct {
		set  func(*keystone)
		want string // the only request to a Neutron
	}{
		"OS_CLOUD": {func(k *keystone) { k.Setenv("OS_CLOUD", "test") }, "north networks token-1"},
		"OS_CLOUD and OS_AUTH_URL": {func(k *keystone) {
			k.setVariables()
			k.Setenv("OS_REGION_NAME", "")
			k.Setenv("OS_PASSWORD", "guess")
			k.Setenv("OS_CLOUD", "test")
		}, "north networks token-1"},
		"OS_AUTH_URL": {func(k *keystone) { k.setVariables() }, "south networks token-1"},
		"as OpenStack's dashboard writes an openrc file": {func(k *keystone) {
			k.setVariables()
			k.Setenv("OS_DOMAIN_NAME", "")
			k.Setenv("OS_USER_DOMAIN_NAME", "Default")
			k.Setenv("OS_PROJECT_DOMAIN_ID", "default")
		}, "south networks token-1"},
		"the internal interface": {func(k *keystone) { k.setVariables(); k.Setenv("OS_INTERFACE", "internal") }, "inside networks token-1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			k := newKeystone(t)
			test.set(k)
			cloud, err := neutron.Connect(t.Context())
			require.NoError(t, err)
			require.NoError(t, cloud.Check(t.Context()))
			require.Equal(t, []string{test.want}, k.requests)
			require.Positive(t, cloud.Client.HTTPClient.Timeout, "or it would wait forever for a response")

			for range 2 {
				k.tokens++ // as if the token had expired
				require.NoError(t, cloud.Check(t.Context()))
			}
		})
	}
}

func TestStopsConnectingToANeutronThatHangs(t *testing.T) {
	k := newKeystone(t)
	k.setVariables()
	k.hangs = make(chan struct{}, 10)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-k.hangs; cancel() }()
	_, err := neutron.Connect(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestDoesNotConnect(t *testing.T) {
	tests := map[string]struct {
		set  func(*keystone)
		want string // part of the error
	}{
		"nothing is set":                {func(*keystone) {}, "no cloud is configured"},
		"OS_CLOUD is not in the file":   {func(k *keystone) { k.Setenv("OS_CLOUD", "other") }, "read clouds.yaml for OS_CLOUD=other: "},
		"there is no file":              {func(k *keystone) { k.Setenv("OS_CLOUD", "test"); k.Setenv("OS_CLIENT_CONFIG_FILE", "/nowhere") }, "read clouds.yaml for OS_CLOUD=test: "},
		"a variable is missing":         {func(k *keystone) { k.setVariables(); k.Setenv("OS_PASSWORD", "") }, "read the OS_... variables: "},
		"no certificates in OS_CACERT":  {func(k *keystone) { k.setVariables(); k.Setenv("OS_CACERT", "/nowhere") }, "read the OS_... variables: "},
		"the password is wrong":         {func(k *keystone) { k.setVariables(); k.Setenv("OS_PASSWORD", "guess") }, "log in to "},
		"the cloud has no such project": {func(k *keystone) { k.setVariables(); k.Setenv("OS_PROJECT_NAME", "mall") }, "log in to "},
		"Keystone does not answer":      {func(k *keystone) { k.setVariables(); k.Setenv("OS_AUTH_URL", "http://127.0.0.1:1/v3") }, "log in to http://127.0.0.1:1/v3"},
		"there is no Neutron":           {func(k *keystone) { k.setVariables(); k.service = "compute" }, `find the service "network" in the cloud's catalog: `},
		"another region":                {func(k *keystone) { k.setVariables(); k.Setenv("OS_REGION_NAME", "west") }, `find the service "network" in the cloud's catalog: `},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			k := newKeystone(t)
			test.set(k)
			_, err := neutron.Connect(t.Context())
			require.ErrorContains(t, err, test.want)
			require.Empty(t, k.requests)
		})
	}
}

func TestWhichAddressesNeutronMayHave(t *testing.T) {
	for address, want := range map[string]string{
		"http://127.0.0.1:9696": "http://127.0.0.1:9696/", "https://neutron.example.com/": "https://neutron.example.com/", "http://[::1]/network": "http://[::1]/network/",
		"127.0.0.1:9696": "", "neutron.example.com": "", "http://": "", "ftp://neutron.example.com": "", "http://[::1": "",
	} {
		t.Run(address, func(t *testing.T) {
			t.Setenv("NEUTRON_URL", address)
			t.Setenv("NEUTRON_PROJECT", "mine")
			cloud, err := neutron.Connect(t.Context())
			if want == "" {
				require.ErrorContains(t, err, fmt.Sprintf("NEUTRON_URL is %q; it must be like http://127.0.0.1:9696", address))
				return
			}
			require.NoError(t, err)
			require.Equal(t, want, cloud.Client.Endpoint)
		})
	}
	t.Run("with a password", func(t *testing.T) {
		t.Setenv("NEUTRON_URL", "https://me:secret@neutron.example.com")
		t.Setenv("NEUTRON_PROJECT", "mine")
		_, err := neutron.Connect(t.Context())
		require.ErrorContains(t, err, "NEUTRON_URL has a user name or a password")
		require.NotContains(t, err.Error(), "secret")
	})
	t.Run("without a project", func(t *testing.T) {
		t.Setenv("NEUTRON_URL", "http://127.0.0.1:9696")
		t.Setenv("NEUTRON_PROJECT", "")
		_, err := neutron.Connect(t.Context())
		require.ErrorContains(t, err, "NEUTRON_PROJECT is not")
	})
}
