package schema

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"net/url"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
)

type object = map[string]any

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

var typeNames = []string{"boolean", "string", "array", "object", "number", "integer", "null"} // in the order of the bits

func (t types) String() string {
	var names []string
	for i, name := range typeNames {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

// A node is one compiled schema. A keyword that is absent is zero, or a negative
// number.
type node struct {
	never bool  // the schema false
	ref   *node // the target of $ref
	types types // 0: all

	constants *constants // of enum or const
	number    *numberRules
	text      *textRules
	array     *arrayRules
	object    *objectRules

	allOf, anyOf, oneOf     []*node
	not, when, then, orElse *node // not, if, then, else
}

// constants are the values of an enum, by their hash.
type constants struct {
	seed   maphash.Seed
	byHash map[uint64][]values
	first  string // the first of them, and how many there are: for people
	count  int
}

type numberRules struct {
	minimum, maximum, above, below, multiple float64 // NaN: absent
}

type textRules struct {
	shortest, longest int
	pattern           *pattern
}

// A pattern is a regular expression and how many instructions it has.
type pattern struct {
	source string
	re     *regexp.Regexp
	size   int
}

type arrayRules struct {
	prefix            []*node
	items             *node // behind the prefix
	shortest, longest int
	unique            bool
	contains          *node
	fewest, most      int // elements that fit contains
	unevaluated       *node
}

type objectRules struct {
	properties        map[string]*node
	patterns          []patternRule
	additional        *node
	names             *node
	required          []string
	isRequired        map[string]bool
	fewest, most      int
	dependentRequired map[string][]string
	dependentSchemas  map[string]*node
	unevaluated       *node
}

type patternRule struct {
	*pattern
	node *node
}

// A compiler turns a schema document into nodes.
type compiler struct {
	root        any
	draft07     bool
	anchors     map[string]any
	nodes       map[uintptr]*node // of the objects of the document, each compiled once
	targets     map[string]*node  // of references, by their text
	patternSize int
	err         error // the first
}

func compile(raw json.RawMessage) (*node, error) {
	c := &compiler{anchors: make(map[string]any), nodes: make(map[uintptr]*node), targets: make(map[string]*node)}
	if err := protocol.Unmarshal(raw, &c.root); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if document, ok := c.root.(object); ok {
		switch document["$schema"] {
		case nil, "", "https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#":
		case "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft-07/schema#",
			"http://json-schema.org/draft-07/schema", "https://json-schema.org/draft-07/schema":
			c.draft07 = true
		default:
			return nil, fmt.Errorf("%w: %.100q", ErrDialect, fmt.Sprint(document["$schema"]))
		}
		delete(document, "$id") // of the whole document: references within it mean the same
		c.findAnchors(c.root)
	}
	root, open := c.node(c.root), make(map[*node]bool)
	for _, target := range c.targets { // every circle goes through a reference
		if c.err == nil && endless(target, open) {
			c.err = ErrEndless
		}
	}
	return root, c.err
}

// findAnchors looks at every object of the document as if it were a schema. It is
// only a name: an anchor in a wrong place is one that nobody should refer to.
func (c *compiler) findAnchors(value any) {
	switch v := value.(type) {
	case object:
		if anchor, ok := v["$anchor"].(string); ok {
			c.anchors["#"+anchor] = v
		}
		for _, member := range v {
			c.findAnchors(member)
		}
	case []any:
		for _, element := range v {
			c.findAnchors(element)
		}
	}
}

func (c *compiler) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("schema: "+format, args...)
	}
}

// target returns the node that a reference leads to.
func (c *compiler) target(ref string) *node {
	if known, ok := c.targets[ref]; ok {
		return known
	}
	target, ok := c.anchors[ref]
	if document, isObject := c.root.(object); !ok && isObject {
		target, ok = Resolve(document, ref)
	}
	if !ok {
		c.err = fmt.Errorf("%w: %.100q", ErrReference, ref)
		return nil
	}
	c.targets[ref] = c.node(target)
	return c.targets[ref]
}

// node compiles one schema.
func (c *compiler) node(schema any) *node {
	made := new(node)
	switch s := schema.(type) {
	case bool:
		made.never = !s
	case object:
		id := reflect.ValueOf(s).Pointer()
		if known, ok := c.nodes[id]; ok {
			return known
		}
		c.nodes[id] = made // before what is inside refers to it
		if c.err == nil {
			c.fillObject(made, s)
		}
	default:
		c.fail("a schema is neither an object nor a boolean")
	}
	return made
}

func (c *compiler) fillObject(n *node, s object) {
	if _, identified := s["$id"].(string); identified || s["$dynamicRef"] != nil {
		c.err = fmt.Errorf("%w: $id below the root, or $dynamicRef", ErrReference)
		return
	}
	if ref, ok := c.text(s, "$ref"); ok {
		n.ref = c.target(ref)
		if c.draft07 {
			return // what stands beside a reference is ignored there
		}
	}
	n.types = c.types(s["type"])
	n.constants = c.constants(s)
	n.number, n.text, n.array, n.object = c.numberRules(s), c.textRules(s), c.arrayRules(s), c.objectRules(s)
	n.allOf, n.anyOf, n.oneOf = c.list(s, "allOf"), c.list(s, "anyOf"), c.list(s, "oneOf")
	n.not, n.when = c.single(s, "not"), c.single(s, "if")
	if then, orElse := c.single(s, "then"), c.single(s, "else"); n.when != nil {
		n.then, n.orElse = then, orElse
	}
	for _, definitions := range []string{"$defs", "definitions"} {
		c.byName(s, definitions) // malformed ones are refused even if nobody refers to them
	}
}

func (c *compiler) types(value any) (set types) {
	names, isList := value.([]any)
	if !isList && value != nil {
		names = []any{value}
	}
	for _, name := range names {
		text, _ := name.(string)
		i := slices.Index(typeNames, text)
		if i < 0 {
			c.fail("type is none of JSON Schema's: %.100q", fmt.Sprint(name))
			return 0
		}
		set |= 1 << i
	}
	return set
}

func (c *compiler) constants(s object) *constants {
	all, ok := s["enum"].([]any)
	if !ok && s["enum"] != nil {
		c.fail("enum is no array")
	}
	constant, isConst := s["const"]
	if !ok && !isConst {
		return nil
	}
	if isConst {
		if ok { // both: only what is in both, which is const or nothing
			all = slices.DeleteFunc(slices.Clone(all), func(v any) bool { return !sameJSON(v, constant) })
		} else {
			all = []any{constant}
		}
	}
	made := &constants{seed: maphash.MakeSeed(), byHash: make(map[uint64][]values), count: len(all)}
	for i, one := range all {
		raw, err := json.Marshal(one)
		if err != nil {
			c.fail("enum: %w", err)
			return nil
		}
		if i == 0 {
			made.first = fmt.Sprintf("%.100s", raw)
		}
		indexed, err := index(raw, &evaluation{left: MaxSteps})
		if err != nil {
			c.fail("enum: %w", err)
			return nil
		}
		hash := indexed.hash(made.seed, 0)
		made.byHash[hash] = append(made.byHash[hash], indexed)
	}
	return made
}

func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y) // members are sorted
}

func (c *compiler) numberRules(s object) *numberRules {
	r := &numberRules{c.number(s, "minimum"), c.number(s, "maximum"), c.number(s, "exclusiveMinimum"), c.number(s, "exclusiveMaximum"), c.number(s, "multipleOf")}
	if r.multiple <= 0 {
		c.fail("multipleOf is not above 0")
	}
	if math.IsNaN(r.minimum) && math.IsNaN(r.maximum) && math.IsNaN(r.above) && math.IsNaN(r.below) && math.IsNaN(r.multiple) {
		return nil
	}
	return r
}

func (c *compiler) textRules(s object) *textRules {
	r := &textRules{shortest: c.size(s, "minLength"), longest: c.size(s, "maxLength")}
	if source, ok := c.text(s, "pattern"); ok {
		r.pattern = c.pattern(source)
	}
	if r.shortest < 0 && r.longest < 0 && r.pattern == nil {
		return nil
	}
	return r
}

// pattern compiles a regular expression within the bounds of the schema.
func (c *compiler) pattern(source string) *pattern {
	if len(source) > maxPattern {
		c.err = ErrTooLarge
		return nil
	}
	parsed, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		c.fail("%w", err)
		return nil
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		c.fail("%w", err)
		return nil
	}
	size := len(program.Inst)
	if c.patternSize += size; c.patternSize > maxPatternSize {
		c.err = ErrTooLarge
		return nil
	}
	re, err := regexp.Compile(source)
	if err != nil {
		c.fail("%w", err)
		return nil
	}
	return &pattern{source, re, size}
}

func (c *compiler) arrayRules(s object) *arrayRules {
	r := &arrayRules{
		prefix: c.list(s, "prefixItems"), shortest: c.size(s, "minItems"), longest: c.size(s, "maxItems"),
		contains: c.single(s, "contains"), fewest: c.size(s, "minContains"), most: c.size(s, "maxContains"),
		unevaluated: c.single(s, "unevaluatedItems"),
	}
	if tuple, isTuple := s["items"].([]any); isTuple { // draft-07
		r.prefix = c.all(tuple)
		r.items = c.single(s, "additionalItems")
	} else {
		r.items = c.single(s, "items")
	}
	r.unique, _ = s["uniqueItems"].(bool)
	if _, isFlag := s["uniqueItems"].(bool); !isFlag && s["uniqueItems"] != nil {
		c.fail("uniqueItems is no boolean")
	}
	if r.prefix == nil && r.items == nil && r.shortest < 0 && r.longest < 0 && !r.unique && r.contains == nil && r.unevaluated == nil {
		return nil
	}
	return r
}

func (c *compiler) objectRules(s object) *objectRules {
	r := &objectRules{
		properties: c.byName(s, "properties"), additional: c.single(s, "additionalProperties"), names: c.single(s, "propertyNames"),
		required: c.texts(s["required"], "required"), fewest: c.size(s, "minProperties"), most: c.size(s, "maxProperties"),
		dependentSchemas: c.byName(s, "dependentSchemas"), unevaluated: c.single(s, "unevaluatedProperties"),
	}
	patterns := c.byName(s, "patternProperties")
	for _, source := range slices.Sorted(maps.Keys(patterns)) {
		r.patterns = append(r.patterns, patternRule{c.pattern(source), patterns[source]})
	}
	c.dependencies(r, s["dependentRequired"], "dependentRequired")
	c.dependencies(r, s["dependencies"], "dependencies") // draft-07: of both kinds
	if r.properties == nil && r.patterns == nil && r.additional == nil && r.names == nil && r.required == nil && r.fewest < 0 && r.most < 0 &&
		r.dependentRequired == nil && r.dependentSchemas == nil && r.unevaluated == nil {
		return nil
	}
	r.isRequired = make(map[string]bool, len(r.required))
	for _, name := range r.required {
		r.isRequired[name] = true
	}
	return r
}

func (c *compiler) dependencies(r *objectRules, value any, keyword string) {
	if value == nil {
		return
	}
	byName, ok := value.(object)
	if !ok {
		c.fail("%s is no object", keyword)
	}
	for name, dependency := range byName {
		if _, isList := dependency.([]any); isList || keyword == "dependentRequired" {
			if r.dependentRequired == nil {
				r.dependentRequired = make(map[string][]string)
			}
			r.dependentRequired[name] = append(r.dependentRequired[name], c.texts(dependency, keyword)...)
			continue
		}
		if r.dependentSchemas == nil {
			r.dependentSchemas = make(map[string]*node)
		}
		r.dependentSchemas[name] = c.node(dependency)
	}
}

func (c *compiler) single(s object, keyword string) *node {
	schema, ok := s[keyword]
	if !ok {
		return nil
	}
	return c.node(schema)
}

func (c *compiler) list(s object, keyword string) []*node {
	value, ok := s[keyword]
	if !ok {
		return nil
	}
	schemas, ok := value.([]any)
	if !ok {
		c.fail("%s is no array", keyword)
	}
	return c.all(schemas)
}

func (c *compiler) all(schemas []any) []*node {
	nodes := make([]*node, len(schemas))
	for i, schema := range schemas {
		nodes[i] = c.node(schema)
	}
	return nodes
}

func (c *compiler) byName(s object, keyword string) map[string]*node {
	value, ok := s[keyword]
	if !ok {
		return nil
	}
	schemas, ok := value.(object)
	if !ok {
		c.fail("%s is no object", keyword)
	}
	nodes := make(map[string]*node, len(schemas))
	for name, schema := range schemas {
		nodes[name] = c.node(schema)
	}
	return nodes
}

func (c *compiler) text(s object, keyword string) (string, bool) {
	value, ok := s[keyword]
	text, isText := value.(string)
	if ok && !isText {
		c.fail("%s is no string", keyword)
	}
	return text, isText
}

func (c *compiler) texts(value any, keyword string) (all []string) {
	if value == nil {
		return nil
	}
	list, ok := value.([]any)
	for _, one := range list {
		text, isText := one.(string)
		ok = ok && isText
		all = append(all, text)
	}
	if !ok {
		c.fail("%s is no array of strings", keyword)
	}
	return all
}

func (c *compiler) number(s object, keyword string) float64 {
	value, ok := s[keyword]
	number, isNumber := value.(float64)
	if ok && !isNumber {
		c.fail("%s is no number", keyword)
	}
	if !isNumber {
		return math.NaN()
	}
	return number
}

// size is a keyword that counts something; -1 when absent.
func (c *compiler) size(s object, keyword string) int {
	number := c.number(s, keyword)
	switch {
	case math.IsNaN(number):
		return -1
	case number < 0 || number != math.Trunc(number):
		c.fail("%s is no natural number", keyword)
	}
	return int(min(number, math.MaxInt32))
}

// endless reports whether a schema leads back to itself for the same value.
func endless(n *node, open map[*node]bool) bool {
	if n == nil {
		return false
	}
	if entered, ok := open[n]; ok {
		return entered
	}
	open[n] = true
	for _, one := range n.inPlace() {
		if endless(one, open) {
			return true
		}
	}
	open[n] = false // done, and no circle goes through it
	return false
}

// inPlace lists the schemas that a schema applies to the same value.
func (n *node) inPlace() []*node {
	all := slices.Concat(n.allOf, n.anyOf, n.oneOf, []*node{n.ref, n.not, n.when, n.then, n.orElse})
	if n.object != nil {
		all = slices.AppendSeq(all, maps.Values(n.object.dependentSchemas))
	}
	return all
}

// Resolve follows a reference within a document: "#", "#/$defs/name" and the
// like.
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
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		switch parent := target.(type) {
		case object:
			target, ok = parent[name]
		case []any:
			var i int
			_, err := fmt.Sscanf(name, "%d", &i)
			if ok = err == nil && 0 <= i && i < len(parent) && fmt.Sprint(i) == name; ok {
				target = parent[i]
			}
		default:
			ok = false
		}
		if !ok {
			return nil, false
		}
	}
	return target, true
}
