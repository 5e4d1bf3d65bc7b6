package schema

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// values is an index of one JSON text. It has 16 bytes for each value and each
// member name, in the order of the text. A position in the index stands for a
// value. The elements of an array follow the array. The members of an object
// follow the object, each as its name and its value.
type values struct {
	text []byte
	all  []value
}

type value struct {
	start, end uint32 // where the value is in the text
	next       uint32 // the position after the value and everything inside it
	kind       jsontext.Kind
}

// index reads one JSON text. It refuses repeated names at any depth.
func index(text []byte, b *budget) (values, error) {
	if int64(len(text)) > math.MaxUint32 {
		return values{}, ErrTooCostly
	}
	v := values{text: text, all: make([]value, 0, min(countValues(text), maxSteps))}
	// The decoder would need much memory and time to compare the names of a large object.
	tokens := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	i := indexer{values: &v, tokens: tokens}
	for begun := false; !begun || len(i.open) > 0; begun = true {
		if !b.step(1) {
			return v, b.stopped
		}
		if err := i.next(); err != nil {
			return v, fmt.Errorf("schema: %w", err)
		}
	}
	if _, err := tokens.ReadToken(); err != io.EOF {
		return v, fmt.Errorf("schema: data after the value")
	}
	return v, nil
}

// An indexer adds what a decoder reads to an index.
type indexer struct {
	*values
	tokens *jsontext.Decoder
	names  nameTable
	open   []int // the arrays and objects that have not ended
}

// next reads the begin or the end of an array or object, or any other value whole.
func (i *indexer) next() error {
	kind := i.tokens.PeekKind()
	switch kind {
	case '{', '[', '}', ']':
		if _, err := i.tokens.ReadToken(); err != nil {
			return err
		}
		if kind == '}' || kind == ']' {
			return i.end()
		}
		i.open = append(i.open, len(i.all))
		i.all = append(i.all, value{start: uint32(i.tokens.InputOffset() - 1), kind: kind})
	default:
		raw, err := i.tokens.ReadValue()
		if err != nil {
			return err
		}
		end := uint32(i.tokens.InputOffset())
		i.all = append(i.all, value{end - uint32(len(raw)), end, uint32(len(i.all) + 1), kind})
	}
	return nil
}

// end notes where the array or object ends that was begun last.
func (i *indexer) end() error {
	at := i.open[len(i.open)-1]
	i.open = i.open[:len(i.open)-1]
	i.all[at].end, i.all[at].next = uint32(i.tokens.InputOffset()), uint32(len(i.all))
	if name, repeated := i.names.repeated(i.values, at); repeated {
		return fmt.Errorf("%w: %.100q", jsontext.ErrDuplicateName, name)
	}
	return nil
}

// A nameTable finds repeated names of an object. It is a hash table of the positions of
// names, and is used again for the next object.
type nameTable struct {
	seed  maphash.Seed
	slots []uint32 // 0: empty; no name has the position 0
}

// repeated returns a name that the object or array has twice, if there is one.
func (t *nameTable) repeated(v *values, at int) (string, bool) {
	if v.all[at].kind != '{' {
		return "", false
	}
	count := v.count(at)
	if count < 2 {
		return "", false
	}
	if t.slots == nil {
		t.seed = maphash.MakeSeed()
	}
	size := 1 << bits.Len(uint(2*count))
	if size > len(t.slots) {
		t.slots = make([]uint32, size)
	}
	slots := t.slots[:size]
	clear(slots)
	for i := range v.inside(at) {
		name := v.string(i)
		slot := int(maphash.Bytes(t.seed, name)) & (size - 1)
		for ; slots[slot] != 0; slot = (slot + 1) & (size - 1) {
			if bytes.Equal(v.string(int(slots[slot])), name) {
				return string(name), true
			}
		}
		slots[slot] = uint32(i)
	}
	return "", false
}

func (v *values) raw(at int) []byte { return v.text[v.all[at].start:v.all[at].end] }

// size returns how many values and names there are inside a value.
func (v *values) size(at int) int { return int(v.all[at].next) - at }

// inside yields the positions of the elements of an array, or of the names of an object: a member's value
// is right behind its name.
func (v *values) inside(at int) iter.Seq[int] {
	return func(yield func(int) bool) {
		value := 0
		if v.all[at].kind == '{' {
			value = 1
		}
		for i := at + 1; i < int(v.all[at].next) && yield(i); i = int(v.all[i+value].next) {
		}
	}
}

// count returns how many elements or members an array or object has.
func (v *values) count(at int) (n int) {
	for range v.inside(at) {
		n++
	}
	return n
}

// has reports whether an object has a member.
func (v *values) has(at int, name string) bool {
	for i := range v.inside(at) {
		if string(v.string(i)) == name {
			return true
		}
	}
	return false
}

// string returns the text of a string, unquoted.
func (v *values) string(at int) []byte {
	raw := v.raw(at)
	if inside := raw[1 : len(raw)-1]; bytes.IndexByte(inside, '\\') < 0 && utf8.Valid(inside) {
		return inside
	}
	text, _ := jsontext.AppendUnquote(nil, raw) // the only possible error says that U+FFFD replaced invalid UTF-8
	return text
}

// number returns the value of a number. It is infinite if it is too large for a
// float64.
func (v *values) number(at int) float64 {
	f, _ := strconv.ParseFloat(string(v.raw(at)), 64)
	return f
}

// hash returns equal numbers for equal values, whatever the order of their
// members.
func (v *values) hash(seed maphash.Seed, at int) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	one := v.all[at]
	h.WriteByte(byte(one.kind))
	var word [8]byte
	switch one.kind {
	case '"':
		h.Write(v.string(at))
	case '0':
		number := v.number(at) + 0 // the sum makes -0 equal to 0
		binary.LittleEndian.PutUint64(word[:], math.Float64bits(number))
		h.Write(word[:])
	case '[':
		for i := range v.inside(at) {
			binary.LittleEndian.PutUint64(word[:], v.hash(seed, i))
			h.Write(word[:])
		}
	case '{':
		var sum uint64
		for i := range v.inside(at) {
			sum += v.hash(seed, i) * (v.hash(seed, i+1) | 1)
		}
		binary.LittleEndian.PutUint64(word[:], sum)
		h.Write(word[:])
	}
	return h.Sum64()
}

// equal reports whether two values are equal as JSON Schema defines it. The
// second value may belong to another text.
func (v *values) equal(at int, other *values, there int) bool {
	a, b := v.all[at], other.all[there]
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case '"':
		return bytes.Equal(v.string(at), other.string(there))
	case '0':
		return v.number(at) == other.number(there)
	case '[':
		i, j := at+1, there+1
		for i < int(a.next) && j < int(b.next) && v.equal(i, other, j) {
			i, j = int(v.all[i].next), int(other.all[j].next)
		}
		return i == int(a.next) && j == int(b.next)
	case '{':
		return v.count(at) == other.count(there) && v.sameMembers(at, other, there)
	}
	return true
}

// sameMembers reports whether each member is in the other object, too.
func (v *values) sameMembers(at int, other *values, there int) bool {
	members := make(map[string]int)
	for j := range other.inside(there) {
		members[string(other.string(j))] = j + 1
	}
	for i := range v.inside(at) {
		if j, ok := members[string(v.string(i))]; !ok || !v.equal(i+1, other, j) {
			return false
		}
	}
	return true
}

// path returns where a value is in its text, as a JSON Pointer. The path of a name is that of its member.
func (v *values) path(at int) string {
	var path strings.Builder
	for here := 0; here != at; {
		isObject, n := v.all[here].kind == '{', 0
		for i := range v.inside(here) {
			switch {
			case isObject && at < int(v.all[i+1].next):
				fmt.Fprintf(&path, "/%.100s", strings.NewReplacer("~", "~0", "/", "~1").Replace(string(v.string(i))))
				here, at = i+1, max(at, i+1)
			case !isObject && at < int(v.all[i].next):
				fmt.Fprintf(&path, "/%d", n)
				here = i
			default:
				n++
				continue
			}
			break
		}
	}
	return path.String()
}
