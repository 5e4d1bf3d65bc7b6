package typed

import (
	"bytes"
	stdjson "encoding/json"
	"maps"
	"slices"

	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/google/jsonschema-go/jsonschema"
)

// Defaults are the defaults of the members of an object, ordered by name.
type Defaults []preset

// A preset is the default of one member. Its value is complete: the defaults of its own members are
// in it.
type preset struct {
	name   string
	value  stdjson.RawMessage // what the member is if it is missing
	within Defaults           // the defaults of the member's own members
}

// with adds the default of a member. Value is nil if only members of it have defaults: then a
// missing member becomes an object of them.
func (d Defaults) with(name string, value stdjson.RawMessage, within Defaults) Defaults {
	// A member without any default must stay missing: filled in as an object, it would hide that the client has left
	// out what is required.
	if value == nil && within == nil {
		return d
	}
	if value == nil {
		value = stdjson.RawMessage("{}")
	}
	return append(d, preset{name, within.FillIn(value), within})
}

// Defaults returns all defaults, also those of nested objects. Call it once for each feature: it
// walks the whole schema.
func (s Schema) Defaults() Defaults { return defaultsOf(s.Schema) }

// defaultsOf goes into nested objects, but not into lists: nobody knows how many elements are missing.
func defaultsOf(s *jsonschema.Schema) (all Defaults) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		var within Defaults
		if property := s.Properties[name]; property.Type == "object" {
			within = defaultsOf(property)
		}
		all = all.with(name, s.Properties[name].Default, within)
	}
	return all
}

// DeclaredDefaults returns the defaults of the members that a schema describes and, if
// deep is set, those of nested objects. The schema is one that the program has written: a part that
// cannot be read has no defaults, and whoever compiles the schema says what is wrong with it.
func DeclaredDefaults(schema stdjson.RawMessage, deep bool) (all Defaults) {
	var object struct {
		Properties map[string]stdjson.RawMessage `json:"properties"`
	}
	if protocol.Unmarshal(schema, &object) != nil {
		return nil // a schema that is no object, such as true
	}
	for _, name := range slices.Sorted(maps.Keys(object.Properties)) {
		raw := object.Properties[name]
		var property struct {
			Default stdjson.RawMessage `json:"default"`
		}
		if protocol.Unmarshal(raw, &property) != nil {
			continue
		}
		var within Defaults
		if deep {
			within = DeclaredDefaults(raw, deep)
		}
		all = all.with(name, property.Default, within)
	}
	return all
}

// FillIn returns an object with the members that it lacks. The object is valid JSON. It is
// not copied if nothing is missing, or if it is no object.
//
// It works on the text, and does not decode and encode: what a client has written stays as it is,
// large numbers included, and most calls lack nothing.
func (d Defaults) FillIn(object stdjson.RawMessage) stdjson.RawMessage {
	if object = bytes.TrimSpace(object); len(d) == 0 || len(object) == 0 || object[0] != '{' {
		return object
	}
	var room [8]*preset // most tools have fewer defaults
	filled, missing := d.within(object, room[:0])
	if len(missing) == 0 {
		return filled
	}
	return withMembers(filled, missing)
}

// within fills in the members of members, and appends those that the object lacks itself.
func (d Defaults) within(object stdjson.RawMessage, missing []*preset) (filled stdjson.RawMessage, _ []*preset) {
	filled = object
	for i := range d {
		p := &d[i]
		given, _ := jsonrpc.Member(object, p.name)
		if given == nil {
			missing = append(missing, p)
		} else if within := p.within.FillIn(given); len(within) > len(given) {
			filled = withMember(filled, p.name, within)
		}
	}
	return filled, missing
}

// withMembers returns a copy of an object with these members at its end. It allocates once. An
// object that was cut stays as it is, and the error is reported when it is decoded.
func withMembers(object stdjson.RawMessage, missing []*preset) stdjson.RawMessage {
	end := bytes.LastIndexByte(object, '}')
	if end < 0 {
		return object
	}
	// With a comma for each member. Names that have to be escaped take more; then append gets it.
	size := end + len("}")
	for _, p := range missing {
		size += len(p.name) + len(p.value) + len(`,"":`)
	}
	filled := append(make(stdjson.RawMessage, 0, size), object[:end]...)
	empty := len(bytes.TrimSpace(object[1:end])) == 0
	for i, p := range missing {
		if i > 0 || !empty {
			filled = append(filled, ',')
		}
		filled = append(scan.AppendQuote(filled, p.name), ':')
		filled = append(filled, p.value...)
	}
	return append(filled, '}')
}

// withMember returns an object with another value of one of its members. An object that cannot be
// read stays as it is, and the error is reported when it is decoded. Unlike withMembers, it decodes
// the object: only defaults within an object that a client has given in part need it.
func withMember(object stdjson.RawMessage, name string, value stdjson.RawMessage) stdjson.RawMessage {
	var members map[string]stdjson.RawMessage
	if protocol.Unmarshal(object, &members) != nil {
		return object
	}
	members[name] = value
	changed, err := protocol.Marshal(members)
	if err != nil {
		return object
	}
	return changed
}
