package play_test

import (
	"fmt"
	"os"
	"path/filepath"

	"example.com/controllers/harness/play"
)

// The tests insist that a page quotes the code as it is; a reader may change the code.
func ExampleReadEdited() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "README.md")
	for name, text := range map[string]string{
		"README.md": "```go greet.go\nfunc greet() string { return \"hello\" }\n```\n",
		"greet.go":  "package greet\n\nfunc greet() string { return \"good morning\" }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			panic(err)
		}
	}
	_, err = play.Read(path)
	fmt.Println("an error for a test:", err != nil)

	page, err := play.ReadEdited(path)
	if err != nil {
		panic(err)
	}
	fmt.Println(page.Parts[0].Prose)
	// Output:
	// an error for a test: true
	// *You have changed greet.go; this is your code:*
	//
	// ```go
	// func greet() string { return "good morning" }
	// ```
}
