package streamable

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"
)

// A frame has the layout that its comment describes, since other versions read it. It is found only as a whole: without one of
// its bytes, or with another one in it, it is damaged, or was ended.
//
// Guarantees: G-0080.8
func TestFormatOfAFrame(t *testing.T) {
	name, at := sessionName([]byte(strings.Repeat("n", 32))), time.UnixMilli(0x0102030405060708)
	for _, sealed := range [][]byte{nil, []byte("sealed"), bytes.Repeat([]byte("s"), maxFrameBody-bodyHead)} {
		body := slices.Concat([]byte(strings.Repeat("n", 32)), []byte{1, 2, 3, 4, 5, 6, 7, 8}, sealed)
		want := append([]byte("\xb0wS\xff\x01"), binary.BigEndian.AppendUint32(nil, uint32(len(body)))...)
		want = binary.BigEndian.AppendUint32(want, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
		want = append(want, body...)
		frame, ok := frameOf(aboutOf(name, at), sealed)
		if !ok || !bytes.Equal(frame, want) {
			t.Fatalf("a record of %d bytes: got the frame %.60q, %t, want %.60q", len(sealed), frame, ok, want)
		}
		for behind := range 2 { // whatever comes behind it
			f, checked, err := frameAt(append(slices.Clone(frame), "more"[:4*behind]...))
			if err != nil || checked != 0 || !f.live || f.name != name || !f.at.Equal(at) || f.size() != len(frame) || !bytes.Equal(f.about(), body[:40]) || !bytes.Equal(f.sealed(), sealed) {
				t.Errorf("a record of %d bytes: got %+v, %d, %v", len(sealed), f.live, checked, err)
			}
		}
		if len(sealed) > 100 {
			continue // the rest is the same, and takes long
		}
		for n := range frame {
			if _, checked, err := frameAt(frame[:n]); err != errDamaged || checked != 0 {
				t.Errorf("the first %d of %d bytes: got %d, %v, want %v", n, len(frame), checked, err, errDamaged)
			}
			other := slices.Clone(frame)
			other[n] ^= 0x10
			f, checked, err := frameAt(other)
			switch {
			case n == 4: // the state
				if err != nil || f.live || f.name != name {
					t.Errorf("another state: got %+v, %v, want a frame that is dead", f.live, err)
				}
			case n < 9: // the mark and the length
				if err != errDamaged || n < 4 && checked != 0 {
					t.Errorf("byte %d is another: got %d, %v, want %v", n, checked, err, errDamaged)
				}
			case err != errDamaged || checked != len(body):
				t.Errorf("byte %d is another: got %d, %v, want %d and %v", n, checked, err, len(body), errDamaged)
			}
		}
	}
	if frame, ok := frameOf(aboutOf(name, at), make([]byte, maxFrameBody-bodyHead+1)); ok {
		t.Errorf("a record that is too long: got a frame of %d bytes, want none", len(frame))
	}
	for _, length := range []int{0, bodyHead - 1, maxFrameBody + 1, 1<<32 - 1} { // with a checksum that is right
		b := make([]byte, frameHead+2*maxFrameBody)
		copy(b, "\xb0wS\xff\x01")
		binary.BigEndian.PutUint32(b[5:], uint32(length))
		binary.BigEndian.PutUint32(b[9:], checksumOf(b[frameHead:min(frameHead+length, len(b))]))
		if _, checked, err := frameAt(b); err != errDamaged || checked != 0 {
			t.Errorf("a length of %d: got %d, %v, want %v", length, checked, err, errDamaged)
		}
	}
}

// After damage, a reader goes on at the next mark, or where one may begin that is not whole yet. It always goes on.
func TestTheNextMark(t *testing.T) {
	for text, want := range map[string]int{
		"x":                            1,
		"xy":                           1,
		"xyz":                          1,
		"xyzu":                         1,
		"xyzuv":                        2,
		"xyzuvw":                       3,
		frameMark:                      1,
		"x" + frameMark:                1,
		frameMark + frameMark:          4,
		"xyz" + frameMark + "abc":      3,
		"xyzuvw" + frameMark[:3]:       6,
		"xyzuvw" + frameMark[:3] + "-": 7,
	} {
		if got := nextMark([]byte(text)); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

// A record has the bytes that other versions read, and is read only as a whole and without anything behind it.
//
// Guarantees: G-0080.8
func TestFormatOfARecord(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, test := range []struct {
		record SessionRecord
		want   string
	}{
		{SessionRecord{}, "\x01\x00\x00\x00\x00\x00"},
		{SessionRecord{Identity: "ada", Initialize: []byte("{}"), Version: "v", State: []byte{7}, Streams: 5}, "\x01\x03ada\x02{}\x01v\x01\x07\x05"},
		{SessionRecord{Identity: long, Streams: 300}, "\x01\xc8\x01" + long + "\x00\x00\x00\xac\x02"},
	} {
		b := encodeSessionRecord(test.record)
		if string(b) != test.want {
			t.Errorf("%+v: got %q, want %q", test.record, b, test.want)
		}
		r, err := decodeSessionRecord(b)
		if err != nil || r.Identity != test.record.Identity || !bytes.Equal(r.Initialize, test.record.Initialize) || r.Version != test.record.Version || !bytes.Equal(r.State, test.record.State) || r.Streams != test.record.Streams {
			t.Errorf("%q: got %+v, %v, want %+v", b, r, err, test.record)
		}
		for n := range b {
			if r, err := decodeSessionRecord(b[:n]); err != errRecord {
				t.Errorf("the first %d of %d bytes: got %+v, %v, want %v", n, len(b), r, err, errRecord)
			}
		}
		for what, other := range map[string][]byte{"a byte more": append(slices.Clone(b), 0), "another version": append([]byte{2}, b[1:]...)} {
			if r, err := decodeSessionRecord(other); err != errRecord {
				t.Errorf("%s: got %+v, %v, want %v", what, r, err, errRecord)
			}
		}
		clear(b) // the record keeps none of the memory
		if !bytes.Equal(r.Initialize, test.record.Initialize) || !bytes.Equal(r.State, test.record.State) {
			t.Errorf("the record has changed to %+v", r)
		}
	}
	for _, length := range []uint64{4, 5, 1 << 31, 1<<64 - 1} { // of the first field, in a record of three more bytes
		if r, err := decodeSessionRecord(append(binary.AppendUvarint([]byte{1}, length), 0, 0, 0)); err != errRecord {
			t.Errorf("a field of %d bytes: got %+v, %v, want %v", length, r, err, errRecord)
		}
	}
}
