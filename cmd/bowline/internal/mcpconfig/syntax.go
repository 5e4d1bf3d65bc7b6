package mcpconfig

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

func withoutBOM(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\uFEFF")) }

// parse gives the tree of the text, or reports why there is none.
func (r *reader) parse() (root node, ok bool) {
	if len(r.text) > maxSize {
		r.text = r.text[:maxSize]
		r.wrong(root, "the file is above the limit of %d bytes", maxSize)
		return root, false
	}
	if at, bad := invalidUTF8(r.text); bad {
		r.wrong(node{at: at}, "this is not UTF-8")
		return root, false
	}
	if bytes.Count(r.text, []byte("{"))+bytes.Count(r.text, []byte("[")) > maxBrackets {
		r.wrong(root, "the file has more than %d opening brackets", maxBrackets)
		return root, false
	}
	// A comment on the last line needs its end.
	value, err := hujson.Parse(append(bytes.Clone(r.text), '\n'))
	if err != nil {
		at, message := r.syntax(err)
		r.wrong(node{at: at}, "%s", message)
		return root, false
	}
	return node{at: value.StartOffset, value: value.Value}, true
}

func invalidUTF8(text []byte) (at int, bad bool) {
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			return at, true
		}
		at += size
	}
	return 0, false
}

// syntax takes hujson's error apart: it tells the place in its text only. That
// text may hold a whole string of the file, which can be long and hold
// anything.
func (r *reader) syntax(err error) (at int, message string) {
	var line, column int
	if _, scanErr := fmt.Sscanf(err.Error(), "hujson: line %d, column %d:", &line, &column); scanErr != nil {
		return 0, "this is not JSON"
	}
	_, message, _ = strings.Cut(err.Error(), fmt.Sprintf("column %d: ", column))
	if strings.HasPrefix(message, `invalid literal: "`) {
		message = `invalid string: a control character, or a \ that escapes nothing; a \ itself is \\`
	}
	return r.offset(line, column), message[:min(len(message), 120)]
}

// offset is where a line and column are, or the end of the text.
func (r *reader) offset(line, column int) int {
	at := 0
	for ; line > 1; line-- {
		end := bytes.IndexByte(r.text[at:], '\n')
		if end < 0 {
			return len(r.text)
		}
		at += end + 1
	}
	return min(at+column-1, len(r.text))
}
