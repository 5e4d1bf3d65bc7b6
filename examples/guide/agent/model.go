package main

import (
	"context"
	"encoding/json"
)

// These are what every API of a model has, under other names.
type (
	// A Function is what the model may call.
	Function struct {
		Name        string // of letters, digits, _ and -, at most 64
		Description string
		Schema      json.RawMessage // of the arguments
	}

	// A Use is a call that the model wants.
	Use struct {
		ID, Name  string
		Arguments json.RawMessage
	}

	// An Output answers a Use.
	Output struct {
		ID      string
		IsError bool
		Parts   []Part
	}

	// A Part is a text, or an image or sound with its type.
	Part struct {
		Text     string
		MIMEType string
		Data     []byte
	}

	// A Model answers what it was given last with calls, or at the end with a text. It keeps
	// the conversation.
	Model interface {
		Next(ctx context.Context, functions []Function, outputs []Output) (uses []Use, text string, err error)
	}
)
