//bowline:pure

package catalogue

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// LongestURI is the length of the longest URI that a template may match.
const LongestURI = 8 << 10

const longestTemplate = 2 << 10

// A template finds its server for the URI of a resource that no server has listed.
type template struct {
	Item
	begins     string   // the text before its first variable
	deny       []string // what its server must not be asked for
	expression *regexp.Regexp
}

func (m *merged) addTemplate(item Item, deny []string) {
	if expression, err := compile(item.Own); err == nil { // accept has checked it
		begins, _, _ := strings.Cut(item.Own, "{")
		m.templates = append(m.templates, template{item, begins, deny, expression})
	}
}

// Resource returns who has the resource with a URI: whoever lists it, or the first server, in file order, that has a
// template for it, unless the file denies the URI. Its Own is the URI. An unknown URI is found nowhere: servers are not asked in turn, since the ones
// that do not have it would learn of it. Who sees only a part finds what is at its server for all, or nothing: hiding gives a URI to no other server.
func (s *Snapshot) Resource(uri string) (Item, bool) {
	if s.part == nil {
		item, _, found := s.resource(uri)
		return item, found
	}
	item, by, found := s.part.of.resource(uri)
	if found && by != "" {
		_, found = s.Find(Templates, by)
		found = found && IsPlain(uri)
	}
	return item, found && s.part.may(Resources, item)
}

// resource also returns the template by which it was found.
func (s *Snapshot) resource(uri string) (item Item, by string, found bool) {
	if item, ok := s.Find(Resources, uri); ok {
		return item, "", true
	}
	if len(uri) > LongestURI {
		return Item{}, "", false
	}
	for _, t := range s.merged[Templates].templates {
		if strings.HasPrefix(uri, t.begins) && t.expression.MatchString(uri) {
			return Item{Server: t.Server, Own: uri, Name: uri}, t.Own, len(t.deny) == 0 || IsPlain(uri) && !anyMatches(t.deny, uri)
		}
	}
	return Item{}, "", false
}

// IsPlain reports whether a URI is written as a pattern would be: without the segments . and .., and without escapes of characters that need none. A server may take
// another spelling for the same, so that who may read file:///public/* would read file:///public/../secret.
func IsPlain(uri string) bool {
	decoded, shorter, ok := unescaped(uri)
	for range maxEscapes {
		switch {
		case !ok || shorter || hasDots(uri):
			return false
		case decoded == uri:
			return true
		}
		uri = decoded
		decoded, _, ok = unescaped(uri)
	}
	return false
}

// hasDots reports whether a path has a segment that stands for another one.
func hasDots(uri string) bool {
	for segment := range strings.FieldsFuncSeq(uri, func(r rune) bool { return strings.ContainsRune(`/\?#`, r) }) {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// unescaped returns a URI without one level of escapes, and whether one of them stands for a character that needs none. Ok is false if one is none.
func unescaped(uri string) (decoded string, shorter, ok bool) {
	var out strings.Builder
	for at := 0; at < len(uri); at++ {
		c := uri[at]
		if c == '%' {
			code, err := strconv.ParseUint(uri[at+1:min(at+3, len(uri))], 16, 8)
			if err != nil || at+2 >= len(uri) {
				return "", false, false
			}
			c, at = byte(code), at+2
			shorter = shorter || isUnreserved(c)
		}
		out.WriteByte(c)
	}
	return out.String(), shorter, true
}

const maxEscapes = 4 // of escapes in a URI

func isUnreserved(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || strings.IndexByte("-._~", c) >= 0
}

// inVariable are the characters that a variable may stand for, with those that separate the elements of a list.
const inVariable = `[-._~0-9A-Za-z%,=]`

// operators is what an expression with an operator of RFC 6570 stands for.
var operators = map[byte]string{
	'+': `.*`,
	'#': `(?:#.*)?`,
	'.': `(?:\.` + inVariable + `*)?`,
	'/': `(?:/(?:/|` + inVariable + `)*)?`,
	';': `(?:;(?:;|` + inVariable + `)*)?`,
	'?': `(?:\?(?:&|` + inVariable + `)*)?`,
	'&': `(?:&(?:&|` + inVariable + `)*)?`,
}

// compile returns an expression for the URIs of a template. It may match a few more, since only the server knows
// which of its variables may be what; the server then refuses them.
func compile(text string) (*regexp.Regexp, error) {
	if len(text) > longestTemplate {
		return nil, errors.New("the template is too long")
	}
	var out strings.Builder
	out.WriteString(`(?s)\A`)
	for text != "" {
		literal, rest, variable := strings.Cut(text, "{")
		out.WriteString(regexp.QuoteMeta(literal))
		if strings.Contains(literal, "}") {
			return nil, errors.New("it is no URI template: a } without its {")
		}
		if !variable {
			break
		}
		inside, after, closed := strings.Cut(rest, "}")
		if !closed || inside == "" || strings.Contains(inside, "{") {
			return nil, errors.New("it is no URI template: a { without its }")
		}
		if form, ok := operators[inside[0]]; ok {
			out.WriteString(form)
		} else {
			out.WriteString(inVariable + `*`)
		}
		text = after
	}
	return regexp.Compile(out.String() + `\z`)
}
