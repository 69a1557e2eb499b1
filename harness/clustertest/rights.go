package clustertest

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// Rights are requests that a ServiceAccount may make and may not make, each as arguments of "kubectl auth can-i".
type Rights struct{ May, MayNot []string }

var (
	yes = regexp.MustCompile(`(?m)^yes$`)
	no  = regexp.MustCompile(`(?m)^no\b`)
)

// RequireRights fails the test unless a ServiceAccount of its namespace has these rights.
func (e *Env) RequireRights(account string, rights Rights) {
	e.t.Helper()
	as := "--as=system:serviceaccount:" + e.Namespace + ":" + account
	ask := func(question string) (string, error) {
		return e.TryKubectl(append([]string{"auth", "can-i", as}, strings.Fields(question)...)...)
	}
	for _, question := range rights.May {
		e.Eventually(account+" must be allowed to "+question, func(context.Context) string { // the API server watches its roles
			if out, err := ask(question); err != nil || !yes.MatchString(out) {
				return fmt.Sprintf("%s(%v)", out, err)
			}
			return ""
		})
	}
	for _, question := range rights.MayNot {
		if out, err := ask(question); err == nil || !no.MatchString(out) {
			e.t.Errorf("%s must not be allowed to %s: %s", account, question, out)
		}
	}
}
