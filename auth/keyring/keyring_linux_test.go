package keyring

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/bowline-mcp/bowline/auth"
)

// isMissing distinguishes machines without a key ring from key rings that fail.
func TestMachinesWithoutAKeyRing(t *testing.T) {
	_, unreachable := dbus.Dial("unix:path=/nobody/listens/here")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{unreachable, true},
		{dbus.Error{Name: "org.freedesktop.DBus.Error.ServiceUnknown"}, true},
		{fmt.Errorf("read: %w", dbus.Error{Name: "org.freedesktop.DBus.Error.NameHasNoOwner"}), true},
		{dbus.Error{Name: "org.freedesktop.DBus.Error.Spawn.ServiceNotFound"}, true},
		{fmt.Errorf("start: %w", exec.ErrNotFound), true},
		{&net.OpError{Op: "read", Err: net.ErrClosed}, false},
		{dbus.Error{Name: "org.freedesktop.Secret.Error.IsLocked"}, false},
		{errors.New("prompt dismissed"), false},
	} {
		if got := isMissing(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	if reason := missing(); reason == "" {
		t.Log("this machine has a D-Bus session")
	} else if _, err := Key(program)(t.Context()); !errors.Is(err, auth.ErrNoKey) || !strings.HasSuffix(err.Error(), "there is no D-Bus session") {
		t.Errorf("%v", err)
	}
	before := missing()
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "autolaunch:") // which would start a bus
	if reason := missing(); reason != before {
		t.Errorf("the key ring is missing because %q, and with a bus that would be started %q", before, reason)
	}
}
