package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// probeTimeout is how long a server may be silent about server/discover before
// it is taken for one that does not know it: see patience.
const probeTimeout = 5 * time.Second

// shake is the handshake of an incarnation. It is the one place where the era
// of a session is decided (2026-07-28 basic/versioning): a modern server
// answers server/discover, and any other answer but a modern error, and
// silence, is a legacy one's. What was found holds until it fails.
func (s *session) shake(ctx context.Context, incarnation *conn.Incarnation) error {
	asked := s.client.options.ProtocolVersion
	if protocol.IsLegacy(asked) {
		return s.initialize(ctx, incarnation, asked)
	}
	if asked == "" && s.legacy.Load() {
		return s.initializeAgain(ctx, incarnation)
	}
	if asked != "" {
		return incompatible(s.discover(ctx, incarnation, -1)) // the Conn's InitTimeout bounds it
	}
	s.probing.Store(true) // final asks, when the server dies of it
	err := s.discover(ctx, incarnation, s.patience())
	s.probing.Store(false)
	if !isLegacy(err) {
		return incompatible(err)
	}
	s.legacy.Store(true)
	refused := s.initializeAgain(ctx, incarnation)
	if errors.Is(err, conn.ErrTimedOut) && errors.As(refused, new(*jsonrpc.Error)) {
		return incompatible(s.discover(ctx, incarnation, -1)) // it was not silent, but slow to begin
	}
	return refused
}

// patience leaves initialize at least half of the time that the handshake has.
func (s *session) patience() time.Duration {
	if limit := s.client.options.Conn.InitTimeout; limit > 0 {
		return min(probeTimeout, limit/2)
	}
	return probeTimeout
}

// incompatible marks the outcome of server/discover that no waiting changes.
func incompatible(outcome error) error {
	var fault *jsonrpc.Error
	var status *transport.StatusError
	if errors.As(outcome, &status) && (status.Status == 429 || status.Status >= 500) {
		return outcome // it says nothing of the server's revisions
	}
	if isLegacy(outcome) || errors.As(outcome, &fault) && fault.Code == protocol.CodeUnsupportedVersion {
		return fmt.Errorf("%w: %w", conn.ErrIncompatible, outcome)
	}
	return outcome
}

// initializeAgain opens a legacy session with a server that was found to be
// legacy. If it refuses, the next attempt finds out anew.
func (s *session) initializeAgain(ctx context.Context, incarnation *conn.Incarnation) error {
	err := s.initialize(ctx, incarnation, protocol.LatestLegacy)
	if err != nil {
		s.legacy.Store(false)
	}
	return err
}

// isLegacy reports whether the outcome of server/discover is that of a server
// that knows no modern revision, or no modern one that this client speaks.
func isLegacy(outcome error) bool {
	var status *transport.StatusError
	var fault *jsonrpc.Error
	switch {
	case outcome == nil:
		return false
	case errors.As(outcome, &status) && status.Denied():
		return false // who may not come in is not told what is there
	case errors.Is(outcome, errNoModernVersion), errors.As(outcome, new(*ResultError)):
		return true
	case errors.As(outcome, &fault):
		return !protocol.IsModernError(fault.Code) || speaksLegacy(fault)
	default:
		return status != nil || endedUnanswered(outcome) || errors.Is(outcome, conn.ErrTimedOut)
	}
}

// endedUnanswered reports whether the peer has ended the stream that was to
// bring the answer, in good order, while the link lives on.
func endedUnanswered(outcome error) bool {
	var why conn.Reason
	return errors.As(outcome, &why) && why.Kind == conn.StreamLost && errors.Is(why, transport.ErrPeerClosed)
}

// speaksLegacy reports whether a server that does not support the revision it
// was asked for names one that initialize negotiates.
func speaksLegacy(fault *jsonrpc.Error) bool {
	var data protocol.UnsupportedVersionData
	if fault.Code != protocol.CodeUnsupportedVersion || protocol.Unmarshal(fault.Data, &data) != nil {
		return false
	}
	return anyOf(data.Supported, protocol.IsLegacy)
}

// died reports whether an incarnation was lost because its server could not
// live with the probe, or the time for the handshake was over before its answer
// came, and has the next one do without. A server that was modern before has
// failed of something else.
func (s *session) died(why conn.Reason) bool {
	if why.Kind == conn.CrashLooping {
		errors.As(why.Err, &why)
	}
	switch why.Kind {
	case conn.Exited, conn.LinkBroken, conn.PeerEnded, conn.InitTimedOut:
	default:
		return false
	}
	if latest := s.latest.Load(); latest != nil && latest.modern() || !s.probing.CompareAndSwap(true, false) {
		return false
	}
	s.legacy.Store(true)
	return true
}
