package schema

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
)

// mostInPlace bounds the schemas that apply to one value.
const mostInPlace = 1000

type object = map[string]any

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
	if target, ok := Resolve(p.root, ref); ok {
		p.counts[ref] = p.count(target)
	}
	return p.counts[ref]
}

// Resolve follows a reference within a document: "#", "#/$defs/name" and the
// like.
func Resolve(document map[string]any, ref string) (target any, ok bool) {
	if ref == "#" {
		return document, true
	}
	pointer, local := strings.CutPrefix(ref, "#/")
	if !local {
		return nil, false
	}
	target = document
	for name := range strings.SplitSeq(pointer, "/") {
		parent, _ := target.(object)
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		if target, ok = parent[name]; !ok {
			return nil, false
		}
	}
	return target, true
}
