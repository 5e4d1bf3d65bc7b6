package guard

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

var errDialled = errors.New("dialled")

// resolver returns a net.Resolver whose server has an address for each name, or none.
func resolver(answer func(name string) netip.Addr) *net.Resolver {
	return resolverOf(func(name string, _ uint16) netip.Addr { return answer(name) })
}

// resolverOf returns a net.Resolver whose server has an address for each name and type of record.
func resolverOf(answer func(name string, kind uint16) netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			size := make([]byte, 2)
			for {
				if _, err := io.ReadFull(there, size); err != nil {
					return
				}
				query := make([]byte, binary.BigEndian.Uint16(size))
				if _, err := io.ReadFull(there, query); err != nil {
					return
				}
				reply := answerQuery(query, answer)
				if _, err := there.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
					return
				}
			}
		}()
		return here, nil
	}}
}

// answerQuery answers a DNS query for one name (RFC 1035, section 4).
func answerQuery(query []byte, answer func(string, uint16) netip.Addr) []byte {
	at, labels := 12, []string{}
	for size := int(query[at]); size > 0; size = int(query[at]) {
		labels = append(labels, string(query[at+1:at+1+size]))
		at += 1 + size
	}
	kind := binary.BigEndian.Uint16(query[at+1:])
	address := answer(strings.Join(labels, "."), kind)
	reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:at+5]...)
	if address.Is4() && kind == 1 || address.Is6() && kind == 28 {
		reply[7] = 1
		reply = append(reply, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 60, 0, byte(len(address.AsSlice())))
		reply = append(reply, address.AsSlice()...)
	}
	return reply
}

// get fetches an address with a guard that dials nothing.
func get(t *testing.T, g *Guard, address string) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.Do(request)
	return err
}

var classes = map[string][]string{
	loopback.rule():  {"127.0.0.1", "127.8.9.10", "::1"},
	private.rule():   {"10.1.2.3", "172.16.0.1", "172.31.255.254", "192.168.1.1", "fd00::1", "fc00::1"},
	shared.rule():    {"100.64.0.1", "100.101.102.103", "100.127.255.254"},
	linkLocal.rule(): {"169.254.169.254", "fe80::1"},
	special.rule(): {
		"0.0.0.0", "0.1.2.3", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
		"224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255", "::", "ff02::1", "2001:db8::1", "fec0::1", "100::1", "2001:2::1",
	},
	"": {"8.8.8.8", "100.63.255.255", "172.32.0.1", "192.169.0.1", "2606:4700::1111"},
}

// hostForms returns the ways in which a URL may lead to an address: hosts, and what
// they resolve to.
func hostForms(a netip.Addr) map[string]netip.Addr {
	hosts := map[string]netip.Addr{bracketed(a): a, "name.test": a, "NAME.test.": a}
	if !a.Is4() {
		return hosts
	}
	b := a.As4()
	number := binary.BigEndian.Uint32(b[:])
	// What the resolver of an operating system makes of numbers (inet_aton).
	hosts[fmt.Sprint(number)] = a
	hosts[fmt.Sprintf("0x%08x", number)] = a
	hosts[fmt.Sprintf("0%o.0%o.0%o.0%o", b[0], b[1], b[2], b[3])] = a
	hosts[fmt.Sprintf("0x%x.%d.0x%x%02x", b[0], b[1], b[2], b[3])] = a
	mapped := netip.AddrFrom16(a.As16())
	for _, wrapped := range []netip.Addr{
		mapped,
		netip.MustParseAddr(fmt.Sprintf("64:ff9b::%02x%02x:%02x%02x", b[0], b[1], b[2], b[3])),
		netip.MustParseAddr(fmt.Sprintf("2002:%02x%02x:%02x%02x::1", b[0], b[1], b[2], b[3])),
		netip.MustParseAddr(fmt.Sprintf("2001::1:%02x%02x:%02x%02x", ^b[0], ^b[1], ^b[2], ^b[3])),
	} {
		hosts[bracketed(wrapped)] = wrapped
		hosts[fmt.Sprintf("wrapped%x.test", wrapped.As16())] = wrapped
	}
	return hosts
}

func bracketed(a netip.Addr) string {
	if a.Is4() {
		return a.String()
	}
	return "[" + a.String() + "]"
}

// Guarantees: G-0045.1, G-0045.2
func TestEveryWayToEveryAddress(t *testing.T) {
	for rule, addresses := range classes {
		for _, text := range addresses {
			address := netip.MustParseAddr(text)
			for host, resolved := range hostForms(address) {
				if rule == "" && strings.HasPrefix(host, "[2001::") {
					continue // Teredo itself is reserved
				}
				if rule == "" && strings.HasPrefix(host, "wrapped20010000") {
					continue
				}
				checkHostForm(t, rule, host, resolved)
			}
		}
	}
}

func checkHostForm(t *testing.T, rule, host string, resolved netip.Addr) {
	t.Helper()
	g := New(Options{Proxy: noProxy, Resolver: resolver(func(string) netip.Addr { return resolved })})
	g.dialing = func(netip.AddrPort) error { return errDialled }
	err := get(t, g, "https://"+host+"/x?secret=1")
	if strings.Contains(err.Error(), "no such host") { // Go's resolver refuses numbers; the system's takes them
		err = g.admit(host, "443", netip.AddrPortFrom(resolved, 443).String())
	}
	var refused *Error
	switch {
	case rule == "" && !errors.Is(err, errDialled):
		t.Errorf("%s, which is %s, is public: %v", host, resolved, err)
	case rule != "" && (!errors.As(err, &refused) || refused.Rule != rule):
		t.Errorf("%s, which is %s: %v, want %s", host, resolved, err, rule)
	case strings.Contains(err.Error(), "secret"):
		t.Errorf("the error shows the query: %v", err)
	}
}

func noProxy(*http.Request) (*url.URL, error) { return nil, nil }

// The first and last address of every range that IANA has reserved, and addresses with a zone.
//
// Guarantees: G-0045.1
func TestEveryReservedRange(t *testing.T) {
	for _, prefix := range reserved {
		last := prefix.Masked().Addr().AsSlice()
		for bit := prefix.Bits(); bit < len(last)*8; bit++ {
			last[bit/8] |= 0x80 >> (bit % 8)
		}
		end, _ := netip.AddrFromSlice(last)
		for _, a := range []netip.Addr{prefix.Masked().Addr(), end} {
			if c := classOf(a); c == public {
				t.Errorf("%s of %s is public", a, prefix)
			}
		}
	}
	for address, want := range map[string]class{"fe80::1%eth0": linkLocal, "::1%lo": loopback, "2606:4700::1111%1": public, "fd00::1%1": private, "ff02::1%eth0": special, "::ffff:127.0.0.1": loopback, "::127.0.0.1": loopback} {
		if c := classOf(netip.MustParseAddr(address)); c != want {
			t.Errorf("%s is of class %d, want %d", address, c, want)
		}
	}
	for address, want := range map[string]class{ // of IPv6 only 2000::/3 is public
		"::ffff:0:10.0.0.1": special, "::ffff:0:8.8.8.8": special, "::1.2.3.4": special, "1::1": special, "1fff:ffff::1": special, "4000::1": special,
		"64:ff9b:1::8.8.8.8": special, "100::1": special, "5f00::1": special, "fec0::1": special, "fbff::1": special,
		"64:ff9b::8.8.8.8": public, "64:ff9b::10.0.0.1": private, "64:ff9b::127.0.0.1": loopback, "64:ff9b::169.254.169.254": linkLocal, "64:ff9b::192.0.2.1": special,
		"2000::1": public, "2606:4700::1111": public, "2a00:1450::1": public, "3ffe::1": public, "2001:db8::1": special,
		"2002:0a00:0001::1": private, "2002:0808:0808::1": public, "2001:0:1:1:1:1:f5ff:fffe": private,
	} {
		if c := classOf(netip.MustParseAddr(address)); c != want {
			t.Errorf("%s is of class %d, want %d", address, c, want)
		}
	}
	g := New(Options{Endpoint: "https://mcp.test/mcp"})
	for _, address := range []string{"https://[fe80::1%25eth0]/", "https://[::ffff:169.254.169.254]/latest", "https://[::ffff:a9fe:a9fe]/"} {
		var refused *Error
		if err := g.Check(address); !errors.As(err, &refused) || refused.Rule != linkLocal.rule() {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// Each address of a name is checked: when the public one does not answer, the private one is not
// dialled.
//
// Guarantees: G-0045.1
func TestANameOfTwoAddresses(t *testing.T) {
	kinds := map[uint16]netip.Addr{1: netip.MustParseAddr("8.8.8.8"), 28: netip.MustParseAddr("::1")}
	g := New(Options{Proxy: noProxy, Resolver: resolverOf(func(_ string, kind uint16) netip.Addr { return kinds[kind] })})
	dialled := make(chan netip.AddrPort, 4)
	g.dialing = func(address netip.AddrPort) error { dialled <- address; return errDialled }
	err := get(t, g, "https://two.test/")
	close(dialled)
	for address := range dialled {
		if address.Addr() != kinds[1] {
			t.Errorf("%s was dialled", address)
		}
	}
	if err == nil {
		t.Error("no error")
	}
}

// If the address of a name changes, the address that is dialled is checked.
//
// Guarantees: G-0045.1
func TestANameThatMoves(t *testing.T) {
	var moved atomic.Bool
	g := New(Options{Proxy: noProxy, Resolver: resolver(func(string) netip.Addr {
		if moved.Load() {
			return netip.MustParseAddr("169.254.169.254")
		}
		return netip.MustParseAddr("8.8.8.8")
	})})
	g.dialing = func(netip.AddrPort) error { return errDialled }
	if err := get(t, g, "https://moving.test/"); !errors.Is(err, errDialled) {
		t.Fatal(err)
	}
	moved.Store(true)
	if err := get(t, g, "https://moving.test/"); err == nil || errors.Is(err, errDialled) {
		t.Errorf("%v", err)
	}
}

// Guarantees: G-0045.3
func TestConfiguredHostsAreAllowed(t *testing.T) {
	for _, c := range []struct {
		endpoint, address string
		hosts             []string
		allowed           bool
	}{
		{"http://127.0.0.1:8080/mcp", "http://127.0.0.1:9/", nil, true},
		{"http://localhost/mcp", "http://[::1]:9/", nil, true},
		{"http://localhost/mcp", "https://10.0.0.1/", nil, false},
		{"https://10.0.0.2/mcp", "https://192.168.0.1/", nil, true},
		{"https://10.0.0.2/mcp", "https://127.0.0.1/", nil, false},
		{"https://10.0.0.2/mcp", "http://10.0.0.3/", nil, false},
		{"https://mcp.test/mcp", "http://127.0.0.1/", []string{"127.0.0.1"}, false},
		{"http://127.0.0.1:8080/mcp", "http://8.8.8.8/", nil, false},
		{"", "https://8.8.8.8/", nil, true},
		{"%zz", "https://8.8.8.8/", nil, true},
		{"https://169.254.1.1/mcp", "https://169.254.1.1/x", nil, false},
		{"https://169.254.1.1/mcp", "https://169.254.169.254/", []string{"169.254.169.254"}, false},
		{"https://mcp.test/mcp", "https://10.0.0.1/", nil, false},
		{"https://mcp.test/mcp", "https://10.0.0.1/", []string{"10.0.0.1"}, true},
		{"https://mcp.test/mcp", "https://private.test/", nil, false},
		{"https://mcp.test/mcp", "https://PRIVATE.test./", []string{"private.test"}, true},
		{"https://mcp.test/mcp", "https://private.test/", []string{"PRIVATE.test."}, true},
		{"https://mcp.test/mcp", "https://[fd00::1]/", []string{"[FD00::1]"}, true},
		{"https://private.test/mcp", "https://private.test/.well-known/x", nil, true},
		{"https://private.test/mcp", "https://private.test:443/x", nil, true},
		{"https://PRIVATE.test./mcp", "https://private.test/x", nil, true},
		{"https://private.test/mcp", "https://private.test:8443/x", nil, false},
		{"https://private.test/mcp", "https://10.0.0.1/x", nil, false},
		{"http://private.test/mcp", "http://private.test/x", nil, false},
		{"https://100.101.102.103/mcp", "https://100.101.102.103/x", nil, true},
		{"https://100.101.102.103/mcp", "https://100.64.0.1/", nil, true},
		{"https://100.101.102.103/mcp", "https://10.0.0.1/", nil, false},
		{"https://10.0.0.2/mcp", "https://100.101.102.103/", nil, false},
		{"https://overlay.test/mcp", "https://overlay.test/x", nil, true},
		{"https://mcp.test/mcp", "https://overlay.test/", nil, false},
		{"https://203.0.113.1/mcp", "https://203.0.113.1/x", nil, false},
	} {
		g := New(Options{Endpoint: c.endpoint, AllowHosts: c.hosts, Proxy: noProxy, Resolver: resolver(func(name string) netip.Addr {
			if name == "overlay.test" {
				return netip.MustParseAddr("100.101.102.103")
			}
			return netip.MustParseAddr("10.9.9.9")
		})})
		g.dialing = func(netip.AddrPort) error { return errDialled }
		if err := get(t, g, c.address); errors.Is(err, errDialled) != c.allowed {
			t.Errorf("with endpoint %s and hosts %q, %s: %v, want allowed: %v", c.endpoint, c.hosts, c.address, err, c.allowed)
		}
	}
}

// Guarantees: G-0045.2
func TestInvalidDocumentURLs(t *testing.T) {
	g := New(Options{Endpoint: "https://mcp.test/mcp"})
	for _, address := range []string{
		"", "/x", "javascript:alert(1)", "file:///etc/passwd", "data:text/plain,x", "ftp://as.test/", "ws://as.test/", "http://as.test/", "https://", "https:as.test",
		"https://user:pass@as.test/", "https://user@as.test/", "https://:pass@as.test/", "https://[::1/", "http://127.0.0.1/", "https://localhost/", "https://a.localhost./",
	} {
		if err := g.Check(address); err == nil || strings.Contains(err.Error(), "pass") && !strings.Contains(err.Error(), "password in it") {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, address := range []string{"https://as.test/tenant?x=y", "https://notlocalhost/"} {
		if err := g.Check(address); err != nil {
			t.Error(err)
		}
	}
}
