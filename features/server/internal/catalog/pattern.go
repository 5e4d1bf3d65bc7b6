package catalog

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// LongestURI is the length of the longest URI that a client may name, in bytes. The server
// keeps the URIs of subscriptions, and passes others on to the program.
const LongestURI = 8 << 10

// CheckURI refuses a URI that is missing or too long.
func CheckURI(method, uri string) error {
	if err := refusal.Missing(method, "uri", uri); err != nil {
		return err
	}
	if len(uri) > LongestURI {
		return refusal.New(jsonrpc.CodeInvalidParams, "%s: the URI has %d bytes, and at most %d are allowed", method, len(uri), LongestURI)
	}
	return nil
}

// A Pattern finds the variables of a URI template (RFC 6570) in a URI. The time it takes is
// linear in the length of the URI, whatever a client sends.
type Pattern struct {
	expression *regexp.Regexp
	names      []string // the variable of each group
}

// NewPattern returns the pattern of a valid template. It fails if a prefix has more than
// 1,000 characters.
func NewPattern(text string) (*Pattern, error) {
	p := &Pattern{names: []string{""}} // the first group is the whole URI
	var out strings.Builder
	out.WriteString(`\A`)
	for text != "" {
		literal, rest, _ := strings.Cut(text, "{")
		variables, after, found := strings.Cut(rest, "}")
		out.WriteString(regexp.QuoteMeta(literal))
		if found {
			p.write(&out, variables)
		}
		text = after
	}
	out.WriteString(`\z`)
	var err error
	if p.expression, err = regexp.Compile(out.String()); err != nil {
		return nil, fmt.Errorf("the template is too large, or one of its prefixes is: %w", err)
	}
	return p, nil
}

// These are the characters that may stand for a variable, each also in its encoded form.
const (
	unreservedCharacter = `(?:[-._~0-9A-Za-z]|%[0-9A-Fa-f]{2})`
	anyCharacter        = `(?:[-._~0-9A-Za-z!#$&'()*+,/:;=?@\[\]]|%[0-9A-Fa-f]{2})`
)

// write writes an expression of the template, without its braces. Every variable is
// optional, because a URI leaves out those without a value. A variable may be a list.
func (p *Pattern) write(out *strings.Builder, variables string) {
	first, separator, character, empty, named := "", ",", unreservedCharacter, "", false
	switch operator := variables[:1]; operator {
	case "+":
		character = anyCharacter
	case "#":
		first, character = operator, anyCharacter
	case ".", "/":
		first, separator = operator, operator
	case ";":
		first, separator, named = operator, operator, true
	case "?", "&":
		first, separator, empty, named = operator, "&", "=", true
	}
	out.WriteString("(?:" + regexp.QuoteMeta(first))
	separator = regexp.QuoteMeta(separator)
	for i, name := range strings.Split(strings.TrimLeft(variables, "+#./;?&"), ",") {
		name, explodes := strings.CutSuffix(name, "*")
		name, length, isPrefix := strings.Cut(name, ":")
		value, key := character+"*", regexp.QuoteMeta(name)
		if isPrefix {
			value = fmt.Sprintf("%s{0,%s}", character, length)
		}
		out.WriteString("(?:")
		if i > 0 {
			out.WriteString("(?:" + separator + ")?")
		}
		switch {
		case named && explodes:
			more := fmt.Sprintf("(?:%s%s(?:=%s|%s))*", separator, key, value, empty)
			fmt.Fprintf(out, "%s(?:=(%s%s)|%s%s)", key, value, more, empty, more)
		case named:
			fmt.Fprintf(out, "%s(?:=(%s(?:,%s)*)|%s)", key, value, value, empty)
		case explodes:
			fmt.Fprintf(out, "(%s(?:%s%s)*?)", value, separator, value)
		default:
			fmt.Fprintf(out, "(%s(?:,%s)*?)", value, value)
		}
		out.WriteString(")?")
		p.names = append(p.names, name)
	}
	out.WriteString(")?")
}

// Matches reports whether a URI fits the template.
func (p *Pattern) Matches(uri string) bool { return p.expression.MatchString(uri) }

// Variables returns the variables of a URI, decoded. A list is returned as it stands in the URI,
// with its separators. If the template names a variable several times, the longest value
// is returned, because the others may be prefixes of it.
func (p *Pattern) Variables(uri string) map[string]string {
	found := p.expression.FindStringSubmatchIndex(uri)
	texts := make(map[string]string, len(p.names))
	for i, name := range p.names {
		if i == 0 || 2*i >= len(found) || found[2*i] < 0 {
			continue
		}
		text, err := url.PathUnescape(uri[found[2*i]:found[2*i+1]])
		if known, again := texts[name]; err == nil && (!again || len(text) > len(known)) {
			texts[name] = text
		}
	}
	return texts
}
