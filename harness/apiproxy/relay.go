package apiproxy

import (
	"errors"
	"io"
	"sync"
)

// relay forwards a body byte for byte, and is a reader of the same bytes.
//
// Bytes are forwarded when the reader has read them all and asks for more. So the reader sees bytes before the client
// does, and no byte that has arrived waits for one that has not.
type relay struct {
	from io.Reader
	pass func([]byte) error // forwards bytes; must not keep its argument

	chunk    *chunk // buffer of the last read from from; nil when the relay has ended
	unread   []byte // the part of chunk that the reader has not read; always a tail of unpassed
	unpassed []byte // the part of chunk that has not been forwarded
	fromErr  error  // the first error of from
	passErr  error  // the first error of pass
}

type chunk [32 << 10]byte

// chunks are used again by later relays.
var chunks = sync.Pool{New: func() any { return new(chunk) }}

func newRelay(from io.Reader, pass func([]byte) error) *relay {
	return &relay{from: from, pass: pass, chunk: chunks.Get().(*chunk)}
}

// fill reads more bytes if the reader has read all; before that, it forwards them.
func (r *relay) fill() error {
	for len(r.unread) == 0 {
		if err := r.passOn(); err != nil {
			return err
		}
		if r.fromErr != nil {
			return r.fromErr
		}
		n, err := r.from.Read(r.chunk[:])
		r.fromErr = err
		r.unread, r.unpassed = r.chunk[:n], r.chunk[:n]
	}
	return nil
}

// Read implements [io.Reader].
func (r *relay) Read(p []byte) (int, error) {
	if err := r.fill(); err != nil {
		return 0, err
	}
	n := copy(p, r.unread)
	r.unread = r.unread[n:]
	return n, nil
}

// ReadByte implements [io.ByteReader], without which a decompressor would read ahead.
func (r *relay) ReadByte() (byte, error) {
	if err := r.fill(); err != nil {
		return 0, err
	}
	b := r.unread[0]
	r.unread = r.unread[1:]
	return b, nil
}

// skipSpace skips the white space that has arrived.
func (r *relay) skipSpace() {
	for len(r.unread) > 0 && isSpace(r.unread[0]) {
		r.unread = r.unread[1:]
	}
}

// passOn forwards what has been read.
func (r *relay) passOn() error {
	n := len(r.unpassed) - len(r.unread)
	if n > 0 && r.passErr == nil {
		r.passErr = r.pass(r.unpassed[:n])
	}
	r.unpassed = r.unread
	return r.passErr
}

// finish forwards the rest of the body, whether it has been read or not. The relay must not be used after it.
func (r *relay) finish() error {
	var err error
	for err == nil {
		r.unread = nil
		err = r.fill()
	}
	if !errors.Is(err, io.EOF) {
		return err // net/http may still be sending what is in the chunk, although it has returned an error
	}
	chunks.Put(r.chunk)
	r.chunk, r.unread, r.unpassed = nil, nil, nil
	return nil
}
