package mcpjson

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"
)

// A reader reads one server, or the outline of a file. It goes on after a
// mistake, to find them all.
type reader struct {
	file *File

	added    int // bytes that variables stood for so far
	findings []finding
	ignored  []string // paths
	notices  []string
	read     []byte // every value of the server, with its path
}

// record notes a value that counts: see Server.Same.
func (r *reader) record(n node, value string) {
	r.read = fmt.Appendf(r.read, "%q=%q\n", n.path, value)
}

func (r *reader) wrong(n node, format string, args ...any) {
	r.findings = append(r.findings, finding{n.at, n.path, fmt.Sprintf(format, args...)})
}

// A node is a value and its place. The zero node is a value that is not there.
type node struct {
	path  string
	at    int // offset in the text
	value hujson.ValueTrimmed
}

func (n node) absent() bool { return n.value == nil }

// A member is a value with its name.
type member struct {
	node
	name   string
	nameAt int
}

// called is where the name stands rather than the value.
func (m member) called() node { return node{path: m.path, at: m.nameAt} }

// members returns what an object holds, in file order. A name that comes twice
// is a mistake, and the first counts.
func (r *reader) members(n node) []member {
	if n.absent() {
		return nil
	}
	object, ok := n.value.(*hujson.Object)
	if !ok {
		r.expected(n, "an object")
		return nil
	}
	var members []member
	seen := map[string]bool{}
	for m := range membersOf(n, object) {
		if seen[m.name] {
			r.wrong(m.called(), "the name is repeated")
			continue
		}
		seen[m.name] = true
		members = append(members, m)
	}
	return members
}

func membersOf(n node, object *hujson.Object) iter.Seq[member] {
	return func(yield func(member) bool) {
		for _, m := range object.Members {
			name := m.Name.Value.(hujson.Literal).String() // the parser lets nothing else be a name
			value := node{path: join(n.path, name), at: m.Value.StartOffset, value: m.Value.Value}
			if !yield(member{value, name, m.Name.StartOffset}) {
				return
			}
		}
	}
}

// settings returns the members of an object by name, without those that are
// null. Names that are not known go to other.
func (r *reader) settings(n node, other func(member), known ...string) map[string]node {
	settings := map[string]node{}
	for _, m := range r.members(n) {
		switch {
		case !slices.Contains(known, m.name):
			other(m)
		case m.value.Kind() != 'n':
			settings[m.name] = m.node
		}
	}
	return settings
}

func (r *reader) ignore(m member) { r.ignored = append(r.ignored, m.path) }

// boolean returns the fallback if the value is absent or wrong.
func (r *reader) boolean(n node, fallback bool) bool {
	if n.absent() {
		return fallback
	}
	switch n.value.Kind() {
	case 't', 'f':
		r.record(n, string(n.value.Kind()))
		return n.value.Kind() == 't'
	default:
		r.expected(n, "true or false")
		return fallback
	}
}

// string returns the value as the file has it, and with its variables replaced.
// It is not ok if it is absent or wrong.
func (r *reader) string(n node) (written, expanded string, ok bool) {
	if n.absent() {
		return "", "", false
	}
	if n.value.Kind() != '"' {
		r.expected(n, "a string")
		return "", "", false
	}
	written = n.value.(hujson.Literal).String()
	expanded, ok = r.expand(n, written)
	if ok && strings.ContainsRune(expanded, 0) {
		r.wrong(n, "it contains a NUL character, which no program can receive")
		return "", "", false
	}
	r.record(n, expanded)
	return written, expanded, ok
}

// strings returns the elements of an array.
func (r *reader) strings(n node) []string {
	if n.absent() {
		return nil
	}
	array, ok := n.value.(*hujson.Array)
	if !ok {
		r.expected(n, "an array of strings")
		return nil
	}
	var all []string
	for i, element := range array.Elements {
		at := node{path: fmt.Sprintf("%s[%d]", n.path, i), at: element.StartOffset, value: element.Value}
		_, expanded, _ := r.string(at)
		all = append(all, expanded)
	}
	return all
}

func (r *reader) expected(n node, what string) {
	r.wrong(n, "expected %s, got %s", what, describe(n.value.Kind()))
}

func describe(kind hujson.Kind) string {
	switch kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '0':
		return "a number"
	case '"':
		return "a string"
	case '[':
		return "an array"
	default:
		return "an object"
	}
}

// join adds a name to a path, quoted where it would read as something else.
func join(path, name string) string {
	switch {
	case name == "" || strings.ContainsFunc(name, unusual):
		return path + "[" + quote(name) + "]"
	case path == "":
		return name
	default:
		return path + "." + name
	}
}

func unusual(c rune) bool {
	return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_')
}

// quote makes text of the file safe and short enough for a message.
func quote(text string) string {
	const room = 80
	if len(text) > room {
		return strconv.Quote(text[:room]) + "..."
	}
	return strconv.Quote(text)
}
