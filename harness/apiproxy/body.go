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

// prefix is a body on its way to the API server, of which the beginning is kept for a while.
type prefix struct {
	from io.ReadCloser

	mu    sync.Mutex // the transport may go on reading when the answer is there
	start []byte
	count int64
}

// kept is how much is kept of the body of a request.
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

// metadata returns what is known of what was sent, and forgets it.
func (b *prefix) metadata() metadata {
	b.mu.Lock()
	defer b.mu.Unlock()
	m, _ := readMetadata(bytes.NewReader(b.start)) // as much as there is
	b.start = nil
	return m
}

func (b *prefix) sent() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

// decompressed returns what is in a body that is read through a relay.
func decompressed(response *http.Response, through *relay) (io.Reader, error) {
	switch encoding := response.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return through, nil
	case "gzip":
		return &unzip{from: through}, nil
	default:
		return nil, fmt.Errorf("it is encoded as %s", encoding)
	}
}

// unzip decompresses gzip members, one after the other. Unlike a gzip.Reader, it returns the last of a
// member before it looks for the next one, which may be long in coming.
type unzip struct {
	from   *relay
	member *gzip.Reader // nil before the first
	ended  bool
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
