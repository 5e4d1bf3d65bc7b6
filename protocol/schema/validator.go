// Package schema validates values against the JSON Schemas of tools, whether they come
// from a peer or from your program.
//
//	v, err := schema.Compile(ctx, raw)
//	err = v.Validate(ctx, value)
//
// The work for one schema and for one value is bounded, and ends with the caller's context. The package never
// fetches a schema from a network.
//
// It supports JSON Schema 2020-12, which applies to a schema without $schema, and draft-07
// (2025-11-25 basic, JSON Schema usage). It ignores format except in forms, compares numbers as float64,
// and reads patterns as package regexp does.
package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// The limits of schemas and of the work for one value. A stack frame takes a few hundred bytes, an
// entry of the memo about a hundred.
const (
	largestSchema = 256 << 10  // the maximum size of a schema, in bytes
	maxSteps      = 10_000_000 // the maximum number of steps of one Validate: about a second of work
	maxDepth      = 50_000     // how deep schemas and values may be nested while validating
	maxMemo       = 1 << 16    // results in the memo
	maxPattern    = 4 << 10    // the size of one pattern, in bytes
)

var (
	// ErrMissing says that the schema is empty.
	ErrMissing = errors.New("schema: missing")

	// ErrTooLarge says that a schema is larger than 256 KiB, or takes too many
	// steps to compile, for instance because of its patterns.
	ErrTooLarge = fmt.Errorf("schema: larger than %d bytes, or too costly to compile", largestSchema)

	// ErrDialect says that the schema's $schema is not a supported dialect.
	ErrDialect = errors.New("schema: unsupported dialect")

	// ErrEndless says that a schema applies itself to the same value again.
	ErrEndless = errors.New("schema: refers to itself without end")

	// ErrReference says that a schema has an unsupported reference. Only references
	// within the document are supported, but not $dynamicRef, and no $id below the
	// root.
	ErrReference = errors.New("schema: unsupported reference")

	// ErrTooCostly means that Validate gave up after 10,000,000 steps, about a second of work. The value may fit.
	ErrTooCostly = errors.New("schema: validating the value takes too many steps")
)

// A Validator checks values against one schema. It is safe for concurrent use.
type Validator struct {
	root  *node
	shape *shape // the whole schema; nil if the schema has other keywords
}

// Compile compiles a schema, with at most 64 MiB of memory in all. It fails with ErrMissing, ErrTooLarge, ErrDialect, ErrEndless
// or ErrReference, or with an error that says which keyword is malformed,
// or with the cause of ctx when ctx ends.
func Compile(ctx context.Context, raw json.RawMessage) (*Validator, error) {
	return newValidator(ctx, raw, false)
}

// CompileForm compiles the schema of a form that a server asks a user to fill in, or of
// one field of it. It does what Compile does, and the Validator also checks the formats
// that fields of a form may have: email, uri, date and date-time. A leap second is no
// date-time here.
func CompileForm(ctx context.Context, raw json.RawMessage) (*Validator, error) {
	return newValidator(ctx, raw, true)
}

func newValidator(ctx context.Context, raw json.RawMessage, isForm bool) (*Validator, error) {
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case len(raw) == 0:
		return nil, ErrMissing
	case len(raw) > largestSchema:
		return nil, ErrTooLarge
	}
	root, _, err := compile(ctx, raw, isForm)
	if err != nil {
		return nil, err
	}
	shape, _ := shapeOf(root)
	return &Validator{root, shape}, nil
}

// IsObject reports whether the schema allows only objects, as MCP requires of the input
// schema of a tool.
func (v *Validator) IsObject() bool { return v.root.types == typeObject }

// Validate checks one value. It fails with an *InvalidError if the value does not fit,
// with ErrTooCostly after too many steps, with the cause of ctx when ctx ends, and with another
// error if raw is not JSON.
func (v *Validator) Validate(ctx context.Context, raw json.RawMessage) error {
	_, err := v.validate(ctx, raw)
	return err
}

// validate does what Validate does, and returns how many steps it took.
func (v *Validator) validate(ctx context.Context, raw []byte) (steps int, err error) {
	if v.shape != nil && v.shape.surelyFits(raw) {
		return 0, nil
	}
	e := evaluation{budget: budget{ctx: ctx, left: maxSteps, beyond: ErrTooCostly}}
	if e.values, err = index(raw, &e.budget); err != nil {
		return maxSteps - e.left, err
	}
	fault := e.apply(v.root, 0, nil)
	steps = maxSteps - e.left
	switch {
	case e.stopped != nil:
		return steps, e.stopped
	case fault.rule == "":
		return steps, nil
	default:
		return steps, &InvalidError{Path: e.values.path(fault.at), Reason: e.reason(fault)}
	}
}
