package conn

import (
	"errors"
	"io/fs"
	"os/exec"

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
	if errors.Is(err, ErrIncompatible) {
		return Reason{Incompatible, err}
	}
	return Reason{HandshakeFailed, err}
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
