package schema

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// An InvalidError says that a value does not fit its schema. Its text tells people and
// models what to change.
type InvalidError struct {
	Path   string // a JSON Pointer to the part that does not fit; empty for the whole value
	Reason string // such as: is a string, not an integer
}

func (e *InvalidError) Error() string {
	if e.Path == "" {
		return "the value " + e.Reason
	}
	return e.Path + " " + e.Reason
}

// A fault says which rule of a schema a value breaks. The zero fault means that the
// value breaks no rule.
type fault struct {
	rule string // the keyword
	node *node
	at   int    // the position of the value
	name string // the name of a member, or a pattern, for some rules
}

func (f fault) isNone() bool { return f.rule == "" }

// reason says what is wrong, after the path of the value.
func (e *evaluation) reason(f fault) string {
	n := f.node
	switch f.rule {
	case "type":
		return fmt.Sprintf("is %s, not %s", describe(e.kindName(f.at)), describe(n.types.String()))
	case "enum":
		if n.constants.count == 1 {
			return "is not " + n.constants.first
		}
		return fmt.Sprintf("is none of the %d allowed values, such as %s", n.constants.count, n.constants.first)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		return n.number.reason(f.rule)
	case "minLength", "maxLength", "pattern", "format":
		return n.text.reason(f.rule)
	case "minItems", "maxItems", "contains", "maxContains", "uniqueItems", "unevaluatedItems":
		return n.array.reason(f.rule)
	case "required", "dependentRequired", "minProperties", "maxProperties", "additionalProperties":
		return e.reasonOfObject(f)
	case "anyOf":
		return fmt.Sprintf("fits none of the %d alternatives", max(len(n.anyOf), len(n.oneOf)))
	case "oneOf":
		return "fits more than one of the alternatives, of which it must fit exactly one"
	case "not":
		return "fits a schema that it must not fit"
	default:
		return "is not allowed"
	}
}

// reason says what is wrong with a text.
func (r *textRules) reason(rule string) string {
	switch rule {
	case "minLength":
		return "is shorter than " + counted(r.minLength, "character")
	case "maxLength":
		return "is longer than " + counted(r.maxLength, "character")
	case "pattern":
		return fmt.Sprintf("does not match the pattern %.200q", r.pattern.source)
	default:
		return "is not " + r.format.is
	}
}

// reason says what is wrong with an array.
func (r *arrayRules) reason(rule string) string {
	switch rule {
	case "minItems":
		return "has fewer than " + counted(r.minItems, "element")
	case "maxItems":
		return "has more than " + counted(r.maxItems, "element")
	case "contains":
		return "has fewer than " + counted(max(1, r.minContains), "element") + " that the schema of contains allows"
	case "maxContains":
		return "has more than " + counted(r.maxContains, "element") + " that the schema of contains allows"
	case "uniqueItems":
		return "has two equal elements"
	default:
		return "is an element that the schema does not allow"
	}
}

// reasonOfObject says what is wrong with an object. It looks for the first required member that is missing.
func (e *evaluation) reasonOfObject(f fault) string {
	r := f.node.object
	switch f.rule {
	case "required":
		missing := slices.IndexFunc(r.required, func(name string) bool { return !e.values.has(f.at, name) })
		return fmt.Sprintf("lacks the member %.100q", r.required[max(0, missing)])
	case "dependentRequired":
		return fmt.Sprintf("lacks the member %.100q, which another member needs", f.name)
	case "minProperties":
		return "has fewer than " + counted(r.minProperties, "member")
	case "maxProperties":
		return "has more than " + counted(r.maxProperties, "member")
	default:
		return fmt.Sprintf("has the member %.100q, which the schema does not allow", f.name)
	}
}

// reason says what is wrong with a number.
func (r *numberRules) reason(rule string) string {
	switch rule {
	case "minimum":
		return "is less than " + decimal(r.minimum)
	case "maximum":
		return "is more than " + decimal(r.maximum)
	case "exclusiveMinimum":
		return "is not more than " + decimal(r.above)
	case "exclusiveMaximum":
		return "is not less than " + decimal(r.below)
	default:
		return "is not a multiple of " + decimal(r.multiple)
	}
}

func (e *evaluation) kindName(at int) string {
	switch e.values.all[at].kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean"
	case '"':
		return "string"
	case '[':
		return "array"
	case '{':
		return "object"
	default:
		return "number"
	}
}

func decimal(number float64) string {
	if math.Abs(number) < 1e21 {
		return strconv.FormatFloat(number, 'f', -1, 64)
	}
	return strconv.FormatFloat(number, 'g', -1, 64)
}

// describe puts an article before the name of a type.
func describe(name string) string {
	switch {
	case name == "null":
		return name
	case strings.ContainsRune("aoi", rune(name[0])):
		return "an " + name
	default:
		return "a " + name
	}
}

func counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", one, "s")
}
