package schema

import (
	"hash/maphash"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A types is a set of JSON types.
type types uint8

const (
	typeBoolean types = 1 << iota
	typeString
	typeArray
	typeObject
	typeNumber
	typeInteger // numbers without a fraction
	typeNull
)

var typeNames = []string{"boolean", "string", "array", "object", "number", "integer", "null"} // the names in the order of the bits

func (t types) String() string {
	var names []string
	for i, name := range typeNames {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

// A node is one compiled schema. The field of an absent keyword is zero, or a
// negative number.
type node struct {
	never bool  // the schema is false, which no value fits
	ref   *node // the target of $ref
	types types // 0: all types

	constants *constants // the values of enum or const
	number    *numberRules
	text      *textRules
	array     *arrayRules
	object    *objectRules

	allOf, anyOf, oneOf             []*node
	not, condition, then, otherwise *node // not, if, then, else
}

// constants are the values of an enum, by their hash.
type constants struct {
	seed   maphash.Seed
	values values           // all of them, in one array
	byHash map[uint64][]int // their positions
	first  string           // for messages: the first value, and how many there are
	count  int
}

type numberRules struct {
	minimum, maximum, above, below, multiple float64 // NaN: the keyword is absent
}

type textRules struct {
	minLength, maxLength int
	pattern              *pattern
	format               *format
}

type arrayRules struct {
	prefix                   []*node
	items                    *node // for the elements after the prefix
	minItems, maxItems       int
	unique                   bool
	contains                 *node
	minContains, maxContains int // how many elements must and may fit contains
	unevaluated              *node
}

type objectRules struct {
	properties                   map[string]*node
	patterns                     []patternRule
	additional                   *node
	propertyNames                *node
	required                     []string
	isRequired                   map[string]bool
	minProperties, maxProperties int
	dependentRequired            map[string][]string
	dependentSchemas             map[string]*node
	unevaluated                  *node
}

type patternRule struct {
	*pattern
	node *node
}

// isEndless reports whether a schema applies itself to the same value again.
func isEndless(n *node, open map[*node]bool) bool {
	if n == nil {
		return false
	}
	if entered, ok := open[n]; ok {
		return entered
	}
	open[n] = true
	for _, one := range n.inPlace() {
		if isEndless(one, open) {
			return true
		}
	}
	open[n] = false // n is finished, and is not part of a cycle
	return false
}

// inPlace lists the schemas that a schema applies to the same value.
func (n *node) inPlace() []*node {
	all := slices.Concat(n.allOf, n.anyOf, n.oneOf, []*node{n.ref, n.not, n.condition, n.then, n.otherwise})
	if n.object != nil {
		all = slices.AppendSeq(all, maps.Values(n.object.dependentSchemas))
	}
	return all
}

// Resolve follows a reference within a document, such as "#" or "#/$defs/name".
func Resolve(document map[string]any, ref string) (target any, ok bool) {
	if ref == "#" {
		return document, true
	}
	pointer, local := strings.CutPrefix(ref, "#/")
	if unescaped, err := url.PathUnescape(pointer); err == nil {
		pointer = unescaped
	}
	if !local {
		return nil, false
	}
	target = document
	for name := range strings.SplitSeq(pointer, "/") {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		if target, ok = inside(target, name); !ok {
			return nil, false
		}
	}
	return target, true
}

// inside returns the member of an object with a name, or the element of an array with that number.
func inside(parent any, name string) (any, bool) {
	switch p := parent.(type) {
	case object:
		member, ok := p[name]
		return member, ok
	case []any:
		if i, err := strconv.Atoi(name); err == nil && 0 <= i && i < len(p) && strconv.Itoa(i) == name {
			return p[i], true
		}
	}
	return nil, false
}

// hasUnevaluated reports whether the schema has unevaluatedItems or
// unevaluatedProperties.
func (n *node) hasUnevaluated(isObject bool) bool {
	if isObject {
		return n.object != nil && n.object.unevaluated != nil
	}
	return n.array != nil && n.array.unevaluated != nil
}

func (n *node) unevaluated(isObject bool) *node {
	if isObject {
		return n.object.unevaluated
	}
	return n.array.unevaluated
}
