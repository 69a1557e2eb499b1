package neutron

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"k8s.io/klog/v2"
)

// configure returns what gophercloud needs to log in. It logs what the user should know.
func configure(logger klog.Logger) (gophercloud.AuthOptions, gophercloud.EndpointOpts, *tls.Config, error) {
	s, source, ignored, err := configured()
	if err == nil {
		var more []string
		more, err = s.resolve()
		ignored = append(ignored, more...)
	}
	if err != nil {
		return gophercloud.AuthOptions{}, gophercloud.EndpointOpts{}, nil, fmt.Errorf("%s%w", source, err)
	}
	auth, endpoint, certificates, err := s.parse()
	if err != nil {
		return auth, endpoint, nil, fmt.Errorf("%s%w", source, err)
	}
	if len(ignored) > 0 {
		logger.Info("Some settings of the cloud have no effect here", "settings", ignored)
	}
	if setting := s.insecure(); setting != "" {
		logger.Error(nil, "The cloud's certificates are not verified: whoever is between the controller and the cloud can read the password and change everything. Set OS_CACERT instead", "setting", setting)
	}
	if s.values["auth_type"] == "token" {
		logger.Error(nil, "A token cannot be renewed: the controller stops working when it expires. Use an application credential instead", "setting", s.name("token"))
	}
	return auth, endpoint, certificates, nil
}

// configured returns the settings that the environment names, what to say before an error about them, and the names of
// variables that have no effect.
func configured() (s settings, source string, ignored []string, err error) {
	variables := environment()
	switch cloud := os.Getenv("OS_CLOUD"); {
	case cloud != "":
		s, err = fromFile(cloud, variables.values["region_name"])
		if err == nil {
			ignored = s.override(variables)
		}
		return s, "read clouds.yaml for OS_CLOUD=" + cloud + ": ", ignored, err
	case variables.values["auth_url"] != "":
		return variables, "read the OS_... variables: ", nil, nil
	}
	return s, "", nil, errors.New("no cloud is configured; set OS_CLOUD, or OS_AUTH_URL and the other OS_ variables, or NEUTRON_URL and NEUTRON_PROJECT for a Neutron without Keystone")
}

// settings describe a cloud and an account. They have the keys of an entry in clouds.yaml, those under "auth" included. An OS_
// variable is the key in capital letters. The page has a table of what becomes of each.
type settings struct {
	values map[string]string // none is empty
	names  map[string]string // what the user calls a key, if not by its own name: OS_INSECURE
}

// name returns what the user calls a key.
func (s settings) name(key string) string {
	if name := s.names[key]; name != "" {
		return name
	}
	return key
}

// aliases are other names of keys. The key counts if there are both.
var aliases = map[string]string{
	"tenant_name": "project_name", "tenant_id": "project_id", "user_name": "username", "userid": "user_id",
	"auth_token": "token", "auth_plugin": "auth_type", "endpoint_type": "interface",
}

// used are the keys that have an effect.
var used = []string{
	"auth_type", "auth_url", "username", "user_id", "password", "user_domain_name", "user_domain_id",
	"token", "application_credential_id", "application_credential_name", "application_credential_secret",
	"project_name", "project_id", "project_domain_name", "project_domain_id", "domain_name", "domain_id", "default_domain_name", "default_domain_id", "trust_id",
	"region_name", "interface", "cacert", "cert", "key", "insecure", "verify", "identity_api_version", "network_api_version",
}

// unused are the keys that have an effect in OpenStack's own client, and that the controller can do without.
var unused = []string{
	"api_timeout", "network_api_timeout", "connect_retries", "network_connect_retries", "status_code_retries", "network_status_code_retries",
	"force_ipv4", "prefer_ipv6", "rate_limit", "concurrency",
}

// unsupported are the keys that have an effect in OpenStack's own client, and what to do instead.
var unsupported = map[string]string{
	"passcode":                  "a passcode can be used once, and the controller logs in again and again; use an application credential",
	"system_scope":              "a network belongs to a project; name one with project_name",
	"endpoint_override":         "the address of Neutron is taken from the cloud's catalog",
	"network_endpoint_override": "the address of Neutron is taken from the cloud's catalog",
	"network_endpoint":          "the address of Neutron is taken from the cloud's catalog",
	"network_interface":         "use interface",
	"network_endpoint_type":     "use interface",
	"network_region_name":       "use region_name",
	"network_service_type":      "the service in the catalog has the type \"network\"",
	"network_service_name":      "the service in the catalog is found by its type, \"network\"",
	"service_type":              "the service in the catalog has the type \"network\"",
	"service_name":              "the service in the catalog is found by its type, \"network\"",
}

// allowed are the values of keys that do not have just any.
var allowed = map[string][]string{
	"insecure":             {"true", "false"},
	"verify":               {"true", "false"},
	"interface":            {"public", "internal", "admin", "publicURL", "internalURL", "adminURL"},
	"identity_api_version": {"3", "v3", "3.0"},
	"network_api_version":  {"2", "v2", "2.0"},
	"auth_type":            {"password", "v3password", "token", "v3token", "v3applicationcredential"},
}

// resolve replaces aliases, and refuses what would have no effect although the user expects one. It returns the names of the
// settings that have none, in order. In a file, they are all keys that are not used.
func (s settings) resolve() (ignored []string, err error) {
	for alias, key := range aliases {
		if value := s.values[alias]; value != "" {
			if s.values[key] == "" {
				s.values[key], s.names[key] = value, s.name(alias)
			}
			delete(s.values, alias)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		switch remedy, isUnsupported := unsupported[key]; {
		case isUnsupported:
			return nil, fmt.Errorf("%s is not supported: %s", s.name(key), remedy)
		case !slices.Contains(used, key):
			ignored = append(ignored, s.name(key))
		}
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	s.spreadDomains()
	s.preferIDs()
	return ignored, s.chooseCredentials()
}

// check refuses values that are not allowed. Capital letters do not matter: Python writes True.
func (s settings) check() error {
	for _, key := range slices.Sorted(maps.Keys(allowed)) {
		isAllowed := func(value string) bool { return strings.EqualFold(value, s.values[key]) }
		if value := s.values[key]; value != "" && !slices.ContainsFunc(allowed[key], isAllowed) {
			return fmt.Errorf("%s is %q; it must be one of: %s", s.name(key), value, strings.Join(allowed[key], ", "))
		}
	}
	return nil
}

// spreadDomains makes the general domains those of the user and of the project, where they have none of their own.
func (s settings) spreadDomains() {
	for _, of := range []string{"user_domain", "project_domain"} {
		for _, general := range []string{"domain", "default_domain"} {
			if s.values[of+"_id"] != "" || s.values[of+"_name"] != "" {
				continue
			}
			for _, suffix := range []string{"_id", "_name"} {
				if value := s.values[general+suffix]; value != "" {
					s.values[of+suffix] = value
				}
			}
		}
	}
}

// preferIDs removes the names of what has an ID, too. Files from OpenStack's dashboard have both.
func (s settings) preferIDs() {
	for _, of := range []string{"user_domain", "project_domain", "project"} {
		if s.values[of+"_id"] != "" {
			delete(s.values, of+"_name")
		}
	}
	if s.values["user_id"] != "" {
		delete(s.values, "username")
		delete(s.values, "user_domain_id")
		delete(s.values, "user_domain_name")
	}
}

// credentials are the keys that belong to each way to log in.
var credentials = map[string][]string{
	"password":                {"username", "user_id", "user_domain_id", "user_domain_name", "password"},
	"v3applicationcredential": {"username", "user_id", "user_domain_id", "user_domain_name", "application_credential_id", "application_credential_name", "application_credential_secret"},
	"token":                   {"token"},
}

// chooseCredentials sets auth_type to a key of credentials, and removes what belongs to the others.
func (s settings) chooseCredentials() error {
	kind := strings.TrimPrefix(s.values["auth_type"], "v3")
	switch {
	case kind == "applicationcredential":
		kind = "v3" + kind
	case kind != "":
	case s.values["password"] != "":
		kind = "password"
	case s.values["token"] != "":
		kind = "token"
	case s.values["application_credential_id"] != "" || s.values["application_credential_name"] != "":
		kind = "v3applicationcredential"
	default:
		kind = "password"
	}
	for _, keys := range credentials {
		for _, key := range keys {
			if !slices.Contains(credentials[kind], key) {
				delete(s.values, key)
			}
		}
	}
	s.values["auth_type"] = kind
	hasProject := s.values["project_id"] != "" || s.values["project_name"] != "" || s.values["trust_id"] != ""
	if isOfDomain := s.values["domain_id"] != "" || s.values["domain_name"] != ""; isOfDomain && !hasProject && kind != "v3applicationcredential" {
		return errors.New("no project is named, and a network belongs to one; set project_name")
	}
	return nil
}

// insecure returns the name of the setting by which certificates are not to be verified, or "".
func (s settings) insecure() string {
	switch {
	case strings.EqualFold(s.values["insecure"], "true"):
		return s.name("insecure")
	case strings.EqualFold(s.values["verify"], "false"):
		return s.name("verify")
	}
	return ""
}

// parse returns what gophercloud makes of the settings.
func (s settings) parse() (auth gophercloud.AuthOptions, endpoint gophercloud.EndpointOpts, certificates *tls.Config, err error) {
	const name = "cloud"
	get := func(key string) string { return s.values[key] }
	cloud := clouds.Cloud{
		RegionName: get("region_name"), Interface: get("interface"), Verify: new(s.insecure() == ""),
		CACertFile: get("cacert"), ClientCertFile: get("cert"), ClientKeyFile: get("key"),
		AuthInfo: &clouds.AuthInfo{
			AuthURL: get("auth_url"), Token: get("token"), Username: get("username"), UserID: get("user_id"), Password: get("password"),
			UserDomainName: get("user_domain_name"), UserDomainID: get("user_domain_id"),
			ProjectName: get("project_name"), ProjectID: get("project_id"), TrustID: get("trust_id"),
			ProjectDomainName: get("project_domain_name"), ProjectDomainID: get("project_domain_id"),
			ApplicationCredentialID: get("application_credential_id"), ApplicationCredentialName: get("application_credential_name"),
			ApplicationCredentialSecret: get("application_credential_secret"),
		},
	}
	if get("auth_url") == "" {
		return auth, endpoint, nil, errors.New("auth_url is missing; set it to the address of Keystone, such as https://keystone.example.com/v3")
	}
	if cloud.ClientKeyFile == "" {
		cloud.ClientKeyFile = cloud.ClientCertFile // one file can have both
	}
	text, err := json.Marshal(clouds.Clouds{Clouds: map[string]clouds.Cloud{name: cloud}}) // JSON is YAML, too
	if err == nil {
		auth, endpoint, certificates, err = clouds.Parse(clouds.WithCloudName(name), clouds.WithCloudsYAML(bytes.NewReader(text)))
	}
	if err == nil {
		_, err = auth.ToTokenV3CreateMap(nil) // finds what is missing
	}
	auth.AllowReauth = get("auth_type") != "token" // tokens expire, and are no use for getting another
	return auth, endpoint, certificates, err
}

// environment returns what the OS_ variables say. Those of other services are not among them.
func environment() settings {
	s := settings{map[string]string{}, map[string]string{}}
	for _, key := range slices.Concat(used, unused, slices.Collect(maps.Keys(aliases)), slices.Collect(maps.Keys(unsupported))) {
		name := "OS_" + strings.ToUpper(key)
		if value := os.Getenv(name); value != "" {
			s.values[key], s.names[key] = value, name
		}
	}
	return s
}

// overrides are the keys whose variables count more than the file.
var overrides = []string{"region_name", "interface", "endpoint_type", "cacert", "cert", "key", "insecure"}

// override returns the settings of a file with those of the variables that count more. ignored are the others.
func (s settings) override(variables settings) (ignored []string) {
	for key, value := range variables.values {
		if !slices.Contains(overrides, key) {
			ignored = append(ignored, variables.name(key))
			continue
		}
		if alias := aliases[key]; alias != "" {
			key = alias
		}
		s.values[key], s.names[key] = value, variables.name(key)
	}
	slices.Sort(ignored)
	return ignored
}
