// Package scan reads JSON text in one pass, several times as fast as a parser that
// can explain what is wrong. It says yes only to text that surely is valid. What it
// is not sure of, the caller gives to such a parser: rare forms as well as faults
// (ADR-0056).
//
// It holds values only: no goroutine, no memory of its own.
package scan

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// Deepest is how many objects and arrays may be open at once in a text that this
// package is sure of.
const Deepest = 64

// mostNames is how many members the open objects of a text may have together, where
// repeated names are refused.
const mostNames = 64

// A Text is a JSON text that is being read. Once it is not sure of something, it has
// failed for good: all that is called after that fails, or does nothing.
type Text struct {
	all    []byte
	at     int  // what was read ends here
	failed bool // it is not sure
	wide   bool // there may be characters beyond ASCII

	spaced  bool // there is white space outside of strings
	escaped bool // there are escapes other than the short ones that encoders use

	depth  int // how many objects and arrays may be opened within the open ones
	values int // read so far

	unique bool  // no object has a name twice
	names  names // of the open objects, if that is asked
}

// names are where the names of the open objects are, in the order of the text. They
// are part of the Text, so that they need no memory of their own.
type names struct {
	open int
	all  [mostNames]span
}

type span struct{ start, end uint32 }

// Of begins to read a text in which objects may repeat names.
func Of(text []byte) Text { return Text{all: text, depth: Deepest} }

// Unique begins to read a text. It is not sure of objects that repeat a name, or have
// many members, or names with an escape.
func Unique(text []byte) Text {
	return Text{all: text, depth: Deepest, unique: true, failed: uint64(len(text)) > 1<<32-1}
}

// Limit bounds how many objects and arrays may be open at once. The bound is never
// above Deepest.
func (t *Text) Limit(depth int) { t.depth = min(depth, Deepest) }

// Values is how many values were read: objects, arrays, and what is in them. Names do
// not count.
func (t *Text) Values() int { return t.values }

// Fail says that the caller is not sure.
func (t *Text) Fail() { t.failed = true }

// End reads to the end of the text, and reports whether all of it is JSON, in UTF-8.
func (t *Text) End() bool {
	t.space()
	return !t.failed && t.at == len(t.all) && (!t.wide || utf8.Valid(t.all))
}

// IsCompact reports whether what was read is as encoders write it: without white space,
// and with no escape but \" \\ \b \f \n \r and \t.
func (t *Text) IsCompact() bool { return !t.spaced && !t.escaped }

// Kind is the first character of the next value: one of { [ " t f n, and 0 for every
// number. It is a space if there is no value.
func (t *Text) Kind() byte {
	t.space()
	if t.failed || t.at == len(t.all) {
		return ' '
	}
	switch c := t.all[t.at]; c {
	case '{', '[', '"', 't', 'f', 'n':
		return c
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return '0'
	default:
		return ' '
	}
}

// Value reads the next value, and returns its text: a part of the whole, without room
// to grow. It returns nil if it is not sure.
func (t *Text) Value() []byte {
	t.space()
	start := t.at
	t.skip()
	if t.failed {
		return nil
	}
	return t.all[start:t.at:t.at]
}

// skip reads a value that begins here.
func (t *Text) skip() {
	if t.failed || t.at == len(t.all) {
		t.failed = true
		return
	}
	switch t.all[t.at] {
	case '"':
		t.values++
		t.quoted()
	case '{':
		outside := t.names.open
		for more := t.enter('{', '}'); more; more = t.another('}') {
			t.name(outside)
			t.space()
			t.skip()
		}
		t.names.open = outside
	case '[':
		for more := t.enter('[', ']'); more; more = t.another(']') {
			t.skip()
		}
	case 't':
		t.literal("true")
	case 'f':
		t.literal("false")
	case 'n':
		t.literal("null")
	default:
		t.values++
		t.number()
	}
}

// Members reads an object. For each member it calls yield with the name, as it stands
// between its quotes, and yield reads the value. It fails if yield returns false.
func (t *Text) Members(yield func(name []byte) bool) {
	outside := t.names.open
	for more := t.enter('{', '}'); more; more = t.another('}') {
		name := t.name(outside)
		if t.failed || !yield(name) {
			t.failed = true
			return
		}
	}
	t.names.open = outside
}

// Elements reads an array. For each element it calls yield, which reads it. It fails
// if yield returns false.
func (t *Text) Elements(yield func() bool) {
	for more := t.enter('[', ']'); more; more = t.another(']') {
		if !yield() {
			t.failed = true
			return
		}
	}
}

// enter opens an object or an array, and reports whether anything is in it.
func (t *Text) enter(opening, closing byte) (more bool) {
	if t.space(); !t.sign(opening) || t.depth == 0 {
		t.failed = true
		return false
	}
	t.depth--
	t.values++
	if t.space(); t.sign(closing) {
		t.depth++
		return false
	}
	return true
}

// another reads what follows an element or a member, and reports whether one more does.
func (t *Text) another(closing byte) (more bool) {
	t.space()
	if t.failed {
		return false
	}
	if t.sign(',') {
		t.space()
		return true
	}
	t.failed = !t.sign(closing)
	t.depth++
	return false
}

// name reads the name of a member, and the colon. The names of its object begin at a
// place.
func (t *Text) name(first int) []byte {
	start := t.at
	escaped := t.quoted()
	if t.failed {
		return nil
	}
	end := t.at - 1
	if t.unique && (escaped || !t.names.add(t.all, span{uint32(start + 1), uint32(end)}, first)) {
		t.failed = true
	}
	if t.space(); !t.sign(':') {
		t.failed = true
	}
	return t.all[start+1 : end]
}

// sign reads one character, if it is there.
func (t *Text) sign(c byte) bool {
	if t.at < len(t.all) && t.all[t.at] == c {
		t.at++
		return true
	}
	return false
}

// space reads white space.
func (t *Text) space() {
	if t.at < len(t.all) && t.all[t.at] <= ' ' {
		t.spaces()
	}
}

func (t *Text) spaces() {
	for t.at < len(t.all) {
		switch t.all[t.at] {
		case ' ', '\t', '\n', '\r':
			t.at++
			t.spaced = true
		default:
			return
		}
	}
}

// add remembers the name of a member of an object whose first name has a place. It
// reports false for a repeated name, and one too many.
func (n *names) add(text []byte, name span, first int) bool {
	added := text[name.start:name.end]
	if n.open == mostNames {
		return false
	}
	for _, other := range n.all[first:n.open] {
		if other.end-other.start == name.end-name.start && string(text[other.start:other.end]) == string(added) {
			return false
		}
	}
	n.all[n.open] = name
	n.open++
	return true
}

func (t *Text) literal(text string) {
	t.values++
	if end := t.at + len(text); end <= len(t.all) && string(t.all[t.at:end]) == text {
		t.at = end
		return
	}
	t.failed = true
}

// number reads a number: RFC 8259, section 6.
func (t *Text) number() {
	t.sign('-')
	if !t.sign('0') && t.digits() == 0 {
		t.failed = true
	}
	if t.sign('.') && t.digits() == 0 {
		t.failed = true
	}
	if t.sign('e') || t.sign('E') {
		if !t.sign('+') {
			t.sign('-')
		}
		if t.digits() == 0 {
			t.failed = true
		}
	}
}

func (t *Text) digits() (n int) {
	for t.at < len(t.all) && '0' <= t.all[t.at] && t.all[t.at] <= '9' {
		t.at++
		n++
	}
	return n
}

// quoted reads a string, and reports whether it has escapes.
func (t *Text) quoted() (escaped bool) {
	if !t.sign('"') {
		t.failed = true
		return false
	}
	for {
		n, wide := plain(t.all[t.at:])
		t.at += n
		t.wide = t.wide || wide
		switch {
		case t.sign('"'):
			return escaped
		case t.sign('\\') && t.escape():
			escaped = true
		default: // the text ends, a control character, or no escape
			t.failed = true
			return escaped
		}
	}
}

// escape reads what follows a backslash.
func (t *Text) escape() bool {
	if t.at == len(t.all) {
		return false
	}
	c := t.all[t.at]
	t.at++
	switch c {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return true
	case '/':
		t.escaped = true
		return true
	case 'u':
		t.escaped = true
		for range 4 {
			if t.at == len(t.all) || !isHex(t.all[t.at]) {
				return false
			}
			t.at++
		}
		return true
	default:
		return false
	}
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// The bits of a word of eight bytes: the lowest of each byte, and the highest.
const (
	lowest  = 0x0101010101010101
	highest = 0x8080808080808080
)

// plain is how many bytes of a text are before the first quote, backslash or control
// character. Wide says that some of these eight bytes or those before are beyond ASCII.
func plain(text []byte) (n int, wide bool) {
	var high uint64
	for ; n+8 <= len(text); n += 8 {
		word := binary.LittleEndian.Uint64(text[n:])
		high |= word & highest
		if stops := stopsIn(word); stops != 0 {
			return n + bits.TrailingZeros64(stops)/8, high != 0
		}
		for ; n >= 16 && n+40 <= len(text); n += 32 { // a longer text: four words at once take half the time
			a, b := binary.LittleEndian.Uint64(text[n+8:]), binary.LittleEndian.Uint64(text[n+16:])
			c, d := binary.LittleEndian.Uint64(text[n+24:]), binary.LittleEndian.Uint64(text[n+32:])
			if stopsIn(a)|stopsIn(b)|stopsIn(c)|stopsIn(d) != 0 {
				break
			}
			high |= (a | b | c | d) & highest
		}
	}
	for ; n < len(text); n++ {
		c := text[n]
		high |= uint64(c & 0x80)
		if c < ' ' || c == '"' || c == '\\' {
			break
		}
	}
	return n, high != 0
}

// stopsIn marks the first byte of a word that is a quote, a backslash or a control
// character by its highest bit. Bytes behind the first may be marked without reason.
func stopsIn(word uint64) uint64 {
	const control = lowest * 0x02 // with it a quote becomes a space, and so control characters and quotes are what is not above a space
	return (((word ^ control) - lowest*(' '+1)) | ((word ^ lowest*'\\') - lowest)) &^ word & highest
}
