package network

import (
	"errors"
	"syscall"
)

// IsRefused reports whether the machine of an address has refused a connection: nobody listens there. A Unix socket of a process that was
// killed refuses, too.
func IsRefused(err error) bool {
	const onWindows = syscall.Errno(10061) // WSAECONNREFUSED, which package syscall does not declare
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, onWindows)
}
