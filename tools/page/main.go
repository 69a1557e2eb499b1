// Command page makes one HTML file of a page: its scripts, with the modules of D3 that they import, and its style.
//
//	make page
//
// It reads index.html, style.css, main.js and svg.js in the directory, and writes view.html and svg.min.js. The first line of the former has a hash of all that it is made
// of, so that a test can tell whether it is up to date without the modules.
package main

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: page DIRECTORY")
		os.Exit(2)
	}
	if err := bundle(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

func bundle(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		return fmt.Errorf("the modules are not installed; run npm ci --ignore-scripts in %s: %w", dir, err)
	}
	script, err := build(filepath.Join(dir, "main.js"), api.FormatIIFE, api.ES2021)
	if err != nil {
		return err
	}
	svg, err := build(filepath.Join(dir, "svg.js"), api.FormatIIFE, api.ES2017)
	if err != nil {
		return err
	}
	style, err := build(filepath.Join(dir, "style.css"), api.FormatDefault, api.ES2021)
	if err != nil {
		return err
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		return err
	}
	policy := fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; connect-src {{connect}}; base-uri 'none'; form-action 'none'",
		digest(script), digest(style))
	html := strings.NewReplacer("{{style}}", style, "{{script}}", script, "{{policy}}", policy).Replace(string(page))
	licenses, err := licensesOf(filepath.Join(dir, "node_modules"))
	if err != nil {
		return err
	}
	html += licenses
	sources, err := hashOf(dir)
	if err != nil {
		return err
	}
	html = strings.Replace(html, "<!doctype html>\n", "<!doctype html>\n<!-- Generated from the files beside it, whose hash is "+sources+": see CONTRIBUTING.md. -->\n", 1)
	svg = "// Generated from svg.js and what it imports: see CONTRIBUTING.md.\n" + comment(licenses) + svg
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "view.html"), []byte(html), 0o644),
		os.WriteFile(filepath.Join(dir, "svg.min.js"), []byte(svg), 0o644),
	)
}

// placeholder is what ends a script in HTML, or what the page replaces.
var placeholder = regexp.MustCompile(`(?i)</script|\{\{[a-z]+\}\}`)

// comment makes a comment in JavaScript of one in HTML.
func comment(html string) string {
	return strings.NewReplacer("<!--", "/*", "-->", "*/").Replace(html)
}

// build bundles a file and what it imports.
func build(path string, format api.Format, target api.Target) (string, error) {
	result := api.Build(api.BuildOptions{
		EntryPoints: []string{path}, Bundle: true, Format: format, Target: target, Charset: api.CharsetUTF8,
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true, LegalComments: api.LegalCommentsInline,
	})
	var problems []error
	for _, message := range append(result.Errors, result.Warnings...) {
		where := path
		if message.Location != nil {
			where = fmt.Sprintf("%s:%d", message.Location.File, message.Location.Line)
		}
		problems = append(problems, fmt.Errorf("%s: %s", where, message.Text))
	}
	if len(problems) > 0 {
		return "", errors.Join(problems...)
	}
	text := string(result.OutputFiles[0].Contents)
	if placeholder.MatchString(text) {
		return "", fmt.Errorf("%s: the bundle has text that the page cannot hold", path)
	}
	return text, nil
}

// digest is how a Content-Security-Policy names a script or a style.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// licensesOf returns the licenses of all modules, as a comment in HTML.
func licensesOf(modules string) (string, error) {
	paths, err := filepath.Glob(filepath.Join(modules, "*", "LICENSE*"))
	if err != nil {
		return "", err
	}
	names := map[string][]string{} // by the license's text
	var texts []string
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		text := strings.TrimSpace(string(data))
		if strings.Contains(text, "--") {
			return "", fmt.Errorf("%s: the license has text that a comment in HTML cannot hold", path)
		}
		if names[text] == nil {
			texts = append(texts, text)
		}
		names[text] = append(names[text], filepath.Base(filepath.Dir(path)))
	}
	var out strings.Builder
	for _, text := range texts {
		fmt.Fprintf(&out, "<!-- %s:\n\n%s -->\n", strings.Join(names[text], ", "), text)
	}
	return out.String(), nil
}

func isGenerated(name string) bool { return name == "view.html" || name == "svg.min.js" }

// hashOf is the hash of all that a page is made of: its own files, sorted by name, and the versions of the modules.
func hashOf(dir string) (string, error) {
	sum := sha256.New()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		if entry.IsDir() || isGenerated(entry.Name()) || strings.HasPrefix(entry.Name(), ".") || strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", entry.Name(), len(text), text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}
