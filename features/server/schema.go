package server

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/google/jsonschema-go/jsonschema"
)

// A schema is a JSON Schema ready to validate with.
type schema struct {
	resolved *jsonschema.Resolved
}

// compile resolves a schema of objects. References to other documents are
// refused, never fetched.
func compile(raw json.RawMessage) (*schema, error) {
	if len(raw) == 0 {
		return nil, errors.New("it is missing")
	}
	parsed := new(jsonschema.Schema)
	if err := json.Unmarshal(raw, parsed); err != nil {
		return nil, err
	}
	if parsed.Type != "object" {
		return nil, errors.New(`its type is not "object"`)
	}
	resolved, err := parsed.Resolve(nil)
	if err != nil {
		return nil, err
	}
	return &schema{resolved}, nil
}

func mustCompile(tool string, raw json.RawMessage) *schema {
	compiled, err := compile(raw)
	if err != nil {
		panic(fmt.Sprintf("server: tool %q: schema: %v", tool, err))
	}
	return compiled
}

// validate reports what is wrong with a value, for people and models to read.
func (s *schema) validate(raw json.RawMessage) error {
	var value any
	if err := protocol.Unmarshal(raw, &value); err != nil {
		return err
	}
	if _, object := value.(map[string]any); !object {
		return errors.New("not an object")
	}
	return s.resolved.Validate(value)
}
