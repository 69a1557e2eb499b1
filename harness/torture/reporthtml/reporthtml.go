// Package reporthtml prints what torture has found as one HTML file, which needs no other, no network and no JavaScript. It is for people
// who may never have heard of torture: a bug report has it attached.
package reporthtml

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"

	"example.com/controllers/harness/torture/report"
)

//go:embed report.html
var text string

//go:embed style.css
var style string

var reportPage = template.Must(template.New("report").Funcs(template.FuncMap{
	"meaning": func(verdict string) string { return meanings[verdict] },
	"inc":     func(i int) int { return i + 1 },
	"lines":   func(lines []string) string { return strings.Join(lines, "\n") },
	"notMet":  func() string { return report.NotMetText },
	"style":   func() template.CSS { return template.CSS(style) },
	"policy": func() string {
		sum := sha256.Sum256([]byte(style))
		return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
	},
	"picture": func(f report.Failure, s *report.Summary) (drawn, error) { return draw(f, s.Baseline) },
	"legend":  legend,
}).Parse(text))

// meanings explain the verdicts.
var meanings = map[string]string{
	"died":                  "The process exited by itself.",
	"does not stop":         "It did not end well after SIGTERM: too late, with another status than it should, or in the middle of a request.",
	"change lost":           "It did not do what a change called for in the time that it had, although nothing was broken any more.",
	"ends differently":      "In the end, the cluster is not as it is without the fault.",
	"rule broken":           "The cluster went through a state that must never be.",
	"did too much":          "It created, deleted or wrote more than without the fault, or wrote what could not change anything.",
	"did too little":        "It created, deleted or wrote less than without the fault.",
	"does not come to rest": "It goes on writing, or asking, when nothing happens any more.",
}

// Write writes a report.
func Write(w io.Writer, s *report.Summary) error {
	var out bytes.Buffer // of a page that is not complete, nothing is written
	if err := reportPage.Execute(&out, s); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	_, err := w.Write(out.Bytes())
	return err
}
