//go:build !race

package jsonrpc_test

import (
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Decoding an envelope allocates the text of its method, unless MCP connections send that method
// often. Encoding one allocates its frame. The race detector allocates, too, so the test is skipped
// under it.
func TestEnvelopeAllocates(t *testing.T) {
	long := strings.Repeat("x", 200) // a method
	params := []byte(`{"name":"echo","arguments":{"text":"a"}}`)
	call := jsonrpc.AppendRequest(nil, jsonrpc.IntegerID(1), "tools/call", params)
	other := jsonrpc.AppendRequest(nil, jsonrpc.IntegerID(1), "x-tools/call", params)
	answer := jsonrpc.AppendResult(nil, jsonrpc.IntegerID(1), params)
	for _, c := range []struct {
		name string
		run  func()
		most float64
	}{
		{"decode a call", func() { mustDecode(t, call) }, 0},
		{"decode a call of another method", func() { mustDecode(t, other) }, 1},
		{"decode an answer", func() { mustDecode(t, answer) }, 0},
		{"append a call", func() { jsonrpc.AppendRequest(nil, jsonrpc.IntegerID(1), "tools/call", params) }, 1},
		{"append a call of a long method", func() { jsonrpc.AppendRequest(nil, jsonrpc.IntegerID(1), long, params) }, 1},
		{"append a notification", func() { jsonrpc.AppendNotification(nil, long, params) }, 1},
		{"append an answer", func() { jsonrpc.AppendResult(nil, jsonrpc.IntegerID(1), params) }, 1},
	} {
		if n := testing.AllocsPerRun(1000, c.run); n > c.most {
			t.Errorf("%s: %v allocations, of %v at most", c.name, n, c.most)
		}
	}
}

func mustDecode(t *testing.T, frame []byte) {
	if _, err := jsonrpc.Decode(frame, jsonrpc.Limits{}); err != nil {
		t.Fatal(err)
	}
}
