package schema

import (
	"bytes"
	"reflect"

	"github.com/bowline-mcp/bowline/internal/scan"
)

// A shape is a schema that has nothing but types, properties and items, as the
// schemas of most tools. It decides for most values, in one pass, that they
// surely fit. For the others it decides nothing. A nil shape is one that every
// value fits.
type shape struct {
	types   types             // 0: any
	members map[string]*shape // by name
	needed  map[string]bool   // the names of required members
	others  *shape            // of members that have no name here
	closed  bool              // no others are allowed
	items   *shape
}

// shapeOf returns the shape of a schema, unless there is more to the schema.
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
	if r.prefix != nil || r.shortest >= 0 || r.longest >= 0 || r.unique || r.contains != nil || r.unevaluated != nil {
		return false
	}
	s.items, ok = shapeOf(r.items)
	return ok
}

func (s *shape) addMembers(r *objectRules) (ok bool) {
	if r == nil {
		return true
	}
	if r.patterns != nil || r.names != nil || r.fewest >= 0 || r.most >= 0 ||
		r.dependentRequired != nil || r.dependentSchemas != nil || r.unevaluated != nil {
		return false
	}
	s.members, s.needed = make(map[string]*shape, len(r.properties)), r.isRequired
	for name, property := range r.properties {
		if s.members[name], ok = shapeOf(property); !ok {
			return false
		}
	}
	if s.closed = r.additional != nil && r.additional.never; s.closed {
		return true
	}
	s.others, ok = shapeOf(r.additional)
	return ok
}

// surelyFits reports whether a value is JSON, without repeated names, and fits.
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

// readNumber takes short decimals. It is not sure of numbers written otherwise, nor
// of an integer with a fraction.
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
	needed := len(s.needed)
	for name := range text.Members {
		if s.needed[string(name)] {
			needed--
		}
		member, named := s.members[string(name)]
		switch {
		case named:
			member.read(text)
		case s.closed:
			text.Fail()
		default:
			s.others.read(text)
		}
	}
	if needed > 0 {
		text.Fail()
	}
}
