package network

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

var proxies = Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48")}

// The client is the last address that is not a trusted proxy, in X-Forwarded-For or in Forwarded. What is malformed, too
// long or contradictory names no client.
//
// Guarantees: G-0086.1, G-0086.2
func TestClientOf(t *testing.T) {
	long := strings.Repeat("10.0.0.1, ", mostForwarded)
	for _, test := range []struct {
		listed, standard, want string // lines are separated by |
	}{
		{"192.0.2.1", "", "192.0.2.1"},
		{"192.0.2.1:80", "", "192.0.2.1"},
		{"[2001:db8::1]:80", "", "2001:db8::1"},
		{"2001:db8::1", "", "2001:db8::1"},
		{"::ffff:192.0.2.1", "", "192.0.2.1"},
		{"fe80::1%eth0", "", "fe80::1"},
		{"198.51.100.1, 192.0.2.1", "", "192.0.2.1"},                     // the client has sent the first one
		{"198.51.100.1, 192.0.2.1,10.1.2.3 , 10.0.0.1", "", "192.0.2.1"}, // by way of three proxies
		{"198.51.100.1|192.0.2.1|10.0.0.1", "", "192.0.2.1"},
		{"<script>, 192.0.2.1", "", "192.0.2.1"},
		{"192.0.2.1, 2001:db8:ffff::1", "", "192.0.2.1"},
		{"10.0.0.7, 10.0.0.1", "", "10.0.0.7"}, // all are proxies
		{"192.0.2.1, unknown", "", ""},
		{"192.0.2.1, unknown, 10.0.0.1", "", ""},
		{"192.0.2.1,", "", ""},
		{"", "", ""},
		{"|", "", ""},
		{"192.0.2.1, " + long + "10.0.0.1", "", ""},
		{"192.0.2.1, " + strings.Repeat(" ", mostForwardedBytes) + "10.0.0.1", "", ""},
		{"198.51.100.1, " + long[:len(long)-2], "", ""},
		{"198.51.100.1, " + long[10:len(long)-2], "", "198.51.100.1"},
		{strings.Repeat("192.0.2.1|", mostForwarded) + "192.0.2.1", "", ""},
		{"", "for=192.0.2.1", "192.0.2.1"},
		{"", `For="[2001:db8::1]:80";proto=https`, "2001:db8::1"},
		{"", "proto=http; for=192.0.2.1 ;by=10.0.0.1, for=10.0.0.2", "192.0.2.1"},
		{"", `for=198.51.100.1|for="192.0.2.1:80"`, "192.0.2.1"},
		{"", `by="a,b;for=198.51.100.1";for=192.0.2.1`, "192.0.2.1"},
		{"", "for=198.51.100.1, for=_hidden", ""},
		{"", "for=198.51.100.1, proto=http", ""},
		{"", "for=192.0.2.1;for=198.51.100.1", ""},
		{"", `for=198.51.100.1;x=", for=192.0.2.1`, ""},                    // a client wants to hide what the proxy adds
		{"", `for=198.51.100.1;x=", for="[2001:db8::1]"`, ""},              // the same, of IPv6
		{"", `for=198.51.100.1;x="\", for="[2001:db8::1]"`, "2001:db8::1"}, // the same, with a backslash
		{"", `for=198.51.100.1;x="|for=192.0.2.1`, "192.0.2.1"},            // the proxy adds a line
		{"", `for=198.51.100.1;x"=1`, ""},
		{"", `for=198.51.100.1;x="a"b=c`, ""},
		{"192.0.2.1", "for=192.0.2.1", "192.0.2.1"},
		{"192.0.2.1", "for=198.51.100.1", ""},
		{"unknown", "for=192.0.2.1", ""},
		{"192.0.2.1", "for=unknown", ""},
	} {
		header := make(map[string][]string)
		if test.listed != "" {
			header["X-Forwarded-For"] = strings.Split(test.listed, "|")
		}
		if test.standard != "" {
			header["Forwarded"] = strings.Split(test.standard, "|")
		}
		if got := proxies.ClientOf(header); got != test.want {
			t.Errorf("%.100q and %.100q: got %q, want %q", test.listed, test.standard, got, test.want)
		}
	}
}

func TestTrust(t *testing.T) {
	for address, want := range map[string]bool{
		"10.1.2.3:80": true, "[::ffff:10.1.2.3]:80": true, "[2001:db8:ffff::1%eth0]:80": true, "11.0.0.1:80": false, "@": false, "": false, "host:1": false,
	} {
		if got := proxies.Trust(address); got != want {
			t.Errorf("%s: got %t", address, got)
		}
	}
	if Proxies(nil).Trust("10.1.2.3:80") {
		t.Error("no proxy is trusted by default")
	}
}

// Whatever a client sends, an address that a proxy adds behind it is believed, or none is.
//
// Guarantees: G-0086.2
func FuzzClientOf(f *testing.F) {
	for _, sent := range []string{"192.0.2.1", `for=192.0.2.1`, `for=192.0.2.1;x="`, `x="\`, `,`, `for="[2001:db8::2]`} {
		f.Add(sent)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		for _, client := range []string{"203.0.113.1", "2001:db8::1"} {
			element := "for=" + client
			if strings.Contains(client, ":") {
				element = fmt.Sprintf(`for="[%s]"`, client)
			}
			for _, header := range []map[string][]string{
				{"X-Forwarded-For": {sent + ", " + client}}, {"X-Forwarded-For": {sent, client}},
				{"Forwarded": {sent + ", " + element}}, {"Forwarded": {sent, element}},
				{"Forwarded": {sent}, "X-Forwarded-For": {client}}, {"X-Forwarded-For": {sent}, "Forwarded": {element}},
			} {
				if got := proxies.ClientOf(header); got != client && got != "" {
					t.Errorf("%q: got %q, want %q", header, got, client)
				}
			}
		}
	})
}
