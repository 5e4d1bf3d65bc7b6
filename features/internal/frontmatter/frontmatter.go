// Package frontmatter reads the YAML at the beginning of a SKILL.md as the JSON that
// the skills extension wants (SEP-2640).
package frontmatter

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// Bounds of what is read: a file may come from a peer.
const (
	MaxBytes = 64 << 10 // of the YAML
	maxDepth = 32
)

var mark = []byte("---")

// Parse returns the frontmatter of a file as a JSON object, with every field as it was
// written: a date is text. Anchors, aliases, tags of one's own and keys that are no
// text are errors.
func Parse(file []byte) (stdjson.RawMessage, error) {
	text, err := cut(file)
	if err == nil {
		var raw []byte
		if raw, err = toJSON(text); err == nil {
			return raw, nil
		}
	}
	return nil, fmt.Errorf("frontmatter: %w", err)
}

// cut returns the YAML between the first line and the next line of ---. It stops reading at
// MaxBytes, however large the file is.
func cut(file []byte) (text []byte, err error) {
	first, rest, ok := bytes.Cut(bytes.TrimPrefix(file, []byte("\ufeff")), []byte("\n"))
	if !ok || !bytes.Equal(bytes.TrimRight(first, " \t\r"), mark) {
		return nil, errors.New("the file does not begin with a line of ---")
	}
	for {
		var line []byte
		line, rest, ok = bytes.Cut(rest, []byte("\n"))
		switch {
		case bytes.Equal(bytes.TrimRight(line, " \t\r"), mark):
			return text, nil
		case !ok:
			return nil, errors.New("no line of --- ends it")
		case len(text)+len(line) > MaxBytes:
			return nil, fmt.Errorf("it is larger than %d bytes", MaxBytes)
		}
		text = append(append(text, line...), '\n')
	}
}

// toJSON writes a mapping as JSON. Equal files get equal bytes, so that a client may compare them.
func toJSON(text []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("it is no mapping")
	}
	value, err := valueOf(document.Content[0], 0)
	if err != nil {
		return nil, err
	}
	return json.Marshal(value, json.Deterministic(true))
}

// valueOf returns a node as JSON has it. Anchors are refused before anything is followed: a few of
// them can stand for more than fits into memory.
func valueOf(n *yaml.Node, depth int) (any, error) {
	switch {
	case depth > maxDepth:
		return nil, fmt.Errorf("it is deeper than %d levels", maxDepth)
	case n.Anchor != "" || n.Kind == yaml.AliasNode:
		return nil, fmt.Errorf("line %d: anchors and aliases are not taken", n.Line)
	case n.Kind == yaml.MappingNode:
		return membersOf(n, depth)
	case n.Kind == yaml.SequenceNode:
		return elementsOf(n, depth)
	default:
		return scalarOf(n)
	}
}

// membersOf returns a mapping. YAML allows keys of any type; JSON has texts, and each once.
func membersOf(n *yaml.Node, depth int) (map[string]any, error) {
	members := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
			return nil, fmt.Errorf("line %d: a key is no text", key.Line)
		}
		if _, twice := members[key.Value]; twice {
			return nil, fmt.Errorf("line %d: %.100q is there twice", key.Line, key.Value)
		}
		value, err := valueOf(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		members[key.Value] = value
	}
	return members, nil
}

func elementsOf(n *yaml.Node, depth int) ([]any, error) {
	all := make([]any, 0, len(n.Content))
	for _, element := range n.Content {
		value, err := valueOf(element, depth+1)
		if err != nil {
			return nil, err
		}
		all = append(all, value)
	}
	return all, nil
}

// scalarOf returns a text, a number, a bool or null. A date stays the text that was written: JSON
// has none. Tags of one's own are refused, since they may name any type.
func scalarOf(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		return n.Value, nil
	case "!!null":
		return nil, nil
	case "!!bool", "!!int", "!!float":
		var value any
		if err := n.Decode(&value); err != nil {
			return nil, err
		}
		return value, nil
	default:
		return nil, fmt.Errorf("line %d: the tag %.100q is not taken", n.Line, n.Tag)
	}
}

// Equal reports whether two JSON values mean the same: neither the order of members
// nor how a number is written counts.
func Equal(a, b stdjson.RawMessage) bool {
	left, right := jsontext.Value(bytes.Clone(a)), jsontext.Value(bytes.Clone(b))
	return left.Canonicalize() == nil && right.Canonicalize() == nil && bytes.Equal(left, right)
}
