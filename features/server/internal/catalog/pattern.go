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

// CheckURI refuses a URI that is missing or too long. Reads and subscriptions call it before anything is
// looked up or kept.
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
//
// It is a regular expression that is anchored at both ends, with one group for each variable.
// Package uritemplate would do the same, but a list costs it memory for each element, which a
// client chooses.
type Pattern struct {
	expression *regexp.Regexp
	names      []string // the variable of each group, in their order
}

// NewPattern returns the pattern of a valid template, as package uritemplate accepts it. It fails
// if a prefix has more than 1,000 characters, which is the most that package regexp repeats.
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

// These are the characters that may stand for a variable, each also in its encoded form. No other
// may: a line break, or a byte that is not ASCII, does not belong in a URI, and a program need not
// expect it.
const (
	unreservedCharacter = `(?:[-._~0-9A-Za-z]|%[0-9A-Fa-f]{2})`
	anyCharacter        = `(?:[-._~0-9A-Za-z!#$&'()*+,/:;=?@\[\]]|%[0-9A-Fa-f]{2})`
)

// An operator is what the first character of an expression decides (RFC 6570, appendix A).
type operator struct {
	first     string // stands before the first variable
	separator string // stands between two variables
	character string // what a value consists of
	named     bool   // a variable is written with its name, as in a query
	empty     string // follows the name of a variable that has no value
}

// operatorOf is the table of RFC 6570. A template that was parsed has no other operators, and an
// expression is never empty.
func operatorOf(variables string) operator {
	switch first := variables[:1]; first {
	case "+":
		return operator{separator: ",", character: anyCharacter}
	case "#":
		return operator{first: first, separator: ",", character: anyCharacter}
	case ".", "/":
		return operator{first: first, separator: first, character: unreservedCharacter}
	case ";":
		return operator{first: first, separator: first, character: unreservedCharacter, named: true}
	case "?", "&":
		return operator{first: first, separator: "&", character: unreservedCharacter, named: true, empty: "="}
	default: // the first letter of a name
		return operator{separator: ",", character: unreservedCharacter}
	}
}

// write writes an expression of the template, without its braces. Every variable is
// optional, because a URI leaves out those without a value. A variable may be a list.
func (p *Pattern) write(out *strings.Builder, variables string) {
	of := operatorOf(variables)
	out.WriteString("(?:" + regexp.QuoteMeta(of.first))
	for i, text := range strings.Split(strings.TrimLeft(variables, "+#./;?&"), ",") {
		out.WriteString("(?:")
		if i > 0 {
			out.WriteString("(?:" + regexp.QuoteMeta(of.separator) + ")?")
		}
		name, expression := of.variable(text)
		out.WriteString(expression + ")?")
		p.names = append(p.names, name)
	}
	out.WriteString(")?")
}

// variable returns the name of a variable, and what matches it in a URI. That has exactly one
// group, the value: Pattern counts the groups to know whose value it has found. A list repeats
// within the group, so it costs no memory for each element.
func (o operator) variable(text string) (name, expression string) {
	name, explodes := strings.CutSuffix(text, "*")
	name, length, isPrefix := strings.Cut(name, ":")
	value, key, separator := o.character+"*", regexp.QuoteMeta(name), regexp.QuoteMeta(o.separator)
	if isPrefix {
		value = fmt.Sprintf("%s{0,%s}", o.character, length)
	}
	switch {
	case o.named && explodes:
		more := fmt.Sprintf("(?:%s%s(?:=%s|%s))*", separator, key, value, o.empty)
		return name, fmt.Sprintf("%s(?:=(%s%s)|%s%s)", key, value, more, o.empty, more)
	case o.named:
		return name, fmt.Sprintf("%s(?:=(%s(?:,%s)*)|%s)", key, value, value, o.empty)
	case explodes:
		return name, fmt.Sprintf("(%s(?:%s%s)*?)", value, separator, value)
	default:
		return name, fmt.Sprintf("(%s(?:,%s)*?)", value, value)
	}
}

// Matches reports whether a URI fits the template. Check its length first, with CheckURI.
func (p *Pattern) Matches(uri string) bool { return p.expression.MatchString(uri) }

// Variables returns the variables of a URI, decoded. A list is returned as it stands in the URI,
// with its separators. If the template names a variable several times, the longest value is
// returned, because the others may be prefixes of it. A value whose encoding is wrong is left out,
// as if the URI did not have it.
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
