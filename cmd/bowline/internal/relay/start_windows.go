package relay

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// detached keeps a gateway out of the console of this process: what closes that does not end the gateway of others.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP}
}
