package jsonrpc_test

import (
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A receiver reads frames, answers requests, and answers what it could not read
// if an answer is due.
func Example() {
	answer := func(frame string) []byte {
		m, err := jsonrpc.Decode([]byte(frame), jsonrpc.Limits{})
		var refusal *jsonrpc.DecodeError
		switch {
		case errors.As(err, &refusal) && refusal.ReplyDue():
			return jsonrpc.AppendError(nil, refusal.ID, &jsonrpc.Error{Code: refusal.Code, Message: "cannot read this"})
		case err == nil && m.Kind == jsonrpc.KindRequest:
			return jsonrpc.AppendResult(nil, m.ID, m.Params)
		default:
			return nil
		}
	}
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":18446744073709551615,"method":"echo","params":{"a":1}}`,
		`{"jsonrpc":"2.0","id":"x","method":"echo","params":3}`,
		`{"jsonrpc":"2.0","method":"log","params":{"text":"nobody answers this"}}`,
		`{"jsonrpc":"2.0","id":3,"method":"echo"`,
	} {
		fmt.Printf("%s\n", answer(frame))
	}
	// Output:
	// {"jsonrpc":"2.0","id":18446744073709551615,"result":{"a":1}}
	// {"jsonrpc":"2.0","id":"x","error":{"code":-32600,"message":"cannot read this"}}
	//
	// {"jsonrpc":"2.0","error":{"code":-32700,"message":"cannot read this"}}
}
