package server

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/protocol/schema"
)

// mustCompile makes a validator of one of the program's own schemas.
func mustCompile(tool string, raw json.RawMessage) *schema.Validator {
	validator, err := schema.Compile(raw)
	if err == nil && !validator.IsObject() {
		err = errors.New(`schema: its type is not "object"`)
	}
	if err != nil {
		panic(fmt.Sprintf("server: tool %q: %v", tool, err))
	}
	return validator
}
