// Package arguments turns the words of a command line into the arguments of a tool, as the schema of the
// tool has them, and shows which a tool takes. It starts no goroutine.
//
// A schema comes from a server, which may be hostile: every walk through one is bounded, and what
// cannot be understood is left to the server to check.
package arguments

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/protocol"
)

// largestInput is the maximum size of arguments from standard input, in bytes. A
// frame cannot be larger.
const largestInput = 16 << 20

// Given holds the arguments of a tool as the command line gives them: one
// object, or pairs that become one when the schema of the tool is known.
type Given struct {
	whole json.RawMessage
	pairs []Pair
}

// A Pair is one argument as it is typed.
type Pair struct {
	key, Value string
	isJSON     bool // the value is JSON, whatever the schema says
}

// Read reads the words after the name of a tool: one object, - for one on standard input, or pairs.
func Read(ctx context.Context, args []string, stdin io.Reader) (Given, error) {
	switch {
	case len(args) == 0:
		return Given{whole: json.RawMessage("{}")}, nil
	case len(args) == 1 && args[0] == "-":
		raw, err := readInput(ctx, stdin)
		if err != nil {
			return Given{}, fmt.Errorf("standard input: %w", err)
		}
		return readObject("standard input", raw)
	case len(args) == 1 && strings.HasPrefix(strings.TrimSpace(args[0]), "{"):
		return readObject("the argument", []byte(args[0]))
	default:
		return readPairs(args)
	}
}

// readInput reads all of standard input.
func readInput(ctx context.Context, stdin io.Reader) ([]byte, error) {
	raw, err := process.Await(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(stdin, largestInput+1)) })
	if len(raw) > largestInput {
		return nil, fmt.Errorf("above the limit of %d bytes", largestInput)
	}
	return raw, err
}

func readObject(where string, raw []byte) (Given, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return Given{}, fmt.Errorf("%s is empty: give a JSON object", where)
	}
	var value any
	if err := protocol.Unmarshal(raw, &value); err != nil {
		return Given{}, fmt.Errorf("%s is not JSON: %w", where, errors.Unwrap(err))
	}
	if _, ok := value.(Object); !ok {
		return Given{}, fmt.Errorf("%s is JSON, but not an object", where)
	}
	return Given{whole: raw}, nil
}

// WhereServersAre ends the error about an argument that may be meant as a server.
const WhereServersAre = "; a server is named by a flag: --command, --url or --mcp-config"

func readPairs(args []string) (Given, error) {
	var given Given
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		isJSON := strings.HasSuffix(key, ":")
		key = strings.TrimSuffix(key, ":")
		if !ok || key == "" {
			return given, fmt.Errorf("argument %q is not KEY=VALUE, and not the one JSON object%s", arg, WhereServersAre)
		}
		if slices.ContainsFunc(given.pairs, func(p Pair) bool { return p.key == key }) {
			return given, fmt.Errorf("argument %q is given twice", key)
		}
		if isJSON && !json.Valid([]byte(value)) {
			return given, fmt.Errorf("argument %q: the value after := is not JSON: %s", key, value)
		}
		given.pairs = append(given.pairs, Pair{key, value, isJSON})
	}
	return given, nil
}

// Fit returns the arguments as one object that fits the schema of a tool, unless that is refused. Its
// error says what is wrong, and how the tool is called.
func (a Given) Fit(ctx context.Context, tool string, schema Schema) (json.RawMessage, error) {
	whole := a.whole
	if whole == nil {
		members := make(map[string]json.RawMessage, len(a.pairs))
		for _, p := range a.pairs {
			value, err := p.Parse(schema.Types(p.key))
			if err != nil {
				return nil, fmt.Errorf("%w\n%s", err, schema.synopsis(tool))
			}
			members[p.key] = value
		}
		var err error
		if whole, err = protocol.Marshal(members); err != nil {
			return nil, err
		}
	}
	if err := schema.Validate(ctx, whole); err != nil {
		return nil, fmt.Errorf("the arguments do not fit the schema of tool %q: %w\n%s", tool, err, schema.synopsis(tool))
	}
	return whole, nil
}

// Parse returns the value as JSON. It is a string if the schema allows strings
// or does not state a type.
func (p Pair) Parse(types []string) (json.RawMessage, error) {
	switch {
	case p.isJSON:
		return json.RawMessage(p.Value), nil
	case len(types) == 0 || slices.Contains(types, "string"):
		return protocol.Marshal(p.Value)
	case !json.Valid([]byte(p.Value)) || !slices.ContainsFunc(types, func(t string) bool { return isOfType(p.Value, t) }):
		return nil, fmt.Errorf("argument %q: expected %s, got %q", p.key, strings.Join(types, " or "), p.Value)
	default:
		return json.RawMessage(p.Value), nil
	}
}

// isOfType reports whether a JSON text has a type of JSON Schema.
func isOfType(text, name string) bool {
	var value any
	if protocol.Unmarshal([]byte(text), &value) != nil {
		return false
	}
	switch v := value.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case float64:
		return name == "number" || name == "integer" && v == float64(int64(v))
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	default:
		return false
	}
}

// TextPairs reads arguments whose values are text.
func TextPairs(args []string) (map[string]string, error) {
	given, err := readPairs(args)
	values := make(map[string]string, len(given.pairs))
	for _, p := range given.pairs {
		values[p.key] = p.Value
	}
	return values, err
}
