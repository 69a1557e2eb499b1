package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// file is a file or a directory of an image. Its owner is root.
type file struct {
	path     string // without a leading slash
	contents []byte // nil for a directory
	mode     int64
}

const certificatesPath = "etc/ssl/certs/ca-certificates.crt"

// baseFiles returns what all images have: users, CA certificates, and a directory for temporary files.
func baseFiles() ([]file, error) {
	var certificates bytes.Buffer
	for root := range bundle.Roots() {
		// A constraint, such as an end of trust for new certificates, cannot be written to a file of certificates.
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&certificates, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	passwd := fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/:/sbin/nologin\n", UserID, UserID)
	group := fmt.Sprintf("root:x:0:\nnonroot:x:%d:\n", UserID)
	return []file{
		{path: "etc/passwd", contents: []byte(passwd), mode: 0o644},
		{path: "etc/group", contents: []byte(group), mode: 0o644},
		{path: certificatesPath, contents: certificates.Bytes(), mode: 0o644},
		{path: "tmp", mode: 0o1777},
	}, nil
}

// newLayer returns a layer with the files and the directories that they are in. Nothing in it depends on the time or the
// user.
func newLayer(files []file) (v1.Layer, error) {
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	for _, f := range withDirectories(files) {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Size: int64(len(f.contents)), Mode: f.mode, ModTime: time.Unix(0, 0)}
		if f.contents == nil {
			header.Typeflag, header.Name = tar.TypeDir, f.path+"/"
		}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.contents); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching)
}

// withDirectories returns the files, sorted by path, and the directories that they are in.
func withDirectories(files []file) []file {
	all := map[string]file{}
	for _, f := range files {
		for dir := path.Dir(f.path); dir != "."; dir = path.Dir(dir) {
			if _, exists := all[dir]; !exists {
				all[dir] = file{path: dir, mode: 0o755}
			}
		}
		all[f.path] = f
	}
	sorted := make([]file, 0, len(all))
	for _, f := range all {
		sorted = append(sorted, f)
	}
	slices.SortFunc(sorted, func(a, b file) int { return bytes.Compare([]byte(a.path), []byte(b.path)) })
	return sorted
}

// hexSHA256 returns the SHA-256 of data, in hexadecimal.
func hexSHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
