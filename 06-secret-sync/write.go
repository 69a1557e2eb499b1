package secretsync

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
)

// create creates a copy. A Secret that exists is never changed by it, which a server-side apply would do: on a Secret of
// somebody else that has none of our keys there is no conflict, and the apply would merge ours into it. It keeps what others have
// added to the metadata of the copy that it replaces, if there is one.
func (c *Controller) create(ctx context.Context, key cache.ObjectName, d Decision, replaced *metav1.PartialObjectMetadata) error {
	secret := c.desired(key, d.Source, replaced)
	secret.UID, secret.ResourceVersion, secret.Finalizers, secret.ManagedFields = "", "", nil, nil
	created, err := c.client.CoreV1().Secrets(key.Namespace).Create(ctx, secret, metav1.CreateOptions{FieldManager: c.FieldManager()})
	if err != nil {
		return c.failed(Create, key, err)
	}
	c.wrote(key, Create, ownWrite{version: created.ResourceVersion})
	c.attempted(key, d, created.ResourceVersion)
	return nil
}

// update replaces a copy. The API server refuses it if there is another Secret by now, or another version of it.
func (c *Controller) update(ctx context.Context, key cache.ObjectName, d Decision, current *metav1.PartialObjectMetadata) error {
	updated, err := c.client.CoreV1().Secrets(key.Namespace).Update(ctx, c.desired(key, d.Source, current), metav1.UpdateOptions{FieldManager: c.FieldManager()})
	if err != nil {
		return c.failed(Update, key, err)
	}
	c.wrote(key, Update, ownWrite{version: updated.ResourceVersion})
	c.attempted(key, d, updated.ResourceVersion)
	return nil
}

// delete deletes a copy, if it is still the one that the decision was about.
func (c *Controller) delete(ctx context.Context, key cache.ObjectName, current *metav1.PartialObjectMetadata) error {
	err := c.client.CoreV1().Secrets(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &current.UID, ResourceVersion: &current.ResourceVersion},
	})
	if err != nil {
		return c.failed(Delete, key, err)
	}
	c.wrote(key, Delete, ownWrite{deleted: current.UID})
	return nil
}

// wrote records a write, for the read-your-own-writes guard and the metrics.
func (c *Controller) wrote(key cache.ObjectName, action Action, write ownWrite) {
	c.ownWrites.wroteAt(key, write)
	c.metrics.writes.WithLabelValues(string(action)).Inc()
	if since := c.pending.since(key); !since.IsZero() {
		c.metrics.lag.Observe(time.Since(since).Seconds())
	}
}

// WriteError says what failed and why. It contains no text from the API server: the message of a validation, or of somebody's
// admission webhook, may quote the data of the Secret.
type WriteError struct {
	Action Action
	Key    cache.ObjectName
	Reason Reason
	// Detail explains the reason. It is one of a few fixed texts, or an error of the connection.
	Detail string

	gone, exists, conflict bool
	immutable              bool // the update is refused, but a new Secret may not be
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("%s Secret %s: %s", e.Action, e.Key, e.Detail)
}

// failed classifies the error of a write.
func (c *Controller) failed(action Action, key cache.ObjectName, err error) error {
	failure := &WriteError{Action: action, Key: key, Reason: Failing}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		failure.Detail = err.Error() // the request had no answer; the error names its URL
		return failure
	}
	s := status.Status()
	// A webhook that denies a write chooses the code and the reason: a 404 of a webhook, or of a load balancer, does not say that
	// anything is gone. The reason may be any text, so it is not quoted.
	denied := strings.Contains(s.Message, "admission webhook")
	failure.Detail = strings.TrimSpace(fmt.Sprintf("the API server answered %d %s", s.Code, http.StatusText(int(s.Code))))
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		failure.gone, failure.Reason = true, NamespaceTerminating
	case denied && !apierrors.IsForbidden(err):
		failure.Reason = Rejected
		failure.Detail += ": " + whyRejected(s)
	case s.Code == http.StatusNotFound && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse): // of the copy, or of its namespace
		failure.gone = true
	case apierrors.IsAlreadyExists(err):
		failure.exists = true
	case apierrors.IsConflict(err):
		failure.conflict = true
	case apierrors.IsForbidden(err):
		failure.Reason = Forbidden
		failure.Detail += ": " + whyForbidden(s.Message, action, key)
	case apierrors.IsRequestEntityTooLargeError(err) || strings.Contains(s.Message, "request is too large"):
		failure.Reason = TooLarge
	case s.Code == http.StatusUnprocessableEntity || s.Code == http.StatusBadRequest:
		failure.Reason = Rejected
		failure.Detail += ": " + whyRejected(s)
		failure.immutable = action == Update && onlyImmutable(s)
	}
	return failure
}

// onlyImmutable reports whether an update changes what cannot change, the type of a Secret or the content of an immutable one,
// and is valid otherwise.
func onlyImmutable(status metav1.Status) bool {
	return status.Details != nil && len(status.Details.Causes) > 0 && !slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool {
		forbidden := cause.Type == metav1.CauseType(field.ErrorTypeForbidden) && (cause.Field == "data" || cause.Field == "immutable")
		return cause.Field != "type" && !forbidden
	})
}

// whyForbidden says who forbids a write, without quoting it.
func whyForbidden(message string, action Action, key cache.ObjectName) string {
	switch {
	case strings.Contains(message, "exceeded quota"):
		return "a ResourceQuota of namespace " + key.Namespace + " is exceeded"
	case strings.Contains(message, "ValidatingAdmissionPolicy"):
		return "a ValidatingAdmissionPolicy denies it"
	case strings.Contains(message, "admission webhook"):
		return "an admission webhook denies it"
	}
	return fmt.Sprintf("the ServiceAccount may not %s Secrets in namespace %s; a RoleBinding there can allow it", action, key.Namespace)
}

// whyRejected says which fields are invalid, without their values.
func whyRejected(status metav1.Status) string {
	var fields []string
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			// The field may be a key of the data, and no more: the keys are names and not secret.
			fields = append(fields, fmt.Sprintf("%s (%s)", cause.Field, cause.Type))
		}
	}
	switch {
	case strings.Contains(status.Message, "ValidatingAdmissionPolicy"):
		return "a ValidatingAdmissionPolicy denies it"
	case strings.Contains(status.Message, "admission webhook"):
		return "an admission webhook denies it"
	case len(fields) == 0:
		return "the Secret is invalid"
	}
	return "invalid: " + strings.Join(fields, ", ")
}
