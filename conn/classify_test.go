package conn

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

func TestReasonsAreRecognised(t *testing.T) {
	for _, c := range []struct {
		classify func(error) Reason
		err      error
		want     ReasonKind
	}{
		{openReason, &transport.StartError{Err: exec.ErrNotFound}, ExecutableMissing},
		{openReason, &transport.StartError{Err: fs.ErrPermission}, ExecutableMissing},
		{openReason, errors.New("refused"), OpenFailed},
		{handshakeReason, fmt.Errorf("revision: %w", ErrIncompatible), Incompatible},
		{handshakeReason, errors.New("no answer"), HandshakeFailed},
		{lossReason, &transport.ExitError{Status: 1}, Exited},
		{lossReason, &transport.OversizedError{}, Oversized},
		{lossReason, transport.ErrPeerClosed, PeerEnded},
		{lossReason, errors.New("broken pipe"), LinkBroken},
	} {
		if got := c.classify(c.err); got.Kind != c.want || !errors.Is(got, c.err) {
			t.Errorf("%v is %v, want %s", c.err, got, c.want)
		}
	}
}
