package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
)

// largestInput is how many bytes of arguments standard input may hold: what
// one frame can carry.
const largestInput = 16 << 20

// arguments are what the command line says a tool shall be called with: one
// object, or pairs that become one when the tool's schema is known.
type arguments struct {
	whole json.RawMessage
	pairs []pair
}

type pair struct {
	key, value string
	json       bool // the value is JSON whatever the schema says
}

func readArguments(ctx context.Context, args []string, stdin io.Reader) (arguments, error) {
	switch {
	case len(args) == 0:
		return arguments{whole: json.RawMessage("{}")}, nil
	case len(args) == 1 && args[0] == "-":
		raw, err := readInput(ctx, stdin)
		if err != nil {
			return arguments{}, fmt.Errorf("standard input: %w", err)
		}
		return readObject("standard input", raw)
	case len(args) == 1 && strings.HasPrefix(strings.TrimSpace(args[0]), "{"):
		return readObject("the argument", []byte(args[0]))
	default:
		return readPairs(args)
	}
}

// readInput reads all of standard input. When the context ends it leaves the
// read behind: the process ends with it.
func readInput(ctx context.Context, stdin io.Reader) ([]byte, error) {
	type input struct {
		raw []byte
		err error
	}
	read := make(chan input, 1)
	go func() {
		raw, err := io.ReadAll(io.LimitReader(stdin, largestInput+1))
		read <- input{raw, err}
	}()
	select {
	case in := <-read:
		if len(in.raw) > largestInput {
			return nil, fmt.Errorf("above the limit of %d bytes", largestInput)
		}
		return in.raw, in.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func readObject(where string, raw []byte) (arguments, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return arguments{}, fmt.Errorf("%s is empty: it shall be a JSON object", where)
	}
	var value any
	if err := protocol.Unmarshal(raw, &value); err != nil {
		return arguments{}, fmt.Errorf("%s is not JSON: %w", where, errors.Unwrap(err))
	}
	if _, ok := value.(object); !ok {
		return arguments{}, fmt.Errorf("%s is JSON, but not an object", where)
	}
	return arguments{whole: raw}, nil
}

func readPairs(args []string) (arguments, error) {
	var given arguments
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		isJSON := strings.HasSuffix(key, ":")
		key = strings.TrimSuffix(key, ":")
		if !ok || key == "" {
			return given, fmt.Errorf("argument %q is not KEY=VALUE, and not the one JSON object", arg)
		}
		if slices.ContainsFunc(given.pairs, func(p pair) bool { return p.key == key }) {
			return given, fmt.Errorf("argument %q is given twice", key)
		}
		if isJSON && !json.Valid([]byte(value)) {
			return given, fmt.Errorf("argument %q: the value after := is not JSON: %s", key, value)
		}
		given.pairs = append(given.pairs, pair{key, value, isJSON})
	}
	return given, nil
}

// fit makes the arguments what the tool's schema wants, or says what is wrong
// with them.
func (a arguments) fit(ctx context.Context, tool *protocol.Tool) (json.RawMessage, error) {
	schema := readSchema(tool.InputSchema)
	whole := a.whole
	if whole == nil {
		members := make(map[string]json.RawMessage, len(a.pairs))
		for _, p := range a.pairs {
			value, err := p.typed(schema.types(p.key))
			if err != nil {
				return nil, fmt.Errorf("%w\n%s", err, schema.synopsis(tool.Name))
			}
			members[p.key] = value
		}
		var err error
		if whole, err = protocol.Marshal(members); err != nil {
			return nil, err
		}
	}
	if err := schema.validate(ctx, whole); err != nil {
		return nil, fmt.Errorf("the arguments do not fit the schema of tool %q: %w\n%s", tool.Name, err, schema.synopsis(tool.Name))
	}
	return whole, nil
}

// typed is the value as JSON: text where the schema takes text or does not say.
func (p pair) typed(types []string) (json.RawMessage, error) {
	switch {
	case p.json:
		return json.RawMessage(p.value), nil
	case len(types) == 0 || slices.Contains(types, "string"):
		return protocol.Marshal(p.value)
	case !json.Valid([]byte(p.value)) || !slices.ContainsFunc(types, func(t string) bool { return isOfType(p.value, t) }):
		return nil, fmt.Errorf("argument %q: expected %s, got %q", p.key, strings.Join(types, " or "), p.value)
	default:
		return json.RawMessage(p.value), nil
	}
}

// isOfType reports whether a JSON text is of a type of JSON Schema.
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
