package ask

import (
	"context"
	"errors"
	"io"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/arguments"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
)

// errNoTerminal is the reason why a user cannot be asked.
var errNoTerminal = errors.New("standard input and standard error are not a terminal: use environment variables, ${NAME}, in place of inputs")

// Input asks for an input of an mcp.json.
func (u *User) Input(ctx context.Context, in mcpjson.Input) (string, error) {
	if !u.IsPresent() {
		return "", errNoTerminal
	}
	f := field{name: in.ID, about: in.Description, fallback: in.Default, hasDefault: in.Default != "", secret: in.Password, required: true}
	for _, name := range in.Options {
		value, err := protocol.Marshal(name)
		if err != nil {
			return "", err
		}
		f.options = append(f.options, arguments.Option{Value: value})
	}
	answer, err := u.value(ctx, f)
	if errors.Is(err, io.EOF) {
		err = errors.New("the user gave none")
	}
	return answer, err
}
