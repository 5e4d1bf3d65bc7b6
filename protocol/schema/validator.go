// Package schema checks values against the JSON Schemas of tools, a peer's as
// well as the program's own: validating surely ends, and soon, and fetches
// nothing.
//
// The dialects are 2020-12, which a schema without $schema has, and draft-07
// (2025-11-25 basic, JSON Schema usage).
package schema

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/google/jsonschema-go/jsonschema"
)

// LargestSchema bounds a schema, in bytes.
const LargestSchema = 256 << 10

var (
	// ErrMissing refuses a schema of no bytes.
	ErrMissing = errors.New("schema: missing")

	// ErrTooLarge refuses a schema above LargestSchema.
	ErrTooLarge = fmt.Errorf("schema: larger than %d bytes", LargestSchema)

	// ErrDialect refuses a $schema that is none of the dialects.
	ErrDialect = errors.New("schema: unsupported dialect")

	// ErrEndless refuses a schema that may take too long to validate against:
	// one that refers to itself in place, multiplies what applies to a value,
	// or refers where that cannot be followed.
	ErrEndless = errors.New("schema: validating against it may not end")
)

// A Validator checks values against one schema. It is safe for concurrent use.
type Validator struct {
	resolved *jsonschema.Resolved
	shape    *shape // all there is to it; nil when there is more
}

// Compile makes a validator.
func Compile(raw json.RawMessage) (*Validator, error) {
	switch {
	case len(raw) == 0:
		return nil, ErrMissing
	case len(raw) > LargestSchema:
		return nil, ErrTooLarge
	}
	parsed := new(jsonschema.Schema)
	if err := json.Unmarshal(raw, parsed); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if !known(parsed.Schema) {
		return nil, fmt.Errorf("%w: %q", ErrDialect, parsed.Schema)
	}
	understood, err := json.Marshal(parsed)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if !endsSoon(understood) {
		return nil, ErrEndless
	}
	resolved, err := parsed.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	shape, _ := shapeOf(parsed)
	return &Validator{resolved, shape}, nil
}

// IsObject reports whether the schema promises an object, as MCP wants of a
// tool's.
func (v *Validator) IsObject() bool { return v.resolved.Schema().Type == "object" }

// Validate reports what is wrong with a value, for people and models to read.
func (v *Validator) Validate(raw json.RawMessage) error {
	if v.shape != nil && v.shape.surelyFits(raw) {
		return nil
	}
	var value any
	if err := protocol.Unmarshal(raw, &value); err != nil {
		return err
	}
	return v.resolved.Validate(value)
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
