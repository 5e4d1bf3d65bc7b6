package client

import (
	"errors"
	"syscall"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// What a server answers to server/discover shows of which era it is, or nothing.
func TestOutcomesOfDiscoverThatShowTheEra(t *testing.T) {
	fault := func(code int64) error { return &jsonrpc.Error{Code: code} }
	for _, test := range []struct {
		outcome error
		legacy  bool
	}{
		{nil, false},
		{fault(jsonrpc.CodeMethodNotFound), true},
		{fault(jsonrpc.CodeOverloaded), false}, // perhaps a modern one
		{fault(protocol.CodeUnsupportedVersion), false},
		{&transport.StatusError{Status: 400}, true},
		{&transport.StatusError{Status: 401}, false},
		{&transport.StatusError{Status: 429}, false},
		{errNoModernVersion, true},
		{&ResultError{Err: errors.New("x")}, true},
		{conn.ErrTimedOut, true},
		{errors.New("x"), false},
	} {
		if got := isLegacy(test.outcome); got != test.legacy {
			t.Errorf("%v shows a legacy server: %t, want %t", test.outcome, got, test.legacy)
		}
	}
}

// A server that crashes again and again is as hopeless as the reason of the last crash.
func TestCrashLoopIsAsHopelessAsItsReason(t *testing.T) {
	for _, test := range []struct {
		why      conn.Reason
		hopeless bool
	}{
		{conn.Reason{Kind: conn.Exited}, true},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &transport.StatusError{Status: 404}}, true},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &transport.StatusError{Status: 503}}, false},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: syscall.ECONNREFUSED}, false},
		{conn.Reason{Kind: conn.LivenessLost, Err: conn.Reason{Kind: conn.Exited}}, false}, // only a loop is of another kind than its cause
	} {
		if got := isHopeless(test.why); got != test.hopeless {
			t.Errorf("%v is hopeless: %t, want %t", test.why, got, test.hopeless)
		}
		looping := conn.Reason{Kind: conn.CrashLooping, Err: test.why}
		if got := isHopeless(looping); got != test.hopeless && test.why.Kind != conn.LivenessLost {
			t.Errorf("%v is hopeless: %t, want %t", looping, got, test.hopeless)
		}
	}
}
