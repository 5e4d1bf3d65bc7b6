package schema_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/protocol/schema"
)

// A schema is compiled once, and checks many values. The error says which part of a value
// does not fit.
func Example() {
	v, err := schema.Compile(context.Background(), json.RawMessage(`{
		"type": "object",
		"properties": {"city": {"type": "string"}, "days": {"type": "integer", "maximum": 7}},
		"required": ["city"]
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, value := range []string{`{"city": "Bergen", "days": 3}`, `{"city": "Bergen", "days": 8}`, `{"days": 3}`, `{"city": 5}`} {
		err := v.Validate(context.Background(), json.RawMessage(value))
		var invalid *schema.InvalidError
		if errors.As(err, &invalid) {
			fmt.Printf("at %q it %s\n", invalid.Path, invalid.Reason)
			continue
		}
		fmt.Println("valid:", err == nil)
	}
	// Output:
	// valid: true
	// at "/days" it is more than 7
	// at "" it lacks the member "city"
	// at "/city" it is a number, not a string
}
