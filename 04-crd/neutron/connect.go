package neutron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
)

// timeout is how long one call may take. Whether what it asked for was done then, we have to find out.
const timeout = 30 * time.Second

// Connect finds the Neutron that the environment names, as OpenStack's own client does: OS_CLOUD is the name of a
// cloud in clouds.yaml, and OS_AUTH_URL and its like say it without a file. NEUTRON_URL is the address of one
// without Keystone; then NEUTRON_PROJECT is the project, and who we are is said in headers. NEUTRON_ROLES is what to be
// there, if not a usual user: "admin".
func Connect(ctx context.Context) (*Cloud, error) {
	web := http.Client{Timeout: timeout}
	if address := os.Getenv("NEUTRON_URL"); address != "" {
		return withoutKeystone(address, os.Getenv("NEUTRON_PROJECT"), web)
	}
	var where gophercloud.EndpointOpts
	var provider *gophercloud.ProviderClient
	switch {
	case os.Getenv("OS_CLOUD") != "":
		who, endpoint, tls, err := clouds.Parse()
		if err != nil {
			return nil, fmt.Errorf("read clouds.yaml for OS_CLOUD=%s: %w", os.Getenv("OS_CLOUD"), err)
		}
		who.AllowReauth = true // tokens end
		if provider, err = config.NewProviderClient(ctx, who, config.WithHTTPClient(web), config.WithTLSConfig(tls)); err != nil {
			return nil, fmt.Errorf("log in to %s: %w", who.IdentityEndpoint, err)
		}
		where = endpoint
	case os.Getenv("OS_AUTH_URL") != "":
		who, err := openstack.AuthOptionsFromEnv()
		if err != nil {
			return nil, fmt.Errorf("read the OS_... variables: %w", err)
		}
		who.AllowReauth = true
		if provider, err = config.NewProviderClient(ctx, who, config.WithHTTPClient(web)); err != nil {
			return nil, fmt.Errorf("log in to %s: %w", who.IdentityEndpoint, err)
		}
		where.Region = os.Getenv("OS_REGION_NAME")
	default:
		return nil, errors.New("no cloud is named; set OS_CLOUD, or OS_AUTH_URL and its like, or NEUTRON_URL and NEUTRON_PROJECT for a Neutron without Keystone")
	}
	client, err := openstack.NewNetworkV2(provider, where)
	if err != nil {
		return nil, fmt.Errorf("find the service \"network\" in the cloud's catalog: %w", err)
	}
	return &Cloud{Client: client}, nil
}

func withoutKeystone(address, project string, web http.Client) (*Cloud, error) {
	at, err := url.Parse(address)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return nil, fmt.Errorf("NEUTRON_URL is %q; it must be like http://127.0.0.1:9696", address)
	}
	if project == "" {
		return nil, errors.New("NEUTRON_URL is set, and NEUTRON_PROJECT is not; name the project that the networks are to be in")
	}
	base := strings.TrimSuffix(address, "/") + "/"
	return &Cloud{Client: &gophercloud.ServiceClient{
		ProviderClient: &gophercloud.ProviderClient{HTTPClient: web},
		Type:           "network", Endpoint: base, ResourceBase: base + "v2.0/",
		MoreHeaders: map[string]string{"X-User-Id": "network-controller", "X-Project-Id": project,
			"X-Roles": cmp.Or(os.Getenv("NEUTRON_ROLES"), "member,reader")}, // as Keystone says it of a usual user
	}}, nil
}

// IsTemporary says whether an error of [Cloud.Look] may be gone soon: the cloud is down or busy, and has not refused
// what it was asked.
func IsTemporary(err error) bool {
	var unexpected gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &unexpected) {
		return unexpected.Actual >= http.StatusInternalServerError || unexpected.Actual == http.StatusTooManyRequests
	}
	return err != nil
}

// Look asks once whether it answers.
func (c *Cloud) Look(ctx context.Context) error {
	response, err := c.Client.Get(ctx, c.Client.ServiceURL("networks")+"?fields=id&id=none", nil, nil)
	if err != nil {
		return fmt.Errorf("the Neutron at %s does not answer as it should; is it the right one, and is it up? %w", c.Client.Endpoint, err)
	}
	return response.Body.Close()
}
