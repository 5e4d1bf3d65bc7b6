package schema

import (
	"hash/maphash"
	"math"
	"unicode/utf8"
)

// An evaluation validates one value. It remembers the results of references in
// its memo. Without the memo, the time for a schema that refers to itself from
// two alternatives would be exponential in the depth of the value.
type evaluation struct {
	budget
	depth  int
	values values
	memo   map[memoKey]memoResult // the results for the targets of references
}

type memoKey struct {
	node       *node
	at         int
	collecting bool
}

type memoResult struct {
	fault fault
	seen  []bool
}

// apply validates a value against a schema. If seen is not nil, apply marks the
// elements or members of the value that the schema evaluates, in their order.
// After a fault, the caller must ignore the marks.
func (e *evaluation) apply(n *node, at int, seen []bool) fault {
	if e.depth++; e.depth > maxDepth && e.stopped == nil {
		e.stopped = ErrTooCostly
	}
	f := e.check(n, at, seen)
	e.depth--
	return f
}

func (e *evaluation) check(n *node, at int, seen []bool) fault {
	if !e.step(1) {
		return fault{rule: "stopped", node: n, at: at}
	}
	if n.never {
		return fault{rule: "false", node: n, at: at}
	}
	if n.hasUnevaluated(e.values.all[at].kind == '{') && seen == nil {
		seen = make([]bool, e.values.count(at))
	}
	if n.ref != nil {
		if f := e.follow(n.ref, at, seen); !f.isNone() {
			return f
		}
	}
	if f := e.checkValue(n, at, seen); !f.isNone() {
		return f
	}
	if f := e.combine(n, at, seen); !f.isNone() {
		return f
	}
	return e.checkUnevaluated(n, at, seen)
}

// follow applies the target of a reference, or takes the result from the memo.
func (e *evaluation) follow(target *node, at int, seen []bool) fault {
	q := memoKey{target, at, seen != nil}
	known, ok := e.memo[q]
	if !ok {
		if seen != nil {
			known.seen = make([]bool, len(seen))
		}
		if !e.step(1 + len(seen)/8) {
			return fault{rule: "stopped", node: target, at: at}
		}
		known.fault = e.apply(target, at, known.seen)
		switch {
		case e.memo == nil:
			e.memo = make(map[memoKey]memoResult)
		case len(e.memo) >= maxMemo:
			clear(e.memo)
		}
		e.memo[q] = known
	}
	e.merge(seen, known.seen, known.fault)
	return known.fault
}

// applySame applies another schema to the same value.
func (e *evaluation) applySame(n *node, at int, seen []bool) fault {
	if seen == nil {
		return e.apply(n, at, nil)
	}
	if !e.step(len(seen) / 8) {
		return fault{rule: "stopped", node: n, at: at}
	}
	own := make([]bool, len(seen))
	f := e.apply(n, at, own)
	e.merge(seen, own, f)
	return f
}

func (e *evaluation) merge(seen, own []bool, f fault) {
	if !f.isNone() || !e.step(len(own)/8) {
		return
	}
	for i, marked := range own {
		seen[i] = seen[i] || marked
	}
}

// checkValue checks a value by itself, then its elements or members.
func (e *evaluation) checkValue(n *node, at int, seen []bool) fault {
	kind := e.values.all[at].kind
	broken := func(rule string) fault { return fault{rule: rule, node: n, at: at} }
	if n.types != 0 && !e.isOf(n.types, at) {
		return broken("type")
	}
	if n.constants != nil && !e.isConstant(n.constants, at) {
		return broken("enum")
	}
	rule := ""
	switch {
	case n.number != nil && kind == '0':
		rule = n.number.broken(e.values.number(at))
	case n.text != nil && kind == '"':
		rule = e.brokenText(n.text, e.values.string(at))
	case n.array != nil && kind == '[':
		return e.elements(n, at, seen)
	case n.object != nil && kind == '{':
		return e.members(n, at, seen)
	}
	return broken(rule) // no rule: no fault
}

// broken names the rule that a number breaks, or none.
func (r *numberRules) broken(number float64) string {
	switch {
	case number < r.minimum:
		return "minimum"
	case number > r.maximum:
		return "maximum"
	case number <= r.above:
		return "exclusiveMinimum"
	case number >= r.below:
		return "exclusiveMaximum"
	case r.multiple > 0 && !isMultiple(number, r.multiple):
		return "multipleOf"
	}
	return ""
}

// brokenText names the rule that a text breaks, or none.
func (e *evaluation) brokenText(r *textRules, text []byte) string {
	length := utf8.RuneCount(text)
	switch {
	case !e.step(len(text) / 64):
		return "stopped"
	case r.minLength > length:
		return "minLength"
	case r.maxLength >= 0 && r.maxLength < length:
		return "maxLength"
	case r.pattern != nil && !e.matches(r.pattern, text):
		return "pattern"
	case r.format != nil && !r.format.fits(string(text)):
		return "format"
	}
	return ""
}

func (e *evaluation) isOf(allowed types, at int) bool {
	switch e.values.all[at].kind {
	case 'n':
		return allowed&typeNull != 0
	case 't', 'f':
		return allowed&typeBoolean != 0
	case '"':
		return allowed&typeString != 0
	case '[':
		return allowed&typeArray != 0
	case '{':
		return allowed&typeObject != 0
	}
	if allowed&typeNumber != 0 {
		return true
	}
	number := e.values.number(at)
	return allowed&typeInteger != 0 && number == math.Trunc(number)
}

func (e *evaluation) isConstant(c *constants, at int) bool {
	if !e.step(e.values.size(at) + len(e.values.raw(at))/64) {
		return false
	}
	for _, constant := range c.byHash[e.values.hash(c.seed, at)] {
		if e.values.equal(at, &c.values, constant) {
			return true
		}
	}
	return false
}

// isMultiple allows for the rounding of decimal fractions.
func isMultiple(number, of float64) bool {
	quotient := number / of
	return !math.IsInf(quotient, 0) && math.Abs(quotient-math.Round(quotient)) <= 1e-12*math.Max(1, math.Abs(quotient))
}

// matches counts the steps of the worst case of package regexp, which is each
// instruction for each byte: a match cannot be stopped.
func (e *evaluation) matches(p *pattern, text []byte) bool {
	return e.step((len(text)+1)*p.size/8) && p.re.Match(text)
}

func (e *evaluation) elements(n *node, at int, seen []bool) fault {
	r, count, fitting := n.array, 0, 0
	for i := range e.values.inside(at) {
		if !e.step(1) {
			return fault{rule: "stopped", node: n, at: at}
		}
		if item := r.item(count); item != nil {
			if f := e.apply(item, i, nil); !f.isNone() {
				return f
			}
			mark(seen, count)
		}
		if r.contains != nil && e.apply(r.contains, i, nil).isNone() {
			fitting++
			mark(seen, count)
		}
		count++
	}
	rule := r.broken(count, fitting)
	if rule == "" && r.unique && !e.isUnique(at) {
		rule = "uniqueItems"
	}
	return fault{rule: rule, node: n, at: at}
}

// broken names the rule that an array with so many elements breaks, of which so many fit contains.
func (r *arrayRules) broken(count, fitting int) string {
	switch {
	case count < r.minItems:
		return "minItems"
	case r.maxItems >= 0 && count > r.maxItems:
		return "maxItems"
	case r.contains != nil && (r.minContains < 0 && fitting == 0 || fitting < r.minContains):
		return "contains"
	case r.contains != nil && r.maxContains >= 0 && fitting > r.maxContains:
		return "maxContains"
	}
	return ""
}

// item is the schema of an element; nil: none.
func (r *arrayRules) item(at int) *node {
	if at < len(r.prefix) {
		return r.prefix[at]
	}
	return r.items
}

// isUnique compares only elements with the same hash, so that its time is
// linear.
func (e *evaluation) isUnique(at int) bool {
	if !e.step(e.values.size(at) + len(e.values.raw(at))/64) {
		return false
	}
	seed := maphash.MakeSeed()
	byHash := make(map[uint64][]int)
	for i := range e.values.inside(at) {
		hash := e.values.hash(seed, i)
		for _, other := range byHash[hash] {
			if e.values.equal(i, &e.values, other) {
				return false
			}
		}
		byHash[hash] = append(byHash[hash], i)
	}
	return true
}

func mark(seen []bool, i int) {
	if seen != nil {
		seen[i] = true
	}
}

func (e *evaluation) members(n *node, at int, seen []bool) fault {
	count, required := 0, 0
	for i := range e.values.inside(at) {
		if !e.step(1) {
			return fault{rule: "stopped", node: n, at: at}
		}
		name := e.values.string(i)
		if n.object.isRequired[string(name)] {
			required++
		}
		f, evaluated := e.member(n, at, name, i)
		if evaluated {
			mark(seen, count)
		}
		if f.isNone() {
			f = e.dependents(n, at, name, seen)
		}
		if !f.isNone() {
			return f
		}
		count++
	}
	return fault{rule: n.object.broken(count, required), node: n, at: at}
}

// dependents checks what an object has to be because it has a member.
func (e *evaluation) dependents(n *node, at int, name []byte, seen []bool) fault {
	for _, other := range n.object.dependentRequired[string(name)] {
		if !e.step(e.values.size(at) / 2) {
			return fault{rule: "stopped", node: n, at: at}
		}
		if !e.values.has(at, other) {
			return fault{rule: "dependentRequired", node: n, at: at, name: other}
		}
	}
	if dependent := n.object.dependentSchemas[string(name)]; dependent != nil {
		return e.applySame(dependent, at, seen)
	}
	return fault{}
}

// broken names the rule that an object with so many members breaks, of which so many are required.
func (r *objectRules) broken(count, required int) string {
	switch {
	case required < len(r.isRequired):
		return "required"
	case count < r.minProperties:
		return "minProperties"
	case r.maxProperties >= 0 && count > r.maxProperties:
		return "maxProperties"
	}
	return ""
}

// member checks one member of an object, and its name, which is at a position. It reports whether any rule
// applied to the member.
func (e *evaluation) member(n *node, object int, name []byte, at int) (f fault, evaluated bool) {
	r := n.object
	if r.propertyNames != nil {
		f = e.apply(r.propertyNames, at, nil)
	}
	if property := r.properties[string(name)]; property != nil && f.isNone() {
		f, evaluated = e.apply(property, at+1, nil), true
	}
	for _, pattern := range r.patterns {
		if f.isNone() && e.matches(pattern.pattern, name) {
			f, evaluated = e.apply(pattern.node, at+1, nil), true
		}
	}
	switch {
	case evaluated || r.additional == nil || !f.isNone():
		return f, evaluated
	case r.additional.never:
		return fault{rule: "additionalProperties", node: n, at: object, name: string(name)}, true
	default:
		return e.apply(r.additional, at+1, nil), true
	}
}

// combine checks the keywords that apply several schemas to the same value.
func (e *evaluation) combine(n *node, at int, seen []bool) fault {
	for _, one := range n.allOf {
		if f := e.applySame(one, at, seen); !f.isNone() {
			return f
		}
	}
	if n.anyOf != nil && e.countFitting(n.anyOf, at, seen, seen == nil) == 0 {
		return fault{rule: "anyOf", node: n, at: at}
	}
	if n.oneOf != nil {
		if fitting := e.countFitting(n.oneOf, at, seen, false); fitting == 0 {
			return fault{rule: "anyOf", node: n, at: at}
		} else if fitting > 1 {
			return fault{rule: "oneOf", node: n, at: at}
		}
	}
	if n.not != nil && e.apply(n.not, at, nil).isNone() {
		return fault{rule: "not", node: n, at: at}
	}
	return e.branch(n, at, seen)
}

// branch applies then or else, as the condition says.
func (e *evaluation) branch(n *node, at int, seen []bool) fault {
	if n.condition == nil {
		return fault{}
	}
	branch := n.otherwise
	if e.applySame(n.condition, at, seen).isNone() {
		branch = n.then
	}
	if branch == nil {
		return fault{}
	}
	return e.applySame(branch, at, seen)
}

// countFitting counts the schemas that a value fits.
func (e *evaluation) countFitting(all []*node, at int, seen []bool, firstOnly bool) (count int) {
	for _, one := range all {
		if e.applySame(one, at, seen).isNone() {
			count++
		}
		if firstOnly && count > 0 || e.stopped != nil {
			break
		}
	}
	return count
}

// checkUnevaluated checks the elements or members that no other keyword has evaluated.
func (e *evaluation) checkUnevaluated(n *node, at int, seen []bool) fault {
	isObject := e.values.all[at].kind == '{'
	if !n.hasUnevaluated(isObject) {
		return fault{}
	}
	rule, count := n.unevaluated(isObject), 0
	for i := range e.values.inside(at) {
		switch {
		case seen[count]:
		case isObject && !e.apply(rule, i+1, nil).isNone():
			return fault{rule: "additionalProperties", node: n, at: at, name: string(e.values.string(i))}
		case !isObject && !e.apply(rule, i, nil).isNone():
			return fault{rule: "unevaluatedItems", node: n, at: i}
		}
		seen[count] = true
		count++
	}
	return fault{}
}
