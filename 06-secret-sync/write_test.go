package secretsync

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An API server, or somebody's admission webhook, may quote the data of a Secret. Our errors do not.
func TestErrorsQuoteNothing(t *testing.T) {
	group := secretsResource.GroupResource()
	status := func(code int32, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: message + secretValue, Details: &metav1.StatusDetails{Causes: causes}}}
	}
	for _, test := range []struct {
		err    error
		reason Reason
		detail string
	}{
		{apierrors.NewForbidden(group, "db", errors.New(secretValue)), Forbidden,
			"the API server answered 403 Forbidden: the ServiceAccount may not create Secrets in namespace shop; a RoleBinding there can allow it"},
		{apierrors.NewForbidden(group, "db", errors.New("exceeded quota: "+secretValue)), Forbidden, "the API server answered 403 Forbidden: a ResourceQuota of namespace shop is exceeded"},
		{status(403, metav1.StatusReasonForbidden, `ValidatingAdmissionPolicy "x" denied: `), Forbidden, "the API server answered 403 Forbidden: a ValidatingAdmissionPolicy denies it"},
		{status(403, metav1.StatusReasonForbidden, `admission webhook "x" denied: `), Forbidden, "the API server answered 403 Forbidden: an admission webhook denies it"},
		{status(422, metav1.StatusReasonInvalid, "Secret is invalid: ", metav1.StatusCause{Type: metav1.CauseTypeFieldValueRequired, Field: "data[tls.crt]", Message: secretValue}), Rejected,
			"the API server answered 422 Unprocessable Entity: invalid: data[tls.crt] (FieldValueRequired)"},
		{status(422, metav1.StatusReasonInvalid, `ValidatingAdmissionPolicy "x" denied: `, metav1.StatusCause{Field: secretValue}), Rejected, "the API server answered 422 Unprocessable Entity: a ValidatingAdmissionPolicy denies it"},
		{status(400, metav1.StatusReasonBadRequest, `admission webhook "x" denied: `), Rejected, "the API server answered 400 Bad Request: an admission webhook denies it"},
		{status(403, secretValue, `admission webhook "x" denied: `), Forbidden, "the API server answered 403 Forbidden: an admission webhook denies it"},
		{status(404, metav1.StatusReasonNotFound, `admission webhook "x" denied: `), Rejected, "the API server answered 404 Not Found: an admission webhook denies it"},
		{status(409, metav1.StatusReasonAlreadyExists, `admission webhook "x" denied: `), Rejected, "the API server answered 409 Conflict: an admission webhook denies it"},
		{apierrors.NewGenericServerResponse(404, "POST", group, "db", secretValue, 0, true), Failing, "the API server answered 404 Not Found"},
		{status(999, secretValue, `admission webhook "x" denied: `), Rejected, "the API server answered 999: an admission webhook denies it"},
		{status(400, metav1.StatusReasonBadRequest, ""), Rejected, "the API server answered 400 Bad Request: the Secret is invalid"},
		{status(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, ""), TooLarge, "the API server answered 413 Request Entity Too Large"},
		{status(500, metav1.StatusReasonInternalError, "etcdserver: request is too large "), TooLarge, "the API server answered 500 Internal Server Error"},
		{status(500, metav1.StatusReasonInternalError, ""), Failing, "the API server answered 500 Internal Server Error"},
		{apierrors.NewAlreadyExists(group, "db"), Failing, "the API server answered 409 Conflict"},
		{apierrors.NewConflict(group, "db", errors.New(secretValue)), Failing, "the API server answered 409 Conflict"},
		{apierrors.NewNotFound(group, "db"), Failing, "the API server answered 404 Not Found"},
		{status(403, metav1.StatusReasonForbidden, "", metav1.StatusCause{Type: corev1.NamespaceTerminatingCause}), NamespaceTerminating, "the API server answered 403 Forbidden"},
		{errors.New("connection refused"), Failing, "connection refused"},
	} {
		err := (&Controller{}).failed(Create, testKey, test.err)
		require.EqualError(t, err, "create Secret shop/db: "+test.detail)
		var failed *WriteError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, test.reason, failed.Reason)
		require.Nil(t, errors.Unwrap(err))
	}
}
