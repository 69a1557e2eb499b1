#!/bin/sh
# charm.land/glamour/v2 v2.0.1: the paragraphs of a list item are joined without a space or a line break:
#   - The status is read.
#
#     The Node is rebooted.
# becomes "The status is read.The Node is rebooted." CommonMark makes two paragraphs of it, and so does goldmark v1.7.8, the parser that glamour
# uses. Two paragraphs of a quotation, or outside of lists, stay apart.
# See ansi/elements.go: ast.KindParagraph, whose parent is an ast.KindListItem.
#
# Needs Go and access to a module proxy. Ends with status 0 while this is so.
set -eu
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT INT TERM
cd "$dir"
export GOFLAGS=-mod=mod GOWORK=off
cat > go.mod <<'END'
module finding

go 1.26.0

require (
	charm.land/glamour/v2 v2.0.1
	github.com/yuin/goldmark v1.7.8
)
END
cat > main.go <<'END'
package main

import (
	"bytes"
	"fmt"
	"strings"

	"charm.land/glamour/v2"
	"github.com/yuin/goldmark"
)

func main() {
	renderer, err := glamour.NewTermRenderer(glamour.WithStandardStyle("notty"))
	if err != nil {
		panic(err)
	}
	for _, text := range []string{"read\n\nrebooted\n", "> read\n>\n> rebooted\n", "- read\n\n  rebooted\n", "1. read\n\n   rebooted\n"} {
		out, err := renderer.Render(text)
		if err != nil {
			panic(err)
		}
		var html bytes.Buffer
		if err := goldmark.Convert([]byte(text), &html); err != nil {
			panic(err)
		}
		fmt.Printf("%q: glamour %q, goldmark %q\n", text, strings.Fields(out), strings.ReplaceAll(html.String(), "\n", ""))
	}
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
"read\n\nrebooted\n": glamour ["read" "rebooted"], goldmark "<p>read</p><p>rebooted</p>"
"> read\n>\n> rebooted\n": glamour ["|" "read" "|" "|" "rebooted"], goldmark "<blockquote><p>read</p><p>rebooted</p></blockquote>"
"- read\n\n  rebooted\n": glamour ["•" "readrebooted"], goldmark "<ul><li><p>read</p><p>rebooted</p></li></ul>"
"1. read\n\n   rebooted\n": glamour ["1." "readrebooted"], goldmark "<ol><li><p>read</p><p>rebooted</p></li></ol>"
END
diff want out
