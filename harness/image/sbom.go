package image

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// spdxDocument is the part of an SPDX 2.3 document that we write, see https://spdx.github.io/spdx-spec/v2.3.
type spdxDocument struct {
	Version       string             `json:"spdxVersion"`
	DataLicense   string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	CreationInfo  spdxCreationInfo   `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxCreationInfo struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID               string         `json:"SPDXID"`
	Name             string         `json:"name"`
	Version          string         `json:"versionInfo"`
	DownloadLocation string         `json:"downloadLocation"`
	FilesAnalyzed    bool           `json:"filesAnalyzed"`
	LicenseConcluded string         `json:"licenseConcluded"`
	LicenseDeclared  string         `json:"licenseDeclared"`
	CopyrightText    string         `json:"copyrightText"`
	Checksums        []spdxChecksum `json:"checksums,omitempty"`
	References       []spdxRef      `json:"externalRefs,omitempty"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

// newSBOM returns an SPDX document in JSON that lists the modules which a binary was built from, and the version of Go.
// The go command writes them into each binary.
func newSBOM(binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read what %s was built from: %w", binary, err)
	}
	contents, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	digest, name := hexSHA256(contents), filepath.Base(binary)
	document := spdxDocument{
		Version:     "SPDX-2.3",
		DataLicense: "CC0-1.0",
		ID:          "SPDXRef-DOCUMENT",
		Name:        name,
		// It must be unique, but need not exist.
		Namespace: "https://example.com/controllers/sbom/" + name + "-" + digest,
		// The time must not change the image.
		CreationInfo: spdxCreationInfo{Created: "1970-01-01T00:00:00Z", Creators: []string{"Tool: example.com/controllers/harness/image"}},
	}
	const program = "SPDXRef-Program"
	document.Packages = append(document.Packages, spdxPackage{
		ID: program, Name: info.Path, Version: info.Main.Version,
		DownloadLocation: "NOASSERTION", LicenseConcluded: "NOASSERTION", LicenseDeclared: "NOASSERTION", CopyrightText: "NOASSERTION",
		Checksums: []spdxChecksum{{"SHA256", digest}},
	})
	document.Relationships = append(document.Relationships, spdxRelationship{"SPDXRef-DOCUMENT", "DESCRIBES", program})

	modules := []*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for i, module := range append(modules, info.Deps...) {
		if module.Replace != nil {
			module = module.Replace
		}
		id := fmt.Sprintf("SPDXRef-Module-%d", i)
		document.Packages = append(document.Packages, spdxPackage{
			ID: id, Name: module.Path, Version: module.Version,
			DownloadLocation: "NOASSERTION", LicenseConcluded: "NOASSERTION", LicenseDeclared: "NOASSERTION", CopyrightText: "NOASSERTION",
			References: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + module.Path + "@" + module.Version}},
		})
		document.Relationships = append(document.Relationships, spdxRelationship{program, "DEPENDS_ON", id})
	}
	return json.MarshalIndent(document, "", "  ")
}
