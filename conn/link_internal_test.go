package conn

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// Errors of a transport, a handshake and a link are classified by their types.
func TestErrorsAreClassified(t *testing.T) {
	for _, c := range []struct {
		classify func(error) Reason
		err      error
		want     ReasonKind
	}{
		{openReason, &transport.StartError{Err: exec.ErrNotFound}, ExecutableMissing},
		{openReason, &transport.StartError{Err: fs.ErrPermission}, ExecutableMissing},
		{openReason, errors.New("refused"), OpenFailed},
		{openReason, &transport.StatusError{Status: 401}, AuthRequired},
		{openReason, &transport.StatusError{Status: 404}, OpenFailed},
		{handshakeReason, fmt.Errorf("revision: %w", ErrIncompatible), Incompatible},
		{handshakeReason, errors.New("no answer"), HandshakeFailed},
		{handshakeReason, &transport.StatusError{Status: 401}, AuthRequired},
		{handshakeReason, &transport.StatusError{Status: 403}, AuthRequired},
		{handshakeReason, fmt.Errorf("no token: %w", transport.ErrAuthRequired), AuthRequired},
		{openReason, fmt.Errorf("no token: %w", transport.ErrAuthRequired), AuthRequired},
		{handshakeReason, &transport.StatusError{Status: 404}, HandshakeFailed},
		{lossReason, &transport.ExitError{Status: 1}, Exited},
		{lossReason, &transport.OversizedError{}, Oversized},
		{lossReason, transport.ErrPeerClosed, PeerEnded},
		{lossReason, transport.ErrSessionExpired, SessionExpired},
		{lossReason, errors.New("broken pipe"), LinkBroken},
	} {
		if got := c.classify(c.err); got.Kind != c.want || !errors.Is(got, c.err) {
			t.Errorf("%v is classified as %v, want %s", c.err, got, c.want)
		}
	}
}

// askedDelay finds the delay that the peer asks for in an error's chain.
//
// Guarantees: G-0001.14
func TestAskedDelayIsFoundInTheError(t *testing.T) {
	refused := fmt.Errorf("initialize: %w", &transport.StatusError{Status: 503, RetryAfter: time.Minute})
	if got := askedDelay(refused); got != time.Minute {
		t.Errorf("got %v, want 1m", got)
	}
	if got := askedDelay(errors.New("gone")); got != 0 {
		t.Errorf("got %v, want 0", got)
	}
}
