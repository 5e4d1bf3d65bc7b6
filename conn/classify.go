package conn

import (
	"errors"
	"io/fs"
	"os/exec"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

func openReason(err error) Reason {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return Reason{ExecutableMissing, err}
	default:
		return Reason{OpenFailed, err}
	}
}

func handshakeReason(err error) Reason {
	var status *transport.StatusError
	switch {
	case errors.Is(err, ErrIncompatible):
		return Reason{Incompatible, err}
	case errors.As(err, &status) && status.Denied():
		return Reason{AuthRequired, err}
	default:
		return Reason{HandshakeFailed, err}
	}
}

// askedDelay is how long the peer wants to be left alone; zero when it has not
// said so.
func askedDelay(err error) time.Duration {
	var status *transport.StatusError
	if errors.As(err, &status) {
		return status.RetryAfter
	}
	return 0
}

func lossReason(err error) Reason {
	var exit *transport.ExitError
	var oversized *transport.OversizedError
	switch {
	case errors.As(err, &exit):
		return Reason{Exited, err}
	case errors.As(err, &oversized):
		return Reason{Oversized, err}
	case errors.Is(err, transport.ErrPeerClosed):
		return Reason{PeerEnded, err}
	default:
		return Reason{LinkBroken, err}
	}
}
