package process

import (
	"errors"
	"fmt"
	"net"
)

// Listen listens on the address of a flag. If the address has no host, it listens on
// this machine only.
func Listen(flag, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, Usage(fmt.Errorf("%s %q is not an address such as :8080 or 127.0.0.1:8080", flag, address))
	}
	if host == "" {
		host = "127.0.0.1"
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	switch {
	case errors.As(err, new(*net.AddrError)):
		return nil, Usage(fmt.Errorf("%s: %w", flag, err))
	case err != nil:
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return listener, nil
}
