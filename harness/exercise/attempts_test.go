package exercise

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const attemptDiff = `
--- a/controller.go
+++ b/controller.go
@@ -1 +1 @@
-package right
+package other
`

func withAttempt(t *testing.T, name, text string) Exercise {
	t.Helper()
	e := Exercise{Name: "01-x", Dir: t.TempDir()}
	for path, text := range map[string]string{
		"controller.go":           "package wrong\n",
		"types.go":                "package wrong\n\ntype T int\n",
		".solution/controller.go": "package right\n",
		".attempts/" + name:       text,
	} {
		path := filepath.Join(e.Dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return e
}

func TestAnAttemptIsAPatchOfTheSolution(t *testing.T) {
	t.Parallel()
	attempts, err := withAttempt(t, "in-another-way.patch", "Passes: it is as good\n"+attemptDiff).Attempts()
	require.NoError(t, err)
	require.Len(t, attempts, 1)
	a := attempts[0]
	require.Equal(t, "in-another-way", a.Name)
	require.Equal(t, "it is as good", a.Why)
	code, err := a.Code(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{"controller.go": []byte("package other\n"), "types.go": []byte("package wrong\n\ntype T int\n")}, code)

	require.NoError(t, a.Judge(Result{Verdict: Passed}))
	require.ErrorContains(t, a.Judge(Result{Verdict: Failed, Message: "No."}), "a right solution is rejected (it is as good)")
}

func TestAWrongAttemptMustFailForItsReason(t *testing.T) {
	t.Parallel()
	attempts, err := withAttempt(t, "forgets.patch", "Fails: it forgets Pods\nSays: a Pod was forgotten\n"+attemptDiff).Attempts()
	require.NoError(t, err)
	a := attempts[0]
	require.NoError(t, a.Judge(Result{Verdict: Failed, Message: "At the end, a Pod was forgotten."}))
	require.ErrorContains(t, a.Judge(Result{Verdict: Passed}), "a wrong solution passes (it forgets Pods)")
	require.ErrorContains(t, a.Judge(Result{Verdict: Failed, Message: "It panics."}), `does not say ["a Pod was forgotten"]`)

	attempts, err = withAttempt(t, "forgets.patch", "Fails: it forgets Pods\nSays: a Pod was forgotten\nSays: a Pod is there twice\n"+attemptDiff).Attempts()
	require.NoError(t, err)
	require.NoError(t, attempts[0].Judge(Result{Verdict: Failed, Message: "At the end, a Pod was forgotten."}))
	require.NoError(t, attempts[0].Judge(Result{Verdict: Failed, Message: "At the end, a Pod is there twice."}))
	require.ErrorContains(t, attempts[0].Judge(Result{Verdict: Failed, Message: "It panics."}), `does not say ["a Pod was forgotten" "a Pod is there twice"]`)
}

func TestBrokenAttempts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ file, text, problem string }{
		"not a patch":       {"controller.go", "Passes: x\n" + attemptDiff, "an attempt is a file NAME.patch"},
		"no header":         {"a.patch", attemptDiff, "is none of Passes, Fails and Says"},
		"unknown key":       {"a.patch", "Why: x\n" + attemptDiff, `"Why: x" in its header`},
		"both":              {"a.patch", "Passes: x\nFails: y\nSays: z\n" + attemptDiff, "its header needs"},
		"neither":           {"a.patch", "Says: z\n" + attemptDiff, "its header needs"},
		"fails for nothing": {"a.patch", "Fails: x\n" + attemptDiff, "its header needs"},
		"passes, and says":  {"a.patch", "Passes: x\nSays: z\n" + attemptDiff, "its header needs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := withAttempt(t, test.file, test.text).Attempts()
			require.ErrorContains(t, err, test.problem)
		})
	}

	attempts, err := withAttempt(t, "a.patch", "Passes: x\n"+`
--- a/controller.go
+++ b/controller.go
@@ -1 +1 @@
-package gone
+package other
`).Attempts()
	require.NoError(t, err)
	_, err = attempts[0].Code(t.Context())
	require.ErrorContains(t, err, "is no patch of the solution any more")
}
