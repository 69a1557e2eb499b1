package apiproxy

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// prefix is the body of a request on its way to the API server. It keeps the beginning until metadata is called.
type prefix struct {
	from io.ReadCloser

	mu    sync.Mutex // the transport may still be reading when the response has arrived
	start []byte     // the first bytes, up to kept
	count int64      // how many bytes have been read
}

// kept is the number of bytes that a prefix keeps.
const kept = 256 << 10

// Read implements io.Reader.
func (b *prefix) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count += int64(n)
	b.start = append(b.start, p[:min(n, kept-len(b.start))]...)
	return n, err
}

// Close implements io.Closer.
func (b *prefix) Close() error { return b.from.Close() }

// metadata returns the metadata of the object in the body, and releases the bytes that were kept.
func (b *prefix) metadata() metadata {
	b.mu.Lock()
	defer b.mu.Unlock()
	m, _ := readMetadata(bytes.NewReader(b.start)) // after an error, m has as much as could be read
	b.start = nil
	return m
}

func (b *prefix) sent() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

// decompressed returns a reader of the plain text of a response whose body is read through a relay.
func decompressed(response *http.Response, through *relay) (io.Reader, error) {
	switch encoding := response.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return through, nil
	case "gzip":
		return &unzip{from: through}, nil
	default:
		return nil, fmt.Errorf("content encoding %q is not supported", encoding)
	}
}

// unzip decompresses consecutive gzip members. Unlike a [gzip.Reader], it returns all of a member before it waits for
// the next one, which may take long to arrive.
type unzip struct {
	from   *relay
	member *gzip.Reader // nil before the first member
	ended  bool         // member has been read to its end
}

// Read implements io.Reader.
func (u *unzip) Read(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		switch {
		case u.member == nil:
			u.member, err = gzip.NewReader(u.from)
		case u.ended:
			err = u.member.Reset(u.from)
		}
		if err != nil {
			return 0, err
		}
		u.member.Multistream(false)
		n, err = u.member.Read(p)
		if u.ended = errors.Is(err, io.EOF); u.ended {
			err = nil
		}
	}
	return n, err
}
