package schema

import (
	"bytes"
	"reflect"

	"github.com/bowline-mcp/bowline/internal/scan"
)

// A shape is a schema with only types, properties and items, as most tools
// have. It finds in one pass that most values surely fit. About the other
// values it says nothing. Every value fits a nil shape.
type shape struct {
	types      types             // 0: any type
	properties map[string]*shape // the schemas of members, by name
	required   map[string]bool   // the names of required members
	additional *shape            // the schema of all other members
	closed     bool              // other members are not allowed
	items      *shape
}

// shapeOf returns the shape of a schema. It reports false if the schema has other
// keywords, too.
func shapeOf(n *node) (*shape, bool) {
	if n == nil {
		return nil, true
	}
	rest := *n
	rest.types, rest.array, rest.object = 0, nil, nil
	if !reflect.ValueOf(rest).IsZero() {
		return nil, false
	}
	built := &shape{types: n.types}
	if !built.addItems(n.array) || !built.addMembers(n.object) {
		return nil, false
	}
	return built, true
}

func (s *shape) addItems(r *arrayRules) (ok bool) {
	if r == nil {
		return true
	}
	if r.prefix != nil || r.minItems >= 0 || r.maxItems >= 0 || r.unique || r.contains != nil || r.unevaluated != nil {
		return false
	}
	s.items, ok = shapeOf(r.items)
	return ok
}

func (s *shape) addMembers(r *objectRules) (ok bool) {
	if r == nil {
		return true
	}
	if r.patterns != nil || r.propertyNames != nil || r.minProperties >= 0 || r.maxProperties >= 0 ||
		r.dependentRequired != nil || r.dependentSchemas != nil || r.unevaluated != nil {
		return false
	}
	s.properties, s.required = make(map[string]*shape, len(r.properties)), r.isRequired
	for name, property := range r.properties {
		if s.properties[name], ok = shapeOf(property); !ok {
			return false
		}
	}
	if s.closed = r.additional != nil && r.additional.never; s.closed {
		return true
	}
	s.additional, ok = shapeOf(r.additional)
	return ok
}

// surelyFits reports whether a value is JSON without repeated names, and surely
// fits.
func (s *shape) surelyFits(value []byte) bool {
	text := scan.Unique(value)
	s.read(&text)
	return text.End()
}

// read reads the next value. The text fails unless the value surely fits.
func (s *shape) read(text *scan.Text) {
	if s == nil {
		text.Value()
		return
	}
	switch kind := text.Kind(); {
	case kind == '0':
		s.readNumber(text)
	case s.types != 0 && s.types&typeOf(kind) == 0:
		text.Fail()
	case kind == '{':
		s.readObject(text)
	case kind == '[':
		for range text.Elements {
			s.items.read(text)
		}
	default:
		text.Value()
	}
}

func typeOf(kind byte) types {
	switch kind {
	case '{':
		return typeObject
	case '[':
		return typeArray
	case '"':
		return typeString
	case 't', 'f':
		return typeBoolean
	case 'n':
		return typeNull
	default:
		return 0
	}
}

// readNumber accepts only short decimals. It does not decide about numbers in
// another notation, nor about a number with a fraction where the schema has
// integer.
func (s *shape) readNumber(text *scan.Text) {
	value := text.Value()
	isInteger := bytes.IndexByte(value, '.') < 0
	if len(value) > 18 || bytes.ContainsAny(value, "eE") ||
		s.types != 0 && s.types&typeNumber == 0 && (s.types&typeInteger == 0 || !isInteger) {
		text.Fail()
	}
}

// readObject counts the required members. No name occurs twice.
func (s *shape) readObject(text *scan.Text) {
	missing := len(s.required)
	for name := range text.Members {
		if s.required[string(name)] {
			missing--
		}
		member, named := s.properties[string(name)]
		switch {
		case named:
			member.read(text)
		case s.closed:
			text.Fail()
		default:
			s.additional.read(text)
		}
	}
	if missing > 0 {
		text.Fail()
	}
}
