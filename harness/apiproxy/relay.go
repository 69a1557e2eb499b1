package apiproxy

import (
	"errors"
	"io"
)

// relay passes a body on, byte for byte, and lets somebody read it on the way.
//
// What has come is passed on when the reader has seen it all and wants more. So the reader knows what is
// in it before the client does, and nothing that has come waits for what has not.
type relay struct {
	from io.Reader
	pass func([]byte) error // does not keep its argument

	chunk    []byte // what the last read from from brought is in here
	unread   []byte // of it, what nobody has read; its tail
	unpassed []byte // of it, what has not been passed on; unread is its tail
	fromErr  error  // of the last read; sticky
	passErr  error  // sticky
}

func newRelay(from io.Reader, pass func([]byte) error) *relay {
	return &relay{from: from, pass: pass, chunk: make([]byte, 32<<10)}
}

// fill makes sure that there is something to read.
func (r *relay) fill() error {
	for len(r.unread) == 0 {
		if err := r.passOn(); err != nil {
			return err
		}
		if r.fromErr != nil {
			return r.fromErr
		}
		n, err := r.from.Read(r.chunk)
		r.fromErr = err
		r.unread, r.unpassed = r.chunk[:n], r.chunk[:n]
	}
	return nil
}

// Read implements io.Reader.
func (r *relay) Read(p []byte) (int, error) {
	if err := r.fill(); err != nil {
		return 0, err
	}
	n := copy(p, r.unread)
	r.unread = r.unread[n:]
	return n, nil
}

// ReadByte implements io.ByteReader, without which a decompressor reads further than it has to.
func (r *relay) ReadByte() (byte, error) {
	if err := r.fill(); err != nil {
		return 0, err
	}
	b := r.unread[0]
	r.unread = r.unread[1:]
	return b, nil
}

// skipSpace reads over spaces, as far as they have come.
func (r *relay) skipSpace() {
	for len(r.unread) > 0 && isSpace(r.unread[0]) {
		r.unread = r.unread[1:]
	}
}

// passOn passes on what has been read.
func (r *relay) passOn() error {
	n := len(r.unpassed) - len(r.unread)
	if n > 0 && r.passErr == nil {
		r.passErr = r.pass(r.unpassed[:n])
	}
	r.unpassed = r.unread
	return r.passErr
}

// finish passes on all that is left, up to the end, whether anybody has read it or not.
func (r *relay) finish() error {
	var err error
	for err == nil {
		r.unread = nil
		err = r.fill()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
