package jsonrpc_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Guarantees: G-0017.12
func TestErrorsMatchByCode(t *testing.T) {
	err := fmt.Errorf("call: %w", &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no such method", Data: []byte("1")})
	if !errors.Is(err, &jsonrpc.Error{Code: -32601}) || !errors.Is(err, &jsonrpc.Error{Code: -32601, Message: "other", Data: []byte("2")}) {
		t.Error("the same code does not match")
	}
	if errors.Is(err, &jsonrpc.Error{Code: -32602}) || errors.Is(err, io.EOF) {
		t.Error("another error matches")
	}
	if got, want := err.Error(), "call: jsonrpc: error -32601: no such method"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDecodeErrorText(t *testing.T) {
	for frame, want := range map[string]string{
		`[]`:                            "jsonrpc: invalid request: a batch is not accepted here",
		"\"\xff\"":                      "jsonrpc: parse error: not valid UTF-8",
		`{"jsonrpc":"1.0","method":""}`: `jsonrpc: invalid request: member "jsonrpc" is not "2.0"`,
	} {
		if _, err := decode(frame); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", frame, err, want)
		}
	}
}

func TestKindString(t *testing.T) {
	got := fmt.Sprint(jsonrpc.KindRequest, jsonrpc.KindNotification, jsonrpc.KindResult, jsonrpc.KindError, jsonrpc.Kind(0))
	if want := "request notification result error unknown"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
