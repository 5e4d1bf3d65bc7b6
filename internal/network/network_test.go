package network

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[2001:db8::1]:80": "2001:db8::/64", "[2001:db8::ffff:2]:81": "2001:db8::/64",
		"[2001:db8:0:1::1]:80": "2001:db8:0:1::/64", "[fe80::1%eth0]:80": "fe80::/64", "[::ffff:192.0.2.1]:80": "::ffff:192.0.2.1",
		"192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::/64", "@": "@", "": "", "host:1": "host",
	} {
		if got := Of(address); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
}
