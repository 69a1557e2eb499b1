package clustertest

import (
	"regexp"
	"strings"
)

// Rights are what a ServiceAccount may do and may not, each in the words of "kubectl auth can-i".
type Rights struct{ May, MayNot []string }

var (
	yes = regexp.MustCompile(`(?m)^yes$`)
	no  = regexp.MustCompile(`(?m)^no\b`)
)

// RequireRights asks the API server whether a ServiceAccount of the test's namespace has these rights.
func (e *Env) RequireRights(account string, rights Rights) {
	e.t.Helper()
	as := "--as=system:serviceaccount:" + e.Namespace + ":" + account
	ask := func(question string) (string, error) {
		return e.TryKubectl(append([]string{"auth", "can-i", as}, strings.Fields(question)...)...)
	}
	for _, question := range rights.May {
		if out, err := ask(question); err != nil || !yes.MatchString(out) {
			e.t.Errorf("%s must be allowed to %s: %s", account, question, out)
		}
	}
	for _, question := range rights.MayNot {
		if out, err := ask(question); err == nil || !no.MatchString(out) {
			e.t.Errorf("%s must not be allowed to %s: %s", account, question, out)
		}
	}
}
