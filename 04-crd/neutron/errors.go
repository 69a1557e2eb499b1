package neutron

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
)

// explain adds to an error what was being done. If retrying will not help until somebody changes something, it returns a
// RefusedError.
func explain(action string, n *samplecrdv1.Network, err error) error {
	if err == nil {
		return nil
	}
	var login *gophercloud.ErrUnableToReauthenticate
	if errors.As(err, &login) { // a token has expired, and what counts is why there is no new one
		err = login.ErrReauth
	}
	body, reason := parseError(err), ""
	switch {
	case body.Type == "OverQuota":
		reason = samplecrdv1.ReasonQuotaExceeded
	case body.Type == "GatewayIpInUse", body.Type == "GatewayConflictWithAllocationPools":
		reason = samplecrdv1.ReasonInUse
	case body.Type == "NoNetworkAvailable", // an administrator has to add segments
		gophercloud.ResponseCodeIs(err, http.StatusBadRequest), gophercloud.ResponseCodeIs(err, http.StatusForbidden),
		gophercloud.ResponseCodeIs(err, http.StatusUnauthorized):
		reason = samplecrdv1.ReasonRefused
	}
	action += " for " + cmp.Or(strings.Trim(n.Namespace+"/"+n.Name, "/"), "the Network with the UID "+string(n.UID)) // the sweep may know no name
	if reason != "" {
		return &crd.RefusedError{Reason: reason, Message: action + ": " + cmp.Or(body.Message, err.Error()), Err: err}
	}
	return fmt.Errorf("%s: %w", action, err)
}

// errorBody is what Neutron's error responses have in their body.
type errorBody struct{ Type, Message string }

// parseError returns the body of an error response, or an empty one if the response is not Neutron's.
func parseError(err error) errorBody {
	var unexpected gophercloud.ErrUnexpectedResponseCode
	var body struct{ NeutronError errorBody }
	if errors.As(err, &unexpected) {
		_ = json.Unmarshal(unexpected.Body, &body) // fails for the HTML page of a load balancer, for example
	}
	return body.NeutronError
}

func errorType(err error) string { return parseError(err).Type }
