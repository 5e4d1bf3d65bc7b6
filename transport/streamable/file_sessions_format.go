//bowline:pure

package streamable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"
)

// The file of a FileSessions begins with sessionsMagic. After that it consists of frames:
//
//	mark     4 bytes  frameMark, by which a reader finds the next frame after damage
//	state    1        frameLive, or frameDead once the frame was replaced or its session has ended
//	length   4        of the body
//	checksum 4        CRC-32C of the body
//	body              name (32), time of the Save in ms since 1970 (8), sealed record
//
// The name is the SHA-256 of the session id. Name and time are authenticated with the record.
// A state is changed in place; everything else is only appended. Integers are big-endian.
const (
	sessionsMagic = "bowline sessions 1\n"
	frameMark     = "\xb0wS\xff"
	frameHead     = len(frameMark) + 1 + 4 + 4
	frameState    = len(frameMark) // the offset of the state
	frameLive     = 1
	frameDead     = 0
	bodyHead      = len(sessionName{}) + 8
	maxFrameBody  = 64 << 10 // the maximum length of a body, in bytes
)

// A sessionName is the SHA-256 of a session id.
type sessionName [32]byte

// A sessionFrame is a frame of the file. Its body refers to the memory it was read from.
type sessionFrame struct {
	live bool
	name sessionName
	at   time.Time
	body []byte
}

func (f *sessionFrame) size() int { return frameHead + len(f.body) }

// about returns what is authenticated with the record.
func (f *sessionFrame) about() []byte { return f.body[:bodyHead] }

func (f *sessionFrame) sealed() []byte { return f.body[bodyHead:] }

// aboutOf returns what is authenticated with a record.
func aboutOf(name sessionName, at time.Time) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, bodyHead), name[:]...), uint64(at.UnixMilli()))
}

// frameOf returns a frame that is live, and false if the record is too long for one.
func frameOf(about, sealed []byte) ([]byte, bool) {
	length := len(about) + len(sealed)
	if length > maxFrameBody {
		return nil, false
	}
	b := append(make([]byte, 0, frameHead+length), frameMark...)
	b = binary.BigEndian.AppendUint32(append(b, frameLive), uint32(length))
	b = binary.BigEndian.AppendUint32(b, 0) // the checksum follows
	b = append(append(b, about...), sealed...)
	binary.BigEndian.PutUint32(b[frameHead-4:], checksumOf(b[frameHead:]))
	return b, true
}

func checksumOf(body []byte) uint32 { return crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) }

// errDamaged says that there is no whole frame at a place.
var errDamaged = errors.New("there is no whole record")

// frameAt returns the frame at the beginning of b, which has at least frameHead+maxFrameBody
// bytes unless the file ends before. Its error is errDamaged; checked is then how many bytes
// were read in vain.
func frameAt(b []byte) (f sessionFrame, checked int, err error) {
	if len(b) < frameHead+bodyHead || string(b[:len(frameMark)]) != frameMark {
		return f, 0, errDamaged
	}
	length := int(binary.BigEndian.Uint32(b[frameState+1:]))
	if length < bodyHead || length > maxFrameBody || length > len(b)-frameHead {
		return f, 0, errDamaged
	}
	f.body = b[frameHead : frameHead+length]
	if checksumOf(f.body) != binary.BigEndian.Uint32(b[frameHead-4:]) {
		return f, length, errDamaged
	}
	f.live = b[frameState] == frameLive
	f.name = sessionName(f.body[:len(f.name)])
	f.at = time.UnixMilli(int64(binary.BigEndian.Uint64(f.body[len(f.name):])))
	return f, 0, nil
}

// nextMark returns where the next frame may begin in b, after its first byte. If there is no
// mark, that is where a mark may begin that continues behind b.
func nextMark(b []byte) int {
	if i := bytes.Index(b[1:], []byte(frameMark)); i >= 0 {
		return 1 + i
	}
	return max(1, len(b)-len(frameMark)+1)
}

// recordVersion is the first byte of a record, before it is sealed.
const recordVersion = 1

// encodeSessionRecord returns a record as bytes. Text of the client is not parsed.
func encodeSessionRecord(r SessionRecord) []byte {
	b := append(make([]byte, 0, 64+len(r.Identity)+len(r.Initialize)+len(r.Version)+len(r.State)), recordVersion)
	for _, field := range [][]byte{[]byte(r.Identity), r.Initialize, []byte(r.Version), r.State} {
		b = append(binary.AppendUvarint(b, uint64(len(field))), field...)
	}
	return binary.AppendUvarint(b, r.Streams)
}

// errRecord says that a record was written by another version, or is damaged.
var errRecord = errors.New("the record is of another version")

// decodeSessionRecord reads what encodeSessionRecord has returned.
func decodeSessionRecord(b []byte) (r SessionRecord, err error) {
	if len(b) == 0 || b[0] != recordVersion {
		return r, errRecord
	}
	b = b[1:]
	var fields [4][]byte
	for i := range fields {
		length, n := binary.Uvarint(b)
		if n <= 0 || length > uint64(len(b)-n) {
			return r, errRecord
		}
		fields[i], b = b[n:n+int(length)], b[n+int(length):]
	}
	streams, n := binary.Uvarint(b)
	if n <= 0 || n != len(b) {
		return r, errRecord
	}
	return SessionRecord{
		Identity: string(fields[0]), Initialize: bytes.Clone(fields[1]), Version: string(fields[2]),
		State: bytes.Clone(fields[3]), Streams: streams,
	}, nil
}
