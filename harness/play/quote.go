package play

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.com/controllers/harness/testinput"
)

// checkQuote compares a code block with the file that its info string names. If they differ, it returns an error, and
// the Markdown to show instead: the file's own code as far as it can be found, else the block as it is.
func checkQuote(dir string, info, lines []string) (instead string, err error) {
	block := strings.Join(slices.Concat([]string{"```" + strings.Join(info, " ")}, lines, []string{"```"}), "\n")
	switch {
	case len(info) == 2:
		err = quoted(dir, info[1], lines)
	case len(info) == 3 && info[0] == "diff":
		err = errors.Join(quoted(dir, info[1], side(lines, "-")), quoted(dir, info[2], side(lines, "+")))
		return fmt.Sprintf("*You have changed %s or %s; this is what the page quotes:*\n\n%s", info[1], info[2], block), err
	}
	if err == nil {
		return "", nil
	}
	file := info[1]
	source, readErr := os.ReadFile(filepath.Join(dir, file))
	if readErr != nil {
		return fmt.Sprintf("*There is no %s any more; this is what the page quotes:*\n\n%s", file, block), err
	}
	if own := sameDeclarations(string(source), lines); own != "" {
		return fmt.Sprintf("*You have changed %s; this is your code:*\n\n```%s\n%s\n```", file, info[0], own), err
	}
	return fmt.Sprintf("*You have changed %s; this is what the page quotes. Yours is in that file:*\n\n%s", file, block), err
}

// side returns one side of a diff: the lines that start with sign, and those that both sides have.
func side(diff []string, sign string) []string {
	var lines []string
	for _, line := range diff {
		text, ours := strings.CutPrefix(line, sign)
		if ours || strings.HasPrefix(line, " ") || line == "" || line == ellipsis {
			lines = append(lines, text)
		}
	}
	return lines
}

// isGap reports whether a line of a quote stands for lines left out.
func isGap(line string) bool {
	line = strings.TrimSpace(line)
	return line == ellipsis || line == "// "+ellipsis
}

// quoted returns an error unless the lines are in the file, in order and without gaps other than the marked ones.
func quoted(dir, file string, lines []string) error {
	testinput.Declare(filepath.Join(dir, file))
	source, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return fmt.Errorf("the page quotes %s: %w", file, err)
	}
	rest := trimmed(strings.Split(string(source), "\n"))
	var piece []string
	take := func() error {
		at := indexLines(rest, piece)
		if at < 0 {
			return fmt.Errorf("the page quotes what is not in %s:\n  %s", file, strings.Join(piece, "\n  "))
		}
		rest, piece = rest[at+len(piece):], nil
		return nil
	}
	for _, line := range trimmed(lines) {
		if !isGap(line) {
			piece = append(piece, line)
			continue
		}
		if err := take(); err != nil {
			return err
		}
	}
	return take()
}

func trimmed(lines []string) []string {
	out := slices.Clone(lines)
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

// indexLines returns the index at which piece begins in lines, or -1.
func indexLines(lines, piece []string) int {
	for at := 0; at+len(piece) <= len(lines); at++ {
		if slices.Equal(lines[at:at+len(piece)], piece) {
			return at
		}
	}
	return -1
}

// sameDeclarations returns the declarations of a Go file that a quote declares too, by name. For a quote from the
// middle of a declaration, it returns the corresponding lines of the declaration that shares most lines with the quote.
// It returns "" if there is none, or if the file is not Go.
func sameDeclarations(source string, quote []string) string {
	own := declarations(source)
	var same []string
	for _, d := range declarations("package quote\n" + withoutGaps(quote)) {
		if i := slices.IndexFunc(own, func(o declaration) bool { return o.name == d.name }); i >= 0 {
			same = append(same, own[i].text(d.documented))
		}
	}
	if len(same) > 0 {
		return strings.Join(same, "\n\n")
	}
	wanted, most, excerpt := trimmed(quote), 0, ""
	for _, d := range own {
		lines := strings.Split(d.source, "\n")
		var shared []int // indexes of lines
		for i, line := range trimmed(lines) {
			if len(line) > len("return err") && slices.Contains(wanted, line) { // shorter lines are everywhere
				shared = append(shared, i)
			}
		}
		if len(shared) > most {
			most = len(shared)
			excerpt = strings.Join(lines[shared[0]:shared[len(shared)-1]+1], "\n")
		}
	}
	return excerpt
}

func withoutGaps(quote []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(quote), isGap), "\n")
}

// declaration is a top-level declaration of a Go file.
type declaration struct {
	name       string // of a method: "Type.name"; of a group of constants or variables: the first
	doc        string // with a line break at its end; "" without a comment
	source     string // without doc
	documented bool   // doc is not ""
}

func (d declaration) text(documented bool) string {
	if documented {
		return d.doc + d.source
	}
	return d.source
}

// declarations returns those of a Go file, which may be broken: then, those that the parser could read.
func declarations(source string) []declaration {
	files := token.NewFileSet()
	file, _ := parser.ParseFile(files, "", source, parser.ParseComments|parser.SkipObjectResolution)
	if file == nil {
		return nil
	}
	slice := func(from, to token.Pos) string {
		begin, end := files.Position(from).Offset, files.Position(to).Offset
		return source[begin:max(begin, min(end, len(source)))]
	}
	var all []declaration
	for _, d := range file.Decls {
		var name string
		var doc *ast.CommentGroup
		switch d := d.(type) {
		case *ast.FuncDecl:
			name, doc = funcName(d), d.Doc
		case *ast.GenDecl:
			name, doc = specName(d), d.Doc
		}
		if name == "" {
			continue
		}
		one := declaration{name: name, source: slice(d.Pos(), d.End()), documented: doc != nil}
		if doc != nil {
			one.doc = slice(doc.Pos(), doc.End()) + "\n"
		}
		all = append(all, one)
	}
	return all
}

func funcName(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if name, ok := receiver.(*ast.Ident); ok {
		return name.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

// specName returns "" for imports.
func specName(d *ast.GenDecl) string {
	if len(d.Specs) == 0 {
		return ""
	}
	switch spec := d.Specs[0].(type) {
	case *ast.TypeSpec:
		return spec.Name.Name
	case *ast.ValueSpec:
		return spec.Names[0].Name
	}
	return ""
}
