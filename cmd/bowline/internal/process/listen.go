package process

import (
	"errors"
	"fmt"
	"net"
	"syscall"
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
		return nil, fmt.Errorf("%s: %w%s", flag, err, adviceOn(err))
	}
	return listener, nil
}

// adviceOn says what to do about an address that cannot be had, where the failure does not. Most often it is a program that the user
// has forgotten, so its port is wanted back or another one will do.
func adviceOn(err error) string {
	if errors.Is(err, syscall.EADDRINUSE) {
		return ": choose another port, or 0 for any free one"
	}
	return ""
}

// ListenHere listens as Listen does, and reports whether only this machine reaches the address. If others do, it refuses that unless
// insecure is set, and says why. It asks what it listens at, and not how the address is written: a name may mean anything.
func ListenHere(flag, address string, insecure bool, why string) (listener net.Listener, isHere bool, err error) {
	listener, err = Listen(flag, address)
	if err != nil {
		return nil, false, err
	}
	at, ok := listener.Addr().(*net.TCPAddr)
	if isHere = ok && at.IP.IsLoopback(); !isHere && !insecure {
		err := Refuse("%s %s is reached by other machines, and %s; use --insecure if that is meant", flag, address, why)
		return nil, false, errors.Join(err, listener.Close())
	}
	return listener, isHere, nil
}
