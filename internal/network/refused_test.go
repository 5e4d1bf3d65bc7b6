package network

import (
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"syscall"
	"testing"
)

// TestIsRefused dials what nobody listens at, and gives the errors of systems.
func TestIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	if _, err := net.Dial("unix", path); !IsRefused(err) {
		t.Errorf("the socket of a process that has ended: %v", err)
	}
	for err, want := range map[error]bool{syscall.Errno(10061): true, syscall.ECONNREFUSED: true, syscall.ECONNRESET: false, fs.ErrNotExist: false} {
		if IsRefused(fmt.Errorf("dial: %w", err)) != want {
			t.Errorf("%v is not %v", err, want)
		}
	}
}
