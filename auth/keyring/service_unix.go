//go:build unix && !darwin

package keyring

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/godbus/dbus/v5"
)

// missing returns why there is no Secret Service; "": there may be one. Without a session
// bus, the library would start one.
func missing() string {
	if address := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); address != "" && address != "autolaunch:" {
		return ""
	}
	folder := fmt.Sprintf("/run/user/%d", os.Getuid())
	for _, name := range []string{"bus", "dbus-session"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			return ""
		}
	}
	return "there is no D-Bus session"
}

// isMissingService reports whether there is no Secret Service.
func isMissingService(err error) bool {
	var network *net.OpError
	var refused dbus.Error
	if errors.As(err, &network) {
		return network.Op == "dial"
	}
	if errors.As(err, &refused) {
		switch refused.Name {
		case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner", "org.freedesktop.DBus.Error.Spawn.ServiceNotFound":
			return true
		}
	}
	return false
}
