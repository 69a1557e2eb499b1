package mutants_test

import (
	"fmt"
	"os"
	"path/filepath"

	"example.com/controllers/harness/mutants"
)

// A mutant is a patch with a header. "workshop mutants" applies it to a copy of the controller's module, builds that, and
// puts it to torture.
func ExampleRead() {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	const patch = `Bug: a failed deletion is forgotten instead of being retried.
Shows: when a deletion fails.
Expect: change lost, ends differently

--- a/controller.go
+++ b/controller.go
@@ -7,3 +7,3 @@
 	if err := c.reconcile(ctx, key); err != nil {
-		c.queue.AddRateLimited(key)
+		c.queue.Forget(key)
 	}
`
	if err := os.WriteFile(filepath.Join(dir, "forgets-failures.patch"), []byte(patch), 0o600); err != nil {
		panic(err)
	}
	all, err := mutants.Read(dir, "")
	if err != nil {
		panic(err)
	}
	for _, m := range all {
		fmt.Printf("%s: %s\n%q\n", m.Name, m.Bug, m.Expect)
	}
	// Output:
	// forgets-failures: a failed deletion is forgotten instead of being retried.
	// ["change lost" "ends differently"]
}
