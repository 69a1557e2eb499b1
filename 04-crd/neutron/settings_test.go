package neutron_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/controllers/crd/neutron"
)

// setenv makes these the only variables that Connect reads, in a directory and a home of their own. {dir} is the directory.
func setenv(t *testing.T, variables ...string) {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OS_") || strings.HasPrefix(name, "NEUTRON_") {
			t.Setenv(name, "")
		}
	}
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, strings.ReplaceAll(value, "{dir}", dir))
	}
}

// write writes files below the directory of setenv.
func write(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
}

// connect calls Connect, and returns what it has logged, too.
func connect(t *testing.T) (*neutron.Cloud, string, error) {
	t.Helper()
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	cloud, err := neutron.Connect(klog.NewContext(t.Context(), logger))
	return cloud, logger.GetSink().(ktesting.Underlier).GetBuffer().String(), err
}

const (
	identity = `"identity":{"methods":["password"],"password":{"user":{"name":"me","password":"secret","domain":{"name":"Users"}}}}`
	scope    = `"scope":{"project":{"name":"shop","domain":{"name":"Projects"}}}`
)

// Each setting has its effect on how Connect logs in.
func TestLogin(t *testing.T) {
	account := []string{"OS_USERNAME=me", "OS_PASSWORD=secret", "OS_USER_DOMAIN_NAME=Users"}
	project := []string{"OS_PROJECT_NAME=shop", "OS_PROJECT_DOMAIN_NAME=Projects"}
	both := append(append([]string{}, account...), project...)
	with := func(base []string, more ...string) []string { return append(append([]string{}, base...), more...) }
	token := `"identity":{"methods":["token"],"token":{"id":"t0ken"}}`
	credential := `"identity":{"methods":["application_credential"],"application_credential":{"id":"c","secret":"s"}}`
	file := `{auth: {username: me, password: secret, user_domain_name: Users, project_name: shop, project_domain_name: Projects, auth_url: "{url}"}}`
	for name, c := range map[string]struct {
		variables []string
		files     map[string]string // of whose clouds.yaml the cloud "test" is used
		want      string            // the login
	}{
		"names":             {both, nil, identity + "," + scope},
		"v3password":        {with(both, "OS_AUTH_TYPE=v3password"), nil, identity + "," + scope},
		"tenant":            {with(account, "OS_TENANT_NAME=shop", "OS_PROJECT_DOMAIN_NAME=Projects"), nil, identity + "," + scope},
		"IDs":               {with(both, "OS_USER_ID=u", "OS_PROJECT_ID=p"), nil, `"identity":{"methods":["password"],"password":{"user":{"id":"u","password":"secret"}}},"scope":{"project":{"id":"p"}}`},
		"IDs of domains":    {with(both, "OS_USER_DOMAIN_ID=1", "OS_PROJECT_DOMAIN_ID=2"), nil, `"identity":{"methods":["password"],"password":{"user":{"name":"me","password":"secret","domain":{"id":"1"}}}},"scope":{"project":{"name":"shop","domain":{"id":"2"}}}`},
		"one domain":        {[]string{"OS_USERNAME=me", "OS_PASSWORD=secret", "OS_PROJECT_NAME=shop", "OS_DOMAIN_ID=d"}, nil, `"identity":{"methods":["password"],"password":{"user":{"name":"me","password":"secret","domain":{"id":"d"}}}},"scope":{"project":{"name":"shop","domain":{"id":"d"}}}`},
		"a default domain":  {with(account, "OS_PROJECT_NAME=shop", "OS_DEFAULT_DOMAIN_ID=d"), nil, identity + `,"scope":{"project":{"name":"shop","domain":{"id":"d"}}}`},
		"no project":        {account, nil, identity}, // Keystone knows the user's default project
		"a trust":           {with(account, "OS_TRUST_ID=t"), nil, identity + `,"scope":{"OS-TRUST:trust":{"id":"t"}}`},
		"a token":           {with(project, "OS_TOKEN=t0ken"), nil, token + "," + scope},
		"only a token":      {with(both, "OS_TOKEN=t0ken", "OS_AUTH_TYPE=token"), nil, token + "," + scope},
		"a token of a user": {[]string{"OS_TOKEN=t0ken", "OS_USERNAME=me", "OS_USER_DOMAIN_NAME=Users", "OS_PROJECT_ID=p"}, nil, token + `,"scope":{"project":{"id":"p"}}`},
		"a credential":      {[]string{"OS_APPLICATION_CREDENTIAL_ID=c", "OS_APPLICATION_CREDENTIAL_SECRET=s"}, nil, credential},
		"only a credential": {with(both, "OS_AUTH_TYPE=v3applicationcredential", "OS_APPLICATION_CREDENTIAL_ID=c", "OS_APPLICATION_CREDENTIAL_SECRET=s"), nil, credential},
		"a named credential": {[]string{"OS_APPLICATION_CREDENTIAL_NAME=c", "OS_APPLICATION_CREDENTIAL_SECRET=s", "OS_USERNAME=me", "OS_USER_DOMAIN_ID=d"}, nil,
			`"identity":{"methods":["application_credential"],"application_credential":{"name":"c","secret":"s","user":{"name":"me","domain":{"id":"d"}}}}`},

		"clouds.yaml":           {nil, map[string]string{"clouds.yaml": `{clouds: {test: ` + file + `}}`}, identity + "," + scope},
		"clouds.yml of a user":  {nil, map[string]string{"config/openstack/clouds.yml": `{clouds: {test: ` + file + `}}`}, identity + "," + scope},
		"clouds.json elsewhere": {[]string{"OS_CLIENT_CONFIG_FILE={dir}/else/c.json"}, map[string]string{"else/c.json": `{"clouds": {"test": ` + file + `}}`}, identity + "," + scope},
		"variables of another account": {with(account, "OS_PASSWORD=guess", "OS_USERNAME=you", "OS_PROJECT_ID=p"), map[string]string{"clouds.yaml": `{clouds: {test: ` + file + `}}`},
			identity + "," + scope},
		"secure.yaml": {nil, map[string]string{"clouds.yaml": `{clouds: {test: ` + strings.Replace(file, "password: secret", "password: none", 1) + `}}`,
			"secure.yaml": `{clouds: {test: {auth: {password: secret}}}}`}, identity + "," + scope},
		"secure.yaml elsewhere": {[]string{"OS_CLIENT_SECURE_FILE={dir}/secret"}, map[string]string{"clouds.yaml": `{clouds: {test: ` + file + `}}`,
			"secure.yaml": `{}`, "secret": `{clouds: {test: {auth: {user_domain_name: Users}}}}`}, identity + "," + scope},
		"a profile": {nil, map[string]string{"clouds.yaml": `{clouds: {test: {profile: public, auth: {username: me, password: secret}}}}`,
			"clouds-public.yaml": `{public-clouds: {public: ` + strings.Replace(file, "password: secret", "password: none", 1) + `}}`}, identity + "," + scope},
		"old names of keys": {nil, map[string]string{"clouds.yaml": `{clouds: {test: {auth-type: password, project-domain-name: Projects,
			auth: {user_name: me, password: secret, user-domain-name: Users, tenant_name: shop, auth_url: "{url}"}}}}`}, identity + "," + scope},
		"an ID of digits": {nil, map[string]string{"clouds.yaml": `{clouds: {test: {auth: {user_id: 12345678901, password: secret, project_id: 1234567890123456789, auth_url: "{url}"}}}}`},
			`"identity":{"methods":["password"],"password":{"user":{"id":"12345678901","password":"secret"}}},"scope":{"project":{"id":"1234567890123456789"}}`},
		"the first region": {nil, map[string]string{"clouds.yaml": `{clouds: {test: {regions: [{name: north, values: {auth: {project_name: shop}}}, south],
			auth: {username: me, password: secret, user_domain_name: Users, project_domain_name: Projects, auth_url: "{url}"}}}}`}, identity + "," + scope},
		"another region": {[]string{"OS_REGION_NAME=south"}, map[string]string{"clouds.yaml": `{clouds: {test: {regions: [north, {name: south, values: {auth: {project_name: shop}}}],
			auth: {username: me, password: secret, user_domain_name: Users, project_domain_name: Projects, auth_url: "{url}"}}}}`}, identity + "," + scope},
	} {
		t.Run(name, func(t *testing.T) {
			var login string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				login = string(body)
				w.WriteHeader(http.StatusUnauthorized)
			}))
			defer server.Close()
			setenv(t, c.variables...)
			url := server.URL + "/v3"
			if c.files == nil {
				t.Setenv("OS_AUTH_URL", url)
			} else {
				t.Setenv("OS_CLOUD", "test")
			}
			files := map[string]string{}
			for name, text := range c.files {
				files[name] = strings.ReplaceAll(text, "{url}", url)
			}
			write(t, files)
			_, log, err := connect(t)
			require.ErrorContains(t, err, "log in to "+url)
			require.JSONEq(t, `{"auth":{`+c.want+`}}`, login)
			require.NotContains(t, log, "secret")
		})
	}
}

// What would have an effect with OpenStack's own client, and has none here, is an error that says what to do.
func TestUnsupportedSettings(t *testing.T) {
	for variable, want := range map[string]string{
		"OS_AUTH_TYPE=v3totp":                  `OS_AUTH_TYPE is "v3totp"; it must be one of: password, v3password, token, v3token, v3applicationcredential`,
		"OS_AUTH_TYPE=v2password":              `OS_AUTH_TYPE is "v2password"; it must be one of: `,
		"OS_AUTH_PLUGIN=v3oidcpassword":        `OS_AUTH_PLUGIN is "v3oidcpassword"; it must be one of: `,
		"OS_PASSCODE=123456":                   "OS_PASSCODE is not supported: a passcode can be used once",
		"OS_SYSTEM_SCOPE=all":                  "OS_SYSTEM_SCOPE is not supported: a network belongs to a project; name one with project_name",
		"OS_INSECURE=1":                        `OS_INSECURE is "1"; it must be one of: true, false`,
		"OS_VERIFY=/etc/ca.pem":                `OS_VERIFY is "/etc/ca.pem"; it must be one of: true, false`,
		"OS_INTERFACE=private":                 `OS_INTERFACE is "private"; it must be one of: public, internal, admin, `,
		"OS_ENDPOINT_TYPE=private":             `OS_ENDPOINT_TYPE is "private"; it must be one of: `,
		"OS_IDENTITY_API_VERSION=2.0":          `OS_IDENTITY_API_VERSION is "2.0"; it must be one of: 3, `,
		"OS_NETWORK_API_VERSION=1":             `OS_NETWORK_API_VERSION is "1"; it must be one of: 2, `,
		"OS_NETWORK_ENDPOINT_OVERRIDE=http://": "OS_NETWORK_ENDPOINT_OVERRIDE is not supported: the address of Neutron is taken from the cloud's catalog",
		"OS_ENDPOINT_OVERRIDE=http://":         "OS_ENDPOINT_OVERRIDE is not supported: ",
		"OS_NETWORK_ENDPOINT=http://":          "OS_NETWORK_ENDPOINT is not supported: ",
		"OS_NETWORK_INTERFACE=internal":        "OS_NETWORK_INTERFACE is not supported: use interface",
		"OS_NETWORK_ENDPOINT_TYPE=internal":    "OS_NETWORK_ENDPOINT_TYPE is not supported: use interface",
		"OS_NETWORK_REGION_NAME=north":         "OS_NETWORK_REGION_NAME is not supported: use region_name",
		"OS_NETWORK_SERVICE_TYPE=net":          "OS_NETWORK_SERVICE_TYPE is not supported: ",
		"OS_NETWORK_SERVICE_NAME=net":          "OS_NETWORK_SERVICE_NAME is not supported: ",
		"OS_SERVICE_TYPE=net":                  "OS_SERVICE_TYPE is not supported: ",
		"OS_SERVICE_NAME=net":                  "OS_SERVICE_NAME is not supported: ",
		"OS_PROJECT_NAME=":                     "no project is named, and a network belongs to one; set project_name",
		"OS_CERT=/nowhere":                     "/nowhere",
		"OS_KEY=/nowhere":                      "client cert key is set, but client cert is missing",
		"OS_CACERT=/nowhere":                   "/nowhere",
		"OS_PASSWORD=":                         "read the OS_... variables: ",
	} {
		t.Run(variable, func(t *testing.T) {
			setenv(t, "OS_AUTH_URL=http://127.0.0.1:1", "OS_USERNAME=me", "OS_PASSWORD=secret", "OS_PROJECT_NAME=shop", "OS_DOMAIN_NAME=Default", variable)
			_, _, err := connect(t)
			require.ErrorContains(t, err, "read the OS_... variables: ")
			require.ErrorContains(t, err, want)
		})
	}
	for name, c := range map[string]struct{ cloud, want string }{
		"auth_type":       {`{auth_type: v3kerberos}`, `auth_type is "v3kerberos"; it must be one of: `},
		"insecure":        {`{insecure: "yes"}`, `insecure is "yes"; it must be one of: true, false`},
		"verify":          {`{verify: /etc/ca.pem}`, `verify is "/etc/ca.pem"; it must be one of: true, false`},
		"interfaces":      {`{interface: [internal, public]}`, `interface is "[internal public]"; it must be one of: public, `},
		"system scope":    {`{auth: {system_scope: all}}`, "system_scope is not supported: "},
		"its endpoint":    {`{network_endpoint_override: "http://127.0.0.1"}`, "network_endpoint_override is not supported: "},
		"unknown profile": {`{profile: vexxhost}`, `profile "vexxhost": there is no clouds-public.yaml in `},
		"unknown region":  {`{region_name: east, regions: [north, {name: south}]}`, `region_name is "east"; the regions of this cloud are: north, south`},
		"nothing of use":  {`{region_name: north}`, "auth_url is missing; set it to the address of Keystone"},
		"no cloud":        {`null`, `there is no cloud "test" in `},
		"not a map":       {`[1]`, "clouds: "},
		"not YAML":        {`{`, "clouds.yaml: "},
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, "OS_CLOUD=test")
			write(t, map[string]string{"clouds.yaml": "{clouds: {test: " + c.cloud + "}}"})
			_, _, err := connect(t)
			require.ErrorContains(t, err, "read clouds.yaml for OS_CLOUD=test: ")
			require.ErrorContains(t, err, c.want)
		})
	}
	t.Run("unknown profile in a file", func(t *testing.T) {
		setenv(t, "OS_CLOUD=test")
		write(t, map[string]string{"clouds.yaml": "{clouds: {test: {cloud: other}}}", "clouds-public.yaml": "{public-clouds: {public: {}}}"})
		_, _, err := connect(t)
		require.ErrorContains(t, err, `there is no profile "other" in clouds-public.yaml`)
	})
}

// certify writes the certificate of a server to the file ca.pem, and with its key to both.pem and key.pem.
func certify(t *testing.T, server *httptest.Server) {
	t.Helper()
	certificate := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	require.NoError(t, err)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}))
	private := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	write(t, map[string]string{"ca.pem": ca, "key.pem": private, "both.pem": ca + private})
}

func TestCertificates(t *testing.T) {
	const rejected = "certificate signed by unknown authority"
	own := []string{"OS_CACERT={dir}/ca.pem"}
	for name, c := range map[string]struct {
		cloud     string   // more keys of the cloud in clouds.yaml; "": the variables say all
		variables []string // more variables
		client    bool     // whether the cloud asks for the client's certificate
		want      string   // part of the error; "": it connects
		insecure  string   // the name of the setting in the warning; "": there is none
	}{
		"unknown":                     {want: rejected},
		"OS_INSECURE=true":            {variables: []string{"OS_INSECURE=true"}, insecure: "OS_INSECURE"},
		"OS_INSECURE=True":            {variables: []string{"OS_INSECURE=True"}, insecure: "OS_INSECURE"},
		"OS_INSECURE=false":           {variables: []string{"OS_INSECURE=false"}, want: rejected},
		"OS_VERIFY=false":             {variables: []string{"OS_VERIFY=false"}, insecure: "OS_VERIFY"},
		"OS_VERIFY=true":              {variables: []string{"OS_VERIFY=true"}, want: rejected},
		"OS_CACERT":                   {variables: own},
		"OS_CACERT in home":           {variables: []string{"OS_CACERT=~/ca.pem"}},
		"OS_CACERT and OS_INSECURE":   {variables: append([]string{"OS_INSECURE=true"}, own...), insecure: "OS_INSECURE"},
		"no client certificate":       {variables: own, client: true, want: "certificate required"},
		"OS_CERT and OS_KEY":          {variables: append([]string{"OS_CERT={dir}/ca.pem", "OS_KEY={dir}/key.pem"}, own...), client: true},
		"OS_CERT with its key":        {variables: append([]string{"OS_CERT={dir}/both.pem"}, own...), client: true},
		"in a file: unknown":          {cloud: "x: y", want: rejected},
		"in a file: insecure":         {cloud: "insecure: true", insecure: "insecure"},
		"in a file: insecure, quoted": {cloud: `insecure: "True"`, insecure: "insecure"},
		"in a file: not verify":       {cloud: "verify: false", insecure: "verify"},
		"in a file: verify, insecure": {cloud: "verify: true, insecure: true", insecure: "insecure"},
		"in a file: cacert":           {cloud: "cacert: ca.pem"},
		"in a file: cert":             {cloud: "cacert: ca.pem, cert: ca.pem, key: key.pem", client: true},
		"a file and OS_INSECURE":      {cloud: "x: y", variables: []string{"OS_INSECURE=true"}, insecure: "OS_INSECURE"},
		"a file and OS_INSECURE=no":   {cloud: "insecure: true", variables: []string{"OS_INSECURE=false"}, want: rejected},
		"a file and OS_CACERT":        {cloud: "cacert: nowhere", variables: own},
	} {
		t.Run(name, func(t *testing.T) {
			k := &keystone{T: t, service: "network"}
			server := httptest.NewUnstartedServer(k)
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that fail
			if c.client {
				server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
			}
			server.StartTLS()
			defer server.Close()
			k.url = server.URL
			variables := []string{"OS_AUTH_URL=" + k.url + "/v3", "OS_USERNAME=me", "OS_PASSWORD=secret", "OS_PROJECT_NAME=shop", "OS_DOMAIN_NAME=Default", "OS_REGION_NAME=south"}
			if c.cloud != "" {
				variables = []string{"OS_CLOUD=test"}
			}
			setenv(t, append(variables, c.variables...)...)
			certify(t, server)
			write(t, map[string]string{"clouds.yaml": fmt.Sprintf(`{clouds: {test: {%s, region_name: south,
				auth: {auth_url: "%s/v3", username: me, password: secret, project_name: shop, domain_name: Default}}}}`, c.cloud, k.url)})
			cloud, logged, err := connect(t)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				require.Empty(t, k.requests)
				return
			}
			require.NoError(t, err)
			require.NoError(t, cloud.Check(t.Context()))
			require.Len(t, k.requests, 1)
			require.Equal(t, c.insecure != "", strings.Contains(logged, "The cloud's certificates are not verified"), logged)
			require.Contains(t, logged, c.insecure)
		})
	}
}

// Of the variables beside a file, these count more than what the file says, under either of their names.
func TestVariablesThatCountMoreThanTheFile(t *testing.T) {
	for _, variable := range []string{"OS_INTERFACE", "OS_ENDPOINT_TYPE"} {
		for _, key := range []string{"interface", "endpoint_type"} {
			t.Run(variable+" and "+key, func(t *testing.T) {
				k := newKeystone(t)
				setenv(t, "OS_CLOUD=test", variable+"=internal")
				write(t, map[string]string{"clouds.yaml": fmt.Sprintf(`{clouds: {test: {region_name: south, %s: public,
					auth: {auth_url: "%s/v3", username: me, password: secret, project_name: shop, domain_name: Default}}}}`, key, k.url)})
				cloud, _, err := connect(t)
				require.NoError(t, err)
				require.NoError(t, cloud.Check(t.Context()))
				require.Equal(t, []string{"inside networks token-1"}, k.requests)
			})
		}
	}
}

// A setting that is of no use here is logged, without its value.
func TestIgnoredSettings(t *testing.T) {
	k := newKeystone(t)
	setenv(t, "OS_AUTH_URL="+k.url+"/v3", "OS_USERNAME=me", "OS_PASSWORD=secret", "OS_PROJECT_NAME=shop", "OS_DOMAIN_NAME=Default", "OS_REGION_NAME=south",
		"OS_FORCE_IPV4=true", "OS_API_TIMEOUT=5")
	_, log, err := connect(t)
	require.NoError(t, err)
	require.Contains(t, log, `Some settings of the cloud have no effect here settings=["OS_API_TIMEOUT","OS_FORCE_IPV4"]`)

	setenv(t, "OS_CLOUD=test", "OS_PASSWORD=guess", "OS_INTERFACE=public")
	write(t, map[string]string{"clouds.yaml": fmt.Sprintf(`{clouds: {test: {region_name: south, image_format: raw, networks: [{name: x}], metrics: {a: b},
		auth: {auth_url: "%s/v3", username: me, password: secret, project_name: shop, domain_name: Default}}}}`, k.url)})
	_, log, err = connect(t)
	require.NoError(t, err)
	require.Contains(t, log, `settings=["OS_PASSWORD","image_format","metrics","networks"]`)
	require.NotContains(t, log, "guess")
}

// A token cannot be renewed, which somebody should know before it expires.
func TestTokenIsAnnounced(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer server.Close()
	setenv(t, "OS_AUTH_URL="+server.URL+"/v3", "OS_TOKEN=t0ken", "OS_PROJECT_ID=p")
	_, log, err := connect(t)
	require.ErrorContains(t, err, "log in to ")
	require.Contains(t, log, "A token cannot be renewed")
	require.NotContains(t, log, "t0ken")
	require.NotErrorIs(t, err, context.Canceled)
}
