// Package scan reads JSON text in one pass, several times as fast as a full parser. It
// accepts only text that is certainly valid. If it is not sure, it gives up, and the
// caller uses a full parser, which can also explain what is wrong. That happens for
// rare forms of valid text, too (ADR-0056).
//
// The package has no goroutine, and its types need no allocation.
package scan

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// Deepest is the maximum depth of nested objects and arrays. This package gives
// up on a deeper text.
const Deepest = 64

// mostNames is how many members the open objects may have together, if repeated
// names are refused.
const mostNames = 64

// A Text is a JSON text that is being read. If the Text is not sure whether
// something is valid, it fails. After that, every method fails or does nothing.
type Text struct {
	all    []byte
	at     int  // the position after what was read
	failed bool // the Text has failed
	wide   bool // there may be characters beyond ASCII

	spaced  bool // the text has white space outside of strings
	escaped bool // the text has escapes other than the short ones that encoders use

	inside bool // the brace of the outermost object is missing

	depth   int // how many more levels of objects and arrays are allowed
	values  int // how many values were read so far
	objects int // how many of these are objects with members

	unique bool  // refuse objects that repeat a name
	names  names // the names of the open objects, if unique is set
}

// names contains the positions of the names of the open objects, in the order of
// the text. It is part of the Text, so it needs no separate allocation.
type names struct {
	open int
	all  [mostNames]span
}

type span struct{ start, end uint32 }

// Of begins to read a text in which objects may repeat names.
func Of(text []byte) Text { return Text{all: text, depth: Deepest} }

// Unique begins to read a text in which no object may repeat a name. It also gives up
// on objects with many members, and on names with an escape.
func Unique(text []byte) Text {
	return Text{all: text, depth: Deepest, unique: true, failed: uint64(len(text)) > 1<<32-1}
}

// Inside says whether the text is an object whose opening brace is missing.
func (t *Text) Inside(missing bool) { t.inside = missing }

// Limit bounds how many objects and arrays may be open at once. The bound is never
// above Deepest.
func (t *Text) Limit(depth int) { t.depth = min(depth, Deepest) }

// Size returns the length of the whole text.
func (t *Text) Size() int { return len(t.all) }

// Starts reports whether the next value begins with these bytes.
func (t *Text) Starts(with string) bool {
	t.space()
	return len(t.all)-t.at >= len(with) && string(t.all[t.at:t.at+len(with)]) == with
}

// Values returns how many values were read: objects, arrays, and the values in them.
// Names do not count.
func (t *Text) Values() int { return t.values }

// Objects returns how many objects with members were read.
func (t *Text) Objects() int { return t.objects }

// Fail makes the Text fail, because the caller is not sure.
func (t *Text) Fail() { t.failed = true }

// End reads to the end of the text, and reports whether the whole text is valid JSON
// and UTF-8.
func (t *Text) End() bool {
	t.space()
	return !t.failed && t.at == len(t.all) && (!t.wide || utf8.Valid(t.all))
}

// IsCompact reports whether the part that was read has the form that encoders write: no
// white space, and no escapes other than \" \\ \b \f \n \r and \t.
func (t *Text) IsCompact() bool { return !t.spaced && !t.escaped }

// Kind returns the first character of the next value: one of { [ " t f n, or 0 for
// every number. It returns a space if there is no value.
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

// Value reads the next value and returns its text, a slice of the whole text whose
// capacity is its length. It returns nil if the Text has failed.
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
	if t.space(); t.inside && opening == '{' {
		t.inside = false
	} else if !t.sign(opening) || t.depth == 0 {
		t.failed = true
		return false
	}
	t.depth--
	t.values++
	if t.space(); t.sign(closing) {
		t.depth++
		return false
	}
	if opening == '{' {
		t.objects++
	}
	return true
}

// another reads the comma or the closing character after an element or a member, and
// reports whether another one follows.
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

// name reads the name of a member, and the colon. First is the index at which the
// names of its object begin in names.
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

// sign reads the character c if it is the next one, and reports whether it was.
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

// add stores the name of a member. First is the index of the first name of its
// object. It reports false if the name is repeated, or if there are too many
// names.
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
		n, wide := Plain(t.all[t.at:])
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
		_, ok := hexRune(t.all[t.at:])
		if ok {
			t.at += 4
		}
		return ok
	default:
		return false
	}
}

// hexRune returns what the four digits of an escape stand for: a character, or half of one
// beyond the first 65,536, which a second escape has to follow. It reports false if these are
// not four digits.
func hexRune(digits []byte) (r rune, ok bool) {
	if len(digits) < 4 {
		return 0, false
	}
	for _, c := range digits[:4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f', 'A' <= c && c <= 'F':
			r = r<<4 | rune(c&^0x20-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// These are the lowest and the highest bits of all bytes in a word of eight bytes.
const (
	lowest  = 0x0101010101010101
	highest = 0x8080808080808080
)

// Plain returns how many bytes come before the first quote, backslash or control
// character of a text. Wide reports that some of these bytes, or of the seven bytes
// after them, may not be ASCII.
func Plain(text []byte) (n int, wide bool) {
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

// stopsIn finds the first quote, backslash or control character in a word of eight
// bytes, and sets the highest bit of that byte in its result. It may also set the
// bits of later bytes.
func stopsIn(word uint64) uint64 {
	const control = lowest * 0x02 // with it a quote becomes a space, and so control characters and quotes are what is not above a space
	return (((word ^ control) - lowest*(' '+1)) | ((word ^ lowest*'\\') - lowest)) &^ word & highest
}
