//go:build unix

package relay

import "syscall"

// detached keeps a gateway out of the session of this process: what ends the host, or interrupts its terminal, does not end the gateway of
// others.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
