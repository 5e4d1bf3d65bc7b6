package mcpjson

import (
	"fmt"
	"iter"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailscale/hujson"
)

// values reads the values of one server, or of the outline of a file. It notes each
// mistake and goes on, to find them all.
type values struct {
	file      *File
	expansion expansion

	findings []finding
	ignored  []string // paths
	notices  []string
	read     []byte // every value of the server, with its path
}

func newValues(f *File) *values { return &values{file: f, expansion: expansion{file: f}} }

// record adds a value to what Server.Same compares.
func (v *values) record(n node, value string) {
	v.read = fmt.Appendf(v.read, "%q=%q\n", n.path, value)
}

// wrong adds a mistake.
func (v *values) wrong(n node, format string, args ...any) {
	v.findings = append(v.findings, finding{n.at, n.path, fmt.Sprintf(format, args...)})
}

// notice adds a hint about what may be a mistake.
func (v *values) notice(n node, format string, args ...any) {
	line, column := v.file.position(n.at)
	v.notices = append(v.notices, fmt.Sprintf("%s:%d:%d: %s: %s", v.file.Path, line, column, n.path, fmt.Sprintf(format, args...)))
}

// A node is a value and its place in the file. The zero node is an absent value.
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

// called returns the place of the name, for mistakes that concern the name.
func (m member) called() node { return node{path: m.path, at: m.nameAt} }

// members returns the members of an object, in file order. A repeated name is a mistake; the
// first member with that name counts.
func (v *values) members(n node) []member {
	if n.absent() {
		return nil
	}
	object, ok := n.value.(*hujson.Object)
	if !ok {
		v.expected(n, "an object")
		return nil
	}
	var members []member
	seen := map[string]bool{}
	for m := range membersOf(n, object) {
		if seen[m.name] {
			v.wrong(m.called(), "the name is repeated")
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
// null, which is a mistake in one that limits something. It calls other for each unknown name.
func (v *values) settings(n node, other func(member), known ...string) map[string]node {
	settings := map[string]node{}
	for _, m := range v.members(n) {
		switch {
		case !slices.Contains(known, m.name):
			other(m)
		case m.value.Kind() != 'n':
			settings[m.name] = m.node
		case inPlaceOfNull(m.name) != "":
			v.wrong(m.node, "null could mean everything or nothing: write %s, or remove the key", inPlaceOfNull(m.name))
		}
	}
	return settings
}

// inPlaceOfNull returns what to write for a key of ours by which somebody is limited, or something
// kept, and "" for all others, among them all keys of hosts. A program that writes files, and has no
// value for such a key, must not open what it was to close.
func inPlaceOfNull(key string) string {
	switch key {
	case "who":
		return `"*" for everybody, or [] for nobody`
	case "policy", "allow", "deny", "servers", "issuers", "scopes", "trustedProxies", "allowHosts":
		return "an array, which may be []"
	case "personas", "groups", "bowline", "auth", "login", "exchange", "idjag", "provider", "tokenEndpoint", "subject", "audit", "rate", "toolRates", "tools", "prompts", "resources",
		"readOnly", "sync", "dpop", "introspect", "tokens", "file", "issuer", "audience", "pins", "share", "arguments", "onFull", "keep", "perMinute", "inFlight", "concurrency":
		return "a value"
	}
	return ""
}

func (v *values) ignore(m member) { v.ignored = append(v.ignored, m.path) }

// boolean returns the fallback if the value is absent or wrong.
func (v *values) boolean(n node, fallback bool) bool {
	if n.absent() {
		return fallback
	}
	switch n.value.Kind() {
	case 't', 'f':
		v.record(n, string(n.value.Kind()))
		return n.value.Kind() == 't'
	default:
		v.expected(n, "true or false")
		return fallback
	}
}

// string returns the value as it is in the file, and with its variables replaced. Ok is
// false if the value is absent or wrong.
func (v *values) string(n node) (written, expanded string, ok bool) {
	if n.absent() {
		return "", "", false
	}
	if n.value.Kind() != '"' {
		v.expected(n, "a string")
		return "", "", false
	}
	written = n.value.(hujson.Literal).String()
	expanded, ok = v.expand(n, written)
	if strings.ContainsRune(expanded, 0) {
		v.wrong(n, "it contains a NUL character, which no program can receive")
		return "", "", false
	}
	if name, is := strings.CutPrefix(written, "$"); is && isVariable(name) {
		v.notice(n, "%s is passed on as it is: write ${%s} for the variable", quote(written), name)
	}
	v.record(n, expanded)
	return written, expanded, ok
}

// expand replaces variables. Each one that cannot be replaced is a mistake of its own.
func (v *values) expand(n node, text string) (expanded string, ok bool) {
	expanded, ok, problems := v.expansion.expand(text)
	for _, problem := range problems {
		v.wrong(n, "%v", problem)
	}
	return expanded, ok
}

// strings returns the elements of an array.
func (v *values) strings(n node) (all []string) {
	for _, element := range v.elements(n, "an array of strings") {
		_, expanded, _ := v.string(element)
		all = append(all, expanded)
	}
	return all
}

// elements returns the elements of an array of what is expected.
func (v *values) elements(n node, expected string) (all []node) {
	if n.absent() {
		return nil
	}
	array, ok := n.value.(*hujson.Array)
	if !ok {
		v.expected(n, expected)
		return nil
	}
	for i, element := range array.Elements {
		all = append(all, node{path: fmt.Sprintf("%s[%d]", n.path, i), at: element.StartOffset, value: element.Value})
	}
	return all
}

// place returns where a value is, for people.
func (v *values) place(n node) string {
	line, column := v.file.position(n.at)
	return fmt.Sprintf("%s:%d:%d: %s", v.file.Path, line, column, n.path)
}

// scalar reads a string, or the text of a number or boolean.
func (v *values) scalar(n node) string {
	switch n.value.Kind() {
	case '"':
		_, value, _ := v.string(n)
		return value
	case '0', 't', 'f':
		value := string(n.value.(hujson.Literal))
		v.record(n, value)
		return value
	default:
		v.expected(n, "a string, a number or a boolean")
		return ""
	}
}

// path reads a path. A relative one starts at the project's folder.
func (v *values) path(n node) string {
	_, path, _ := v.string(n)
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(v.file.folder(), path)
}

// duration reads a duration above zero.
func (v *values) duration(n node) time.Duration {
	written, expanded, ok := v.string(n)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(expanded)
	if err != nil || d <= 0 {
		v.wrong(n, "%s is not a duration above zero, such as 30s or 2m", quote(written))
		return 0
	}
	return d
}

// milliseconds reads a timeout. The longest is the longest of a timer in JavaScript. A
// timeout below a second gives a notice, because some hosts count seconds.
func (v *values) milliseconds(n node) time.Duration {
	if n.absent() {
		return 0
	}
	if n.value.Kind() != '0' {
		v.expected(n, "a number of milliseconds")
		return 0
	}
	count := n.value.(hujson.Literal).Float()
	d := time.Duration(min(count, math.MaxInt32) * float64(time.Millisecond))
	if d <= 0 || count > math.MaxInt32 {
		v.wrong(n, "expected a number of milliseconds above 0, of at most %d", math.MaxInt32)
		return 0
	}
	v.record(n, d.String())
	if d < time.Second {
		v.notice(n, "this is %v: the number is in milliseconds", d)
	}
	return d
}

// count reads a whole number; nil if it is absent or wrong.
func (v *values) count(n node, least, most int) *int {
	if n.absent() {
		return nil
	}
	if n.value.Kind() == '0' {
		literal := n.value.(hujson.Literal)
		if count := literal.Float(); count >= float64(least) && count <= float64(most) && count == math.Trunc(count) {
			v.record(n, string(literal))
			whole := int(count)
			return &whole
		}
	}
	v.wrong(n, "expected a whole number from %d to %d", least, most)
	return nil
}

// choice reads a boolean; nil if it is absent.
func (v *values) choice(n node) *bool {
	if n.absent() {
		return nil
	}
	chosen := v.boolean(n, false)
	return &chosen
}

func (v *values) expected(n node, what string) {
	v.wrong(n, "expected %s, got %s", what, describe(n.value.Kind()))
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

// join adds a name to a path. It quotes a name that would be ambiguous.
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

// quote returns text of the file as it may appear in a message: quoted, and not too long.
func quote(text string) string {
	const room = 80
	if len(text) > room {
		return strconv.Quote(text[:room]) + "..."
	}
	return strconv.Quote(text)
}
