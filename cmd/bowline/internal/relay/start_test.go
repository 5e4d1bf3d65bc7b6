//go:build unix

package relay

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestASocketOfSomebodyElse checks that a host is not connected to what another user could have put in the place of its gateway.
//
// Guarantees: G-0092.7
func TestASocketOfSomebodyElse(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s := &Starter{Socket: filepath.Join(dir, "s")}
	link, err := s.Reach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	link.Close(0)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if link, err := s.Reach(t.Context()); err == nil || !strings.Contains(err.Error(), "others can write to the folder") {
		t.Errorf("reached: %v, %v", link, err)
	}
}
