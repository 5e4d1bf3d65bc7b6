package schema

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
)

type object = map[string]any

// A compiler turns a schema document into nodes.
type compiler struct {
	budget   // what ends the compiler: an error of the schema, too
	root     any
	draft07  bool
	isForm   bool // formats are checked
	anchors  map[string]any
	nodes    map[uintptr]*node // the node of each object of the document
	targets  map[string]*node  // the targets of references, by the text of the reference
	patterns map[string]*pattern
}

// compile also returns how many steps it took.
func compile(ctx context.Context, raw json.RawMessage, isForm bool) (root *node, steps int, err error) {
	c := &compiler{
		budget: budget{ctx: ctx, left: maxCompileSteps, beyond: ErrTooLarge}, isForm: isForm,
		anchors: make(map[string]any), nodes: make(map[uintptr]*node), targets: make(map[string]*node), patterns: make(map[string]*pattern),
	}
	root, err = c.compile(raw)
	return root, maxCompileSteps - c.left, err
}

func (c *compiler) compile(raw json.RawMessage) (*node, error) {
	if !c.step(stepsPerValue * countValues(raw)) {
		return nil, c.stopped
	}
	if err := protocol.Unmarshal(raw, &c.root); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if document, ok := c.root.(object); ok {
		if err := c.readDialect(document["$schema"]); err != nil {
			return nil, err
		}
		delete(document, "$id") // references within the document do not need it
		c.findAnchors(c.root)
	}
	root, open := c.node(c.root), make(map[*node]bool)
	for _, target := range c.targets { // every cycle contains a reference
		if c.stopped == nil && isEndless(target, open) {
			c.stopped = ErrEndless
		}
	}
	return root, c.stopped
}

func (c *compiler) readDialect(name any) error {
	switch name {
	case nil, "", "https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#":
	case "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft-07/schema#",
		"http://json-schema.org/draft-07/schema", "https://json-schema.org/draft-07/schema":
		c.draft07 = true
	default:
		return fmt.Errorf("%w: %.100q", ErrDialect, fmt.Sprint(name))
	}
	return nil
}

// findAnchors finds the anchors in every object of the document, as if each
// object were a schema. An $anchor in an object that is not a schema does no
// harm, because no reference should lead to it.
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
	if c.stopped == nil {
		c.stopped = fmt.Errorf("schema: "+format, args...)
	}
}

// target returns the node that a reference leads to.
func (c *compiler) target(ref string) *node {
	if known, ok := c.targets[ref]; ok || !c.step(stepsPerNode+len(ref)) {
		return known
	}
	target, ok := c.anchors[ref]
	if document, isObject := c.root.(object); !ok && isObject {
		target, ok = Resolve(document, ref)
	}
	if !ok {
		c.stopped = unresolved(ref)
		return nil
	}
	c.targets[ref] = c.node(target)
	return c.targets[ref]
}

func dynamic(ref any) error {
	return fmt.Errorf("%w: $dynamicRef %.100q: use $ref", ErrReference, fmt.Sprint(ref))
}

// unresolved is the error of a $ref that leads to nothing.
func unresolved(ref string) error {
	why := "leads to nothing in the schema"
	if !strings.HasPrefix(ref, "#") {
		why = "is in another document, which is not fetched: copy it into $defs"
	}
	return fmt.Errorf("%w: $ref %.100q %s", ErrReference, ref, why)
}

// node compiles one schema.
func (c *compiler) node(schema any) *node {
	if !c.step(stepsPerNode) {
		return nil
	}
	made := new(node)
	switch s := schema.(type) {
	case bool:
		made.never = !s
	case object:
		id := reflect.ValueOf(s).Pointer()
		if known, ok := c.nodes[id]; ok {
			return known
		}
		c.nodes[id] = made // before a schema inside refers to it
		c.fillObject(made, s)
	default:
		c.fail("a schema is neither an object nor a boolean")
	}
	return made
}

func (c *compiler) fillObject(n *node, s object) {
	if ref := s["$dynamicRef"]; ref != nil {
		c.stopped = dynamic(ref)
		return
	}
	if id, identified := s["$id"].(string); identified {
		c.stopped = fmt.Errorf("%w: $id %.100q is below the root", ErrReference, id)
		return
	}
	if ref, ok := c.text(s, "$ref"); ok {
		n.ref = c.target(ref)
		if c.draft07 {
			return // draft-07 ignores the keywords beside $ref
		}
	}
	n.types = c.types(s["type"])
	n.constants = c.constants(s)
	n.number, n.text, n.array, n.object = c.numberRules(s), c.textRules(s), c.arrayRules(s), c.objectRules(s)
	n.allOf, n.anyOf, n.oneOf = c.list(s, "allOf"), c.list(s, "anyOf"), c.list(s, "oneOf")
	n.not, n.condition = c.single(s, "not"), c.single(s, "if")
	if then, orElse := c.single(s, "then"), c.single(s, "else"); n.condition != nil {
		n.then, n.otherwise = then, orElse
	}
	c.byName(s, "$defs") // a malformed definition is refused even if no reference leads to it
	c.byName(s, "definitions")
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
	if !has(s, "enum", "const") {
		return nil
	}
	all, isEnum := s["enum"].([]any)
	if !isEnum && s["enum"] != nil {
		c.fail("enum is no array")
	}
	constant, isConst := s["const"]
	if isConst {
		all = append([]any{constant}, all...)
	}
	if !isEnum && !isConst || !c.weigh(all) {
		return nil
	}
	raw, err := json.Marshal(all)
	if err != nil {
		c.fail("enum: %w", err)
		return nil
	}
	made := &constants{seed: maphash.MakeSeed(), byHash: make(map[uint64][]int)}
	if made.values, err = index(raw, &c.budget); err != nil {
		c.fail("enum: %w", err)
		return nil
	}
	made.add(isConst, isEnum)
	return made
}

// add adds the constants by their hash. With both keywords, a value must be in both: only
// const can be.
func (m *constants) add(isConst, isEnum bool) {
	var wanted uint64
	for i := 1; i < len(m.values.all); i = int(m.values.all[i].next) {
		hash := m.values.hash(m.seed, i)
		if i == 1 && isConst {
			if wanted = hash; isEnum {
				continue
			}
		}
		if isConst && (hash != wanted || !m.values.equal(1, &m.values, i)) {
			continue
		}
		m.byHash[hash] = append(m.byHash[hash], i)
		if m.count++; m.count == 1 {
			m.first = fmt.Sprintf("%.100s", m.values.raw(i))
		}
	}
}

// weigh takes the steps for a value that is written and indexed. It reports false if there
// are not enough.
func (c *compiler) weigh(value any) bool {
	if !c.step(stepsPerValue) {
		return false
	}
	switch v := value.(type) {
	case string:
		return c.step(len(v) / 16)
	case []any:
		for _, element := range v {
			if !c.weigh(element) {
				return false
			}
		}
	case object:
		for name, member := range v {
			if !c.step(stepsPerValue+len(name)/16) || !c.weigh(member) {
				return false
			}
		}
	}
	return true
}

func (c *compiler) numberRules(s object) *numberRules {
	if !has(s, "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf") {
		return nil
	}
	r := &numberRules{c.number(s, "minimum"), c.number(s, "maximum"), c.number(s, "exclusiveMinimum"), c.number(s, "exclusiveMaximum"), c.number(s, "multipleOf")}
	if r.multiple <= 0 {
		c.fail("multipleOf is not above 0")
	}
	return r
}

func (c *compiler) textRules(s object) *textRules {
	if !has(s, "minLength", "maxLength", "pattern", "format") {
		return nil
	}
	r := &textRules{minLength: c.size(s, "minLength"), maxLength: c.size(s, "maxLength")}
	if source, ok := c.text(s, "pattern"); ok {
		r.pattern = c.pattern(source)
	}
	if name, ok := s["format"].(string); ok && c.isForm {
		r.format = formatOf(name)
	}
	if r.minLength < 0 && r.maxLength < 0 && r.pattern == nil && r.format == nil {
		return nil
	}
	return r
}

func (c *compiler) arrayRules(s object) *arrayRules {
	if !has(s, "prefixItems", "minItems", "maxItems", "contains", "unevaluatedItems", "items", "uniqueItems") {
		return nil
	}
	r := &arrayRules{
		unique: c.flag(s, "uniqueItems"), prefix: c.list(s, "prefixItems"), minItems: c.size(s, "minItems"), maxItems: c.size(s, "maxItems"),
		contains: c.single(s, "contains"), minContains: c.size(s, "minContains"), maxContains: c.size(s, "maxContains"),
		unevaluated: c.single(s, "unevaluatedItems"),
	}
	if tuple, isTuple := s["items"].([]any); isTuple { // draft-07
		r.prefix, r.items = c.all(tuple), c.single(s, "additionalItems")
	} else {
		r.items = c.single(s, "items")
	}
	if r.prefix == nil && r.items == nil && r.minItems < 0 && r.maxItems < 0 && !r.unique && r.contains == nil && r.unevaluated == nil {
		return nil
	}
	return r
}

func (c *compiler) flag(s object, keyword string) bool {
	flag, isFlag := s[keyword].(bool)
	if !isFlag && s[keyword] != nil {
		c.fail("%s is no boolean", keyword)
	}
	return flag
}

func (c *compiler) objectRules(s object) *objectRules {
	if !has(s, "properties", "additionalProperties", "propertyNames", "required", "minProperties", "maxProperties", "dependentSchemas",
		"unevaluatedProperties", "patternProperties", "dependentRequired", "dependencies") {
		return nil
	}
	r := &objectRules{
		properties: c.byName(s, "properties"), additional: c.single(s, "additionalProperties"), propertyNames: c.single(s, "propertyNames"),
		required: c.texts(s["required"], "required"), isRequired: make(map[string]bool), minProperties: c.size(s, "minProperties"), maxProperties: c.size(s, "maxProperties"),
		dependentSchemas: c.byName(s, "dependentSchemas"), unevaluated: c.single(s, "unevaluatedProperties"),
	}
	r.patterns = c.patternRules(s)
	c.dependencies(r, s["dependentRequired"], "dependentRequired")
	c.dependencies(r, s["dependencies"], "dependencies") // draft-07 has both kinds in one keyword
	if r.properties == nil && r.patterns == nil && r.additional == nil && r.propertyNames == nil && r.required == nil && r.minProperties < 0 && r.maxProperties < 0 &&
		r.dependentRequired == nil && r.dependentSchemas == nil && r.unevaluated == nil {
		return nil
	}
	for _, name := range r.required {
		r.isRequired[name] = true
	}
	return r
}

func (c *compiler) patternRules(s object) (rules []patternRule) {
	patterns := c.byName(s, "patternProperties")
	for _, source := range slices.Sorted(maps.Keys(patterns)) {
		if compiled := c.pattern(source); compiled != nil {
			rules = append(rules, patternRule{compiled, patterns[source]})
		}
	}
	return rules
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
		made := c.node(dependency)
		if other := r.dependentSchemas[name]; other != nil {
			made = &node{allOf: []*node{other, made}}
		}
		r.dependentSchemas[name] = made
	}
}
