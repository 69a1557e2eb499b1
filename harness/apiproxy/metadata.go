package apiproxy

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// metadata is what the proxy reads of an object: nothing of its spec, status or data.
type metadata struct {
	kind            string
	name, namespace string
	uid             string
	resourceVersion string

	deleting   bool // it has a deletionTimestamp
	graceful   bool // its deletionGracePeriodSeconds is not 0
	finalizers int  // how many it has

	dryRun bool // it is a DeleteOptions with dryRun
}

// removed says whether the API server has removed the object: it is being deleted, with no grace period and no
// finalizers left.
func (m metadata) removed() bool { return m.deleting && !m.graceful && m.finalizers == 0 }

// fromJSON is the metadata of an object in JSON.
type fromJSON struct {
	Name, Namespace            string
	UID                        string
	ResourceVersion            string
	DeletionTimestamp          string
	DeletionGracePeriodSeconds int64
	Finalizers                 []string
}

func (f fromJSON) metadata(kind string) metadata {
	return metadata{kind: kind, name: f.Name, namespace: f.Namespace, uid: f.UID,
		resourceVersion: f.ResourceVersion, deleting: f.DeletionTimestamp != "",
		graceful: f.DeletionGracePeriodSeconds > 0, finalizers: len(f.Finalizers)}
}

// readers are used again for later objects.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 512) }}

var errNoObject = errors.New("not an object of the Kubernetes API")

// readMetadata reads the metadata of an object in JSON or protobuf, and no further than that. If the object is cut off,
// it returns what it has found and an error.
func readMetadata(r io.Reader) (metadata, error) {
	in := readers.Get().(*bufio.Reader)
	in.Reset(r)
	defer func() {
		in.Reset(nil)
		readers.Put(in)
	}()
	switch first, err := in.Peek(1); {
	case err != nil:
		return metadata{}, err
	case first[0] == '{':
		_, _ = in.ReadByte()
		return readJSON(in)
	default:
		return readProtobuf(in)
	}
}

// readJSON reads an object after its first brace. It stops after metadata and kind. Most objects begin with them, but a list of
// custom resources ends with its metadata. Only those two are parsed; of all else, it finds the end.
func readJSON(in *bufio.Reader) (metadata, error) {
	var kind string
	var meta fromJSON
	var dryRun []string
	hasMetadata := false
	text := make([]byte, 0, 512)
	read := func() (isLast bool, err error) { // one field
		if text, err = readJSONValue(in, text[:0]); err != nil {
			return false, err
		}
		var into any // nil if the field does not matter
		switch string(text) {
		case `"kind"`:
			into = &kind
		case `"metadata"`:
			into, hasMetadata = &meta, true
		case `"dryRun"`:
			into = &dryRun
		}
		if colon, err := readAfterSpace(in); err != nil || colon != ':' {
			return false, cmp.Or(err, errNoObject)
		}
		if into == nil {
			_, err = readJSONValue(in, nil)
		} else if text, err = readJSONValue(in, text[:0]); err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			return false, err
		}
		switch after, err := readAfterSpace(in); {
		case err != nil:
			return false, err
		case after == '}':
			return true, nil
		case after != ',':
			return false, errNoObject
		}
		return hasMetadata && kind != "", nil
	}
	var err error
	for isLast := false; !isLast && err == nil; {
		isLast, err = read()
	}
	m := meta.metadata(kind)
	m.dryRun = len(dryRun) > 0
	return m, err
}

// readJSONValue reads one JSON value, without the space before it, and appends it to text, unless that is nil. It does not check
// what is within the value.
func readJSONValue(in *bufio.Reader, text []byte) ([]byte, error) {
	b, err := readAfterSpace(in)
	depth, inString, escaped, isScalar := 0, false, false, false
	for first := true; err == nil; first = false {
		switch {
		case escaped:
			escaped = false
		case inString:
			inString, escaped = b != '"', b == '\\'
		case isScalar && (isSpace(b) || b == ',' || b == '}' || b == ']'):
			return text, in.UnreadByte()
		case b == '"':
			inString = true
		case b == '{', b == '[':
			depth++
		case b == '}', b == ']':
			depth--
		default:
			isScalar = isScalar || first
		}
		if text != nil {
			text = append(text, b)
		}
		if depth <= 0 && !inString && !isScalar {
			return text, nil
		}
		b, err = in.ReadByte()
	}
	return text, err
}

// readAfterSpace returns the next byte that is no space.
func readAfterSpace(in *bufio.Reader) (byte, error) {
	for {
		b, err := in.ReadByte()
		if err != nil || !isSpace(b) {
			return b, err
		}
	}
}

// An object in protobuf is four magic bytes and a runtime.Unknown, whose field raw is the object itself. The first field
// of the object is its metadata, if it has any. These are the field numbers in generated.proto.
const (
	magic = "k8s\x00"

	unknownTypeMeta = 1
	unknownRaw      = 2
	typeMetaKind    = 2
	objectMetadata  = 1
	listMetaVersion = 2

	metaName              = 1
	metaNamespace         = 3
	metaUID               = 5
	metaVersion           = 6
	metaDeletionTimestamp = 9
	metaGracePeriod       = 10
	metaFinalizers        = 14

	deleteOptionsDryRun = 5

	watchEventType   = 1
	watchEventObject = 2
	rawExtensionRaw  = 1
)

// enough is how many bytes of a field are read. All fields of metadata above come before managedFields, and the
// annotations before them are limited to 256 KiB.
const enough = 512 << 10

func readProtobuf(in *bufio.Reader) (m metadata, err error) {
	start := make([]byte, len(magic))
	if _, err := io.ReadFull(in, start); err != nil {
		return m, err
	}
	if string(start) != magic {
		return m, errNoObject
	}
	for {
		field, length, err := readTag(in)
		if err != nil {
			return m, err
		}
		if field == unknownRaw {
			break
		}
		value, err := readSome(in, length)
		if err != nil {
			return m, err
		}
		if field == unknownTypeMeta {
			each(value, func(field protowire.Number, value []byte, _ uint64) {
				if field == typeMetaKind {
					m.kind = string(value)
				}
			})
		}
	}
	if m.kind == "DeleteOptions" {
		rest, err := io.ReadAll(io.LimitReader(in, enough))
		each(rest, func(field protowire.Number, _ []byte, _ uint64) { m.dryRun = m.dryRun || field == deleteOptionsDryRun })
		return m, err
	}
	field, length, err := readTag(in)
	if err != nil || field != objectMetadata {
		return m, err
	}
	value, err := readSome(in, length)
	each(value, func(field protowire.Number, value []byte, number uint64) {
		if strings.HasSuffix(m.kind, "List") {
			if field == listMetaVersion {
				m.resourceVersion = string(value)
			}
			return
		}
		switch field {
		case metaName:
			m.name = string(value)
		case metaNamespace:
			m.namespace = string(value)
		case metaUID:
			m.uid = string(value)
		case metaVersion:
			m.resourceVersion = string(value)
		case metaDeletionTimestamp:
			m.deleting = true
		case metaGracePeriod:
			m.graceful = number > 0
		case metaFinalizers:
			m.finalizers++
		}
	})
	return m, err
}

// readTag reads the number and the length of a field that holds bytes.
func readTag(in *bufio.Reader) (protowire.Number, uint64, error) {
	tag, err := binary.ReadUvarint(in)
	if err != nil {
		return 0, 0, err
	}
	field, kind := protowire.DecodeTag(tag)
	if kind != protowire.BytesType {
		return 0, 0, errNoObject
	}
	length, err := binary.ReadUvarint(in)
	return field, length, err
}

// readSome reads the value of a field, or its beginning if it is longer than enough.
func readSome(in *bufio.Reader, length uint64) ([]byte, error) {
	value := make([]byte, min(length, enough))
	n, err := io.ReadFull(in, value)
	return value[:n], err
}

// each calls found for each field of a message, with its bytes or its number. It stops where the message is cut off.
func each(message []byte, found func(field protowire.Number, value []byte, number uint64)) {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(field, kind, message); n < 0 {
			return
		}
		switch kind {
		case protowire.BytesType:
			value, _ := protowire.ConsumeBytes(message)
			found(field, value, 0)
		case protowire.VarintType:
			number, _ := protowire.ConsumeVarint(message)
			found(field, nil, number)
		}
		message = message[n:]
	}
}

// frames is a stream of events.
type frames interface {
	io.Reader
	io.ByteReader
}

// maxFrame is the greatest size of an event. A stream with a larger one is not taken for events.
const maxFrame = 64 << 20

// readJSONFrame reads one JSON value, without the space before it, and returns it in frame, which it may grow.
func readJSONFrame(in frames, frame []byte) ([]byte, error) {
	frame = frame[:0]
	depth, inString, escaped := 0, false, false
	for len(frame) < maxFrame {
		b, err := in.ReadByte()
		if err != nil {
			return frame, err
		}
		if depth == 0 && isSpace(b) {
			continue
		}
		frame = append(frame, b)
		switch {
		case escaped:
			escaped = false
		case inString:
			inString, escaped = b != '"', b == '\\'
		case b == '"':
			inString = true
		case b == '{', b == '[':
			depth++
		case b == '}', b == ']':
			depth--
		}
		if depth == 0 {
			return frame, nil
		}
	}
	return frame, errNoObject
}

func isSpace(b byte) bool { return b == '\n' || b == ' ' || b == '\r' || b == '\t' }

// readProtobufFrame reads one message, after its length in four bytes, and returns it in frame, which it may grow.
func readProtobufFrame(in frames, frame []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > maxFrame {
		return nil, errNoObject
	}
	if int(length) > cap(frame) {
		frame = make([]byte, length)
	}
	frame = frame[:length]
	_, err := io.ReadFull(in, frame)
	return frame, err
}

func parseJSONEvent(frame []byte) (kind string, m metadata, err error) {
	var event struct {
		Type   string
		Object struct {
			Kind     string
			Metadata fromJSON
			Rows     []struct { // of a Table, which kubectl asks for
				Object struct{ Metadata fromJSON }
			}
		}
	}
	if err := json.Unmarshal(frame, &event); err != nil {
		return "", m, err
	}
	m = event.Object.Metadata.metadata(event.Object.Kind)
	if len(event.Object.Rows) == 1 {
		m = event.Object.Rows[0].Object.Metadata.metadata(event.Object.Kind)
	}
	return event.Type, m, nil
}

func parseProtobufEvent(frame []byte) (kind string, m metadata, err error) {
	each(frame, func(field protowire.Number, value []byte, _ uint64) {
		switch field {
		case watchEventType:
			kind = string(value)
		case watchEventObject:
			each(value, func(field protowire.Number, value []byte, _ uint64) {
				if field == rawExtensionRaw {
					m, err = readMetadata(bytes.NewReader(value))
				}
			})
		}
	})
	if kind == "" {
		err = errNoObject
	}
	return kind, m, err
}
