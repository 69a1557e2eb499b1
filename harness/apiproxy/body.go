package apiproxy

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// kept is the number of bytes of a request's body in which its object's metadata is looked for.
const kept = 256 << 10

// body is the body of a request on its way to the API server. It counts the bytes that have been read.
type body struct {
	io.Reader
	io.Closer
	count atomic.Int64 // the transport may still be reading when the response has arrived
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.count.Add(int64(n))
	return n, err
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
