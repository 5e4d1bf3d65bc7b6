package bundled

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
)

var garbleTool = protocol.Tool{
	Name:        "garble",
	Description: "Writes lines that are no messages where only messages belong.",
	InputSchema: json.RawMessage(`{
		"type": "object",
		"properties": {
			"lines": {"type": "integer", "description": "how many", "minimum": 1, "maximum": 20}
		},
		"required": ["lines"],
		"additionalProperties": false
	}`),
}

type lines struct {
	Lines int `json:"lines"`
}

// garble writes a short text with one write, so that it does not split a
// message.
func (o Options) garble(_ context.Context, in lines) (string, error) {
	if _, err := io.WriteString(o.Garble, strings.Repeat("this is no message\n", in.Lines)); err != nil {
		return "", err
	}
	return fmt.Sprintf("wrote %d lines", in.Lines), nil
}
