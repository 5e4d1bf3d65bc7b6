package main

import (
	"encoding/json"
	"math"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/google/jsonschema-go/jsonschema"
)

const (
	largestSchema = 256 << 10 // bytes
	mostInPlace   = 1000      // schemas that apply to one value
)

// compile makes a validator of a peer's schema; nil for one that cannot be
// read, or that does not promise to end soon. Nothing is fetched.
func compile(raw json.RawMessage) *jsonschema.Resolved {
	parsed := new(jsonschema.Schema)
	if len(raw) > largestSchema || json.Unmarshal(raw, parsed) != nil || !known(parsed.Schema) {
		return nil
	}
	understood, err := json.Marshal(parsed)
	if err != nil || !endsSoon(understood) {
		return nil
	}
	validator, err := parsed.Resolve(nil)
	if err != nil {
		return nil
	}
	return validator
}

// known reports whether the validator knows this $schema: with another one it
// fails every value.
func known(dialect string) bool {
	switch dialect {
	case "", "https://json-schema.org/draft/2020-12/schema",
		"http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft-07/schema#":
		return true
	default:
		return false
	}
}

// endsSoon reports whether validating a value surely ends, and soon: a schema
// can refer to itself in place, which never ends, or double what is to be
// checked with each reference. It looks at what the validator has understood
// of a schema, since that ignores the case of names.
func endsSoon(understood json.RawMessage) bool {
	var root any
	if err := protocol.Unmarshal(understood, &root); err != nil {
		return false
	}
	document, _ := root.(object)
	delete(document, "$id") // of the whole document: local references mean the same
	counter := &inPlace{root: document, counts: make(map[string]float64)}
	return counter.everywhere(document)
}

// inPlace counts the schemas that apply to one value.
type inPlace struct {
	root   object
	counts map[string]float64 // by reference; endless while it is being counted
}

// everywhere looks at every object of the document as if it were a schema. An
// inner $id would change what references mean.
func (p *inPlace) everywhere(value any) bool {
	switch v := value.(type) {
	case object:
		_, identified := v["$id"].(string)
		if identified || p.count(v) > mostInPlace {
			return false
		}
		for _, member := range v {
			if !p.everywhere(member) {
				return false
			}
		}
	case []any:
		for _, element := range v {
			if !p.everywhere(element) {
				return false
			}
		}
	}
	return true
}

func (p *inPlace) count(value any) float64 {
	schema, ok := value.(object)
	if !ok {
		return 1
	}
	total := 1 + p.countReference(schema)
	for _, keyword := range []string{"not", "if", "then", "else"} {
		if applied, ok := schema[keyword]; ok {
			total += p.count(applied)
		}
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := schema[keyword].([]any)
		for _, applied := range list {
			total += p.count(applied)
		}
	}
	for _, keyword := range []string{"dependentSchemas", "dependencies"} {
		byName, _ := schema[keyword].(object)
		for _, applied := range byName {
			total += p.count(applied)
		}
	}
	return total
}

// countReference counts what a reference leads to; one that cannot be followed
// here is endless.
func (p *inPlace) countReference(schema object) float64 {
	if schema["$dynamicRef"] != nil {
		return math.Inf(1)
	}
	ref, ok := schema["$ref"].(string)
	if !ok {
		return 0
	}
	if known, ok := p.counts[ref]; ok {
		return known
	}
	p.counts[ref] = math.Inf(1)
	if target, ok := resolve(p.root, ref); ok {
		p.counts[ref] = p.count(target)
	}
	return p.counts[ref]
}
