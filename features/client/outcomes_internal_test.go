package client

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/refusal"
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
		{unsupportedVersion("2026-07-28", "2030-01-01"), false},
		{unsupportedVersion("2030-01-01", "2025-11-25"), true},
		{&jsonrpc.Error{Code: protocol.CodeMissingCapability, Data: []byte(`{"supported":["2025-11-25"]}`)}, false}, // that is no list of revisions
		{&transport.StatusError{Status: 403}, false},
		{&transport.StatusError{Status: 503}, true},
		{&transport.StatusError{Status: 503, RetryAfter: time.Second}, false}, // it is overloaded
		{&transport.StatusError{Status: 404}, true},
		{conn.Reason{Kind: conn.StreamLost, Err: transport.ErrPeerClosed}, true},
		{conn.Reason{Kind: conn.StreamLost, Err: errors.New("x")}, false},
		{conn.Reason{Kind: conn.LivenessLost, Err: transport.ErrPeerClosed}, false},
	} {
		if got := isLegacy(test.outcome); got != test.legacy {
			t.Errorf("%v shows a legacy server: %t, want %t", test.outcome, got, test.legacy)
		}
	}
}

func unsupportedVersion(supported ...string) error {
	return refusal.Unsupported("1999-01-01", supported)
}

// A call whose later request was not sent may have been executed, as its server has answered an earlier one. One that was sent stays so.
func TestDeliveryOfACallOfSeveralRequests(t *testing.T) {
	for before, want := range map[conn.Delivery]conn.Delivery{conn.NotSent: conn.Unknown, conn.Unknown: conn.Unknown, conn.Sent: conn.Sent} {
		var failed *conn.CallError
		if err := begun(&conn.CallError{Method: "x", Delivery: before}); !errors.As(err, &failed) || failed.Delivery != want {
			t.Errorf("%v: got %v, want %v", before, err, want)
		}
	}
}

// An outcome of server/discover is that of an incompatible server unless waiting may change it.
func TestOutcomesThatWaitingDoesNotChange(t *testing.T) {
	for _, test := range []struct {
		outcome error
		final   bool
	}{
		{&transport.StatusError{Status: 404}, true},
		{&transport.StatusError{Status: 429}, false},
		{&transport.StatusError{Status: 499}, true},
		{&transport.StatusError{Status: 500}, false},
		{&transport.StatusError{Status: 599}, false},
		{&jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}, true},
		{&jsonrpc.Error{Code: jsonrpc.CodeOverloaded}, false},
		{&jsonrpc.Error{Code: protocol.CodeMissingCapability}, false},
		{unsupportedVersion("2030-01-01"), true},
		{errors.New("x"), false},
		{nil, false},
	} {
		got := incompatible(test.outcome)
		if errors.Is(got, conn.ErrIncompatible) != test.final || !errors.Is(got, test.outcome) || (got == nil) != (test.outcome == nil) {
			t.Errorf("%v became %v; final: %t", test.outcome, got, test.final)
		}
	}
}

// An answer that lists the very revision that it refuses is worth another request, and no other is.
func TestOutcomesThatRefuseTheirOwnRevision(t *testing.T) {
	for _, test := range []struct {
		outcome error
		again   bool
	}{
		{unsupportedVersion("2026-07-28"), true},
		{unsupportedVersion("2025-11-25"), false},
		{&jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Data: []byte(`{"supported":["2026-07-28"]}`)}, false},
		{&jsonrpc.Error{Code: protocol.CodeUnsupportedVersion, Data: []byte(`7`)}, false},
		{errors.New("x"), false},
		{nil, false},
	} {
		if got := refusesOwnVersion(test.outcome, "2026-07-28"); got != test.again {
			t.Errorf("%v is worth another request: %t, want %t", test.outcome, got, test.again)
		}
	}
}

// The machine itself has refused a connection if nothing listens at an address, or there is no such host; not if nobody knows whether
// there is one.
func TestConnectionsThatTheMachineRefuses(t *testing.T) {
	for _, test := range []struct {
		err     error
		refused bool
	}{
		{syscall.ECONNREFUSED, true},
		{fmt.Errorf("dial: %w", syscall.ECONNREFUSED), true},
		{syscall.Errno(10061), true},
		{syscall.ECONNRESET, false},
		{&net.DNSError{IsNotFound: true}, true},
		{&net.DNSError{IsTimeout: true}, false},
		{errors.New("x"), false},
		{nil, false},
	} {
		if got := isRefused(test.err); got != test.refused {
			t.Errorf("%v is refused: %t, want %t", test.err, got, test.refused)
		}
	}
}

// A temporary error may go away by waiting.
type temporary bool

func (temporary) Error() string      { return "x" }
func (is temporary) Temporary() bool { return bool(is) }

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
		{conn.Reason{Kind: conn.ExecutableMissing}, true},
		{conn.Reason{Kind: conn.Incompatible}, true},
		{conn.Reason{Kind: conn.AuthRequired}, true},
		{conn.Reason{Kind: conn.Malformed}, true},
		{conn.Reason{Kind: conn.Oversized}, true},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &transport.StatusError{Status: 408}}, false},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &transport.StatusError{Status: 425}}, false},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &transport.StatusError{Status: 429}}, false},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &transport.StatusError{Status: 499}}, true},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &transport.StatusError{Status: 500}}, false},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &transport.StatusError{Status: 501}}, true},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &transport.StatusError{Status: 505}}, true},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}}, true},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams}}, true},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest}}, true},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &jsonrpc.Error{Code: jsonrpc.CodeInternalError}}, false},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &transport.StartError{Err: errors.New("x")}}, true},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &transport.StartError{Err: temporary(false)}}, true},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &transport.StartError{Err: temporary(true)}}, false},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: transport.ErrUntrusted}, true},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: &ResultError{Err: errors.New("x")}}, true},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: conn.Reason{Kind: conn.StreamLost, Err: transport.ErrPeerClosed}}, true},
		{conn.Reason{Kind: conn.HandshakeFailed, Err: errors.New("x")}, false},
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
