package schema

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
)

// CheckReferences fails with ErrReference if a schema has a $dynamicRef, or a $ref to another document: then Compile refuses it. It
// checks nothing else, and does not decode a schema without such keywords, so it is fast enough for every tool of a list. It returns nil
// where only Compile finds such a keyword: in the target of a local $ref that is not below a keyword of JSON Schema, where the keyword is
// written with escapes, and in a schema above the size limit.
func CheckReferences(raw json.RawMessage) error {
	if len(raw) > largestSchema || !bytes.Contains(raw, []byte(`"$dynamicRef"`)) && !mayLeadOut(raw) {
		return nil
	}
	var root any
	if err := protocol.Unmarshal(raw, &root); err != nil {
		return nil
	}
	document, _ := root.(object)
	dialect, _ := document["$schema"].(string)
	return leadsOut(root, strings.Contains(dialect, "draft-07"))
}

// mayLeadOut reports whether the text has a $ref that does not begin with #.
func mayLeadOut(raw []byte) bool {
	const space = " \t\r\n"
	for found := true; found; {
		if _, raw, found = bytes.Cut(raw, []byte(`"$ref"`)); found {
			target, isMember := bytes.CutPrefix(bytes.TrimLeft(raw, space), []byte(":"))
			if isMember && !bytes.HasPrefix(bytes.TrimLeft(target, space), []byte(`"#`)) {
				return true
			}
		}
	}
	return false
}

// leadsOut returns the error of the first reference that leads out of a schema. It looks only where a compiler does: a constant may
// contain anything, and a property may be called $ref.
func leadsOut(schema any, isDraft07 bool) error {
	s, _ := schema.(object)
	ref, refers := s["$ref"].(string)
	switch {
	case s["$dynamicRef"] != nil:
		return dynamic(s["$dynamicRef"])
	case refers && !strings.HasPrefix(ref, "#"):
		return unresolved(ref)
	case refers && isDraft07: // it ignores the keywords beside $ref
		return nil
	}
	for _, keyword := range slices.Sorted(maps.Keys(s)) {
		var inside []any
		switch keyword {
		case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
			named, _ := s[keyword].(object)
			for _, name := range slices.Sorted(maps.Keys(named)) {
				inside = append(inside, named[name])
			}
		case "allOf", "anyOf", "oneOf", "prefixItems", "items":
			var isList bool
			if inside, isList = s[keyword].([]any); !isList {
				inside = []any{s[keyword]}
			}
		case "additionalItems":
			if _, isList := s["items"].([]any); isList {
				inside = []any{s[keyword]}
			}
		case "not", "if", "then", "else", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties":
			inside = []any{s[keyword]}
		}
		for _, one := range inside {
			if err := leadsOut(one, isDraft07); err != nil {
				return err
			}
		}
	}
	return nil
}
