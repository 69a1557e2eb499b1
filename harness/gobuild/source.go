package gobuild

import (
	"bytes"
	"go/scanner"
	"go/token"
	"path/filepath"
	"strings"
)

// withoutComments returns what decides how a file is compiled: of a Go file, its tokens and those comments that are
// directives, and of any other file everything. So a program is not built again for a comment, although the line numbers in its
// stack traces are then those of the build.
func withoutComments(name string, text []byte) []byte {
	if filepath.Ext(name) != ".go" || bytes.Contains(text, []byte(`"C"`)) { // comments before import "C" are C code
		return text
	}
	files := token.NewFileSet()
	valid := true
	var s scanner.Scanner
	s.Init(files.AddFile(name, files.Base(), len(text)), text, func(token.Position, string) { valid = false }, scanner.ScanComments)
	var code bytes.Buffer
	for {
		_, tok, literal := s.Scan()
		switch {
		case !valid:
			return text
		case tok == token.EOF:
			return code.Bytes()
		case tok == token.COMMENT && !isDirective(literal):
			continue
		case tok == token.SEMICOLON: // perhaps one that a line break stands for
			literal = ""
		}
		code.WriteString(tok.String() + " " + literal + "\n")
	}
}

// isDirective reports whether a comment is meant for the compiler or the go command.
func isDirective(comment string) bool {
	for _, prefix := range []string{"//go:", "//line ", "/*line ", "//export ", "// +build", "//+build"} {
		if strings.HasPrefix(comment, prefix) {
			return true
		}
	}
	return false
}
