package skeleton

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"k8s.io/apimachinery/pkg/util/validation"
)

// checkName returns an error if a controller cannot have that name: it is the name of a namespace and of the objects in it, of
// a program, and without its hyphens of a Go package.
func checkName(name string, s *source) error {
	refuse := func(why string, words ...any) error {
		return fmt.Errorf("a controller cannot be called %q: %s; choose another name, such as my-%s", name, fmt.Sprintf(why, words...), suggestion(name))
	}
	if complaints := validation.IsDNS1035Label(name); len(complaints) > 0 {
		return refuse("Kubernetes allows at most 63 lower-case letters, digits and hyphens in such a name, the first of them a letter and the last no hyphen")
	}
	if name == "default" || strings.HasPrefix(name, "kube-") {
		return refuse("that is a namespace of Kubernetes")
	}
	if slices.Contains(s.Taken, name) {
		return refuse("the objects that it works on are called so already")
	}
	if slices.Contains([]string{"testdata", "vendor"}, name) {
		return refuse("the go command ignores directories of that name")
	}
	for file := range s.files {
		if top, _, _ := strings.Cut(file, "/"); top == name {
			return refuse("there is a directory of that name in it")
		}
	}
	pkg := packageName(name)
	if token.IsKeyword(pkg) || types.Universe.Lookup(pkg) != nil || pkg == "main" {
		return refuse("its Go package would be called %q, which means something else in Go", pkg)
	}
	used, err := s.identifiers()
	if err != nil {
		return err
	}
	if file := used[pkg]; file != "" {
		return refuse("its Go package would be called %q, and %s has that word for something else", pkg, file)
	}
	return nil
}

// suggestion returns the part of a name that may be in a better one.
func suggestion(name string) string {
	kept := strings.Trim(strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name)), "-")
	if len(validation.IsDNS1035Label("my-"+kept)) > 0 {
		return "controller"
	}
	return kept
}

// identifiers returns the identifiers of the main packages, in which the controller's package is imported, and a file that
// has each.
func (s *source) identifiers() (map[string]string, error) {
	found := map[string]string{}
	for name, text := range s.files {
		if path.Ext(name) != ".go" || !strings.HasPrefix(name, "cmd/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if identifier, ok := node.(*ast.Ident); ok {
				found[identifier.Name] = path.Base(name)
			}
			return true
		})
	}
	return found, nil
}

// checkModule returns an error if a path is none for a module, or is that of a module which the skeleton requires.
func checkModule(modulePath string, s *source) error {
	if err := module.CheckPath(modulePath); err != nil {
		return fmt.Errorf("a module cannot have the path %q: %w; give MODULE (--module) one that begins with a domain, such as example.com/my-controller", modulePath, err)
	}
	required, err := modfile.ParseLax("go.mod", s.files["go.mod"], nil)
	if err != nil {
		return err
	}
	for _, r := range required.Require {
		if r.Mod.Path == modulePath {
			return fmt.Errorf("a module cannot have the path %q: the controller requires the module of that path; give MODULE (--module) another", modulePath)
		}
	}
	return nil
}
