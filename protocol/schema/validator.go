// Package schema validates values against the JSON Schemas of tools, whether they come
// from a peer or from your program.
//
//	v, err := schema.Compile(raw)
//	err = v.Validate(ctx, value)
//
// The work for one value is bounded, and ends with the caller's context. The package never
// fetches a schema from a network.
//
// It supports JSON Schema 2020-12, which applies to a schema without $schema, and draft-07
// (2025-11-25 basic, JSON Schema usage). It ignores format, compares numbers as float64,
// and reads patterns as package regexp does.
package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// The bounds of schemas and of the work that they cause.
const (
	LargestSchema = 256 << 10  // bytes of a schema
	MaxSteps      = 10_000_000 // steps of one Validate: about a second of work
)

// Inner bounds. A frame of the stack takes a few hundred bytes, an entry of the
// memo about a hundred.
const (
	maxDepth       = 50_000  // schemas and values within one another while validating
	maxMemo        = 1 << 16 // results remembered at once
	maxPattern     = 4 << 10 // bytes of one pattern
	maxPatternSize = 100_000 // instructions of all patterns of a schema
)

var (
	// ErrMissing refuses a schema of no bytes.
	ErrMissing = errors.New("schema: missing")

	// ErrTooLarge refuses a schema above LargestSchema, or with patterns that need
	// too much memory.
	ErrTooLarge = fmt.Errorf("schema: larger than %d bytes, or its patterns are too large", LargestSchema)

	// ErrDialect refuses a $schema that is none of the dialects.
	ErrDialect = errors.New("schema: unsupported dialect")

	// ErrEndless refuses a schema that applies itself to the same value again.
	ErrEndless = errors.New("schema: refers to itself without end")

	// ErrReference refuses a schema with a reference that cannot be followed:
	// only references within the document can, and neither $dynamicRef nor an $id
	// below the root is supported.
	ErrReference = errors.New("schema: unsupported reference")

	// ErrTooCostly means that Validate gave up after MaxSteps. The value may fit.
	ErrTooCostly = errors.New("schema: validating the value takes too many steps")
)

// A Validator checks values against one schema. It is safe for concurrent use.
type Validator struct {
	root  *node
	shape *shape // all of the schema; nil when there is more to it
}

// Compile reads a schema. It fails with one of the errors above, or with one that
// says which keyword is malformed.
func Compile(raw json.RawMessage) (*Validator, error) {
	switch {
	case len(raw) == 0:
		return nil, ErrMissing
	case len(raw) > LargestSchema:
		return nil, ErrTooLarge
	}
	root, err := compile(raw)
	if err != nil {
		return nil, err
	}
	shape, _ := shapeOf(root)
	return &Validator{root, shape}, nil
}

// IsObject reports whether the schema allows nothing but objects, as MCP demands
// of a tool's input schema.
func (v *Validator) IsObject() bool { return v.root.types == typeObject }

// Validate checks one value. It fails with an *InvalidError if the value does not
// fit, with ErrTooCostly after MaxSteps, with the cause of ctx once that is done,
// and with another error if raw is not JSON.
func (v *Validator) Validate(ctx context.Context, raw json.RawMessage) error {
	_, err := v.validate(ctx, raw)
	return err
}

// validate is Validate, and says how many steps it took.
func (v *Validator) validate(ctx context.Context, raw []byte) (steps int, err error) {
	if v.shape != nil && v.shape.surelyFits(raw) {
		return 0, nil
	}
	e := evaluation{ctx: ctx, left: MaxSteps}
	if e.values, err = index(raw, &e); err != nil {
		return MaxSteps - e.left, err
	}
	fault := e.apply(v.root, 0, nil)
	steps = MaxSteps - e.left
	switch {
	case e.stopped != nil:
		return steps, e.stopped
	case fault.rule == "":
		return steps, nil
	default:
		return steps, &InvalidError{Path: e.values.path(fault.at), Reason: e.reason(fault)}
	}
}
