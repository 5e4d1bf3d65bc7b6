package guard

import (
	"net/netip"
	"strings"
)

// A class is what an address is for, as far as the rules care.
type class int

const (
	public class = iota
	loopback
	private   // RFC 1918, unique local
	shared    // 100.64.0.0/10 of RFC 6598, used by carriers and overlay networks
	linkLocal // cloud metadata services, among others
	special   // other reserved addresses, from which no document is fetched
)

func (c class) rule() string {
	switch c {
	case loopback:
		return "it leads to a loopback address"
	case private:
		return "it leads to a private address"
	case shared:
		return "it leads to an address that a carrier's customers share"
	case linkLocal:
		return "it leads to a link-local address"
	default:
		return "it leads to an address that is reserved"
	}
}

// reserved are the special addresses of IANA's registries, except those that a method of
// netip.Addr names, and those outside of unicast.
var reserved = [...]netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("2001::/23"),
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("3fff::/20"),
}

// unicast are the only IPv6 addresses that IANA has allocated for the public Internet.
var unicast = netip.MustParsePrefix("2000::/3")

var carrierNAT = netip.MustParsePrefix("100.64.0.0/10")

// Prefixes of IPv6 addresses with an IPv4 address in them.
var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
	compatible = netip.MustParsePrefix("::/96")
)

// classOf judges an address, and what is wrapped in it.
func classOf(a netip.Addr) class {
	a = a.Unmap().WithZone("")
	switch {
	case a.IsLoopback():
		return loopback
	case a.IsLinkLocalUnicast():
		return linkLocal
	case a.IsPrivate():
		return private
	case carrierNAT.Contains(a):
		return shared
	case a.IsUnspecified(), a.IsMulticast(), a.IsInterfaceLocalMulticast(), !a.IsValid():
		return special
	}
	if inner, ok := embedded(a); ok {
		if c := classOf(inner); c != public || nat64.Contains(a) { // a NAT64 leads there and nowhere else
			return c
		}
	}
	if a.Is6() && !unicast.Contains(a) {
		return special
	}
	for _, prefix := range reserved {
		if prefix.Contains(a) {
			return special
		}
	}
	return public
}

// embedded returns the IPv4 address within an IPv6 address.
func embedded(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return a, false
	}
	b := a.As16()
	switch {
	case nat64.Contains(a), compatible.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case teredo.Contains(a): // the client's address, inverted
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), true
	default:
		return a, false
	}
}

// classOfHost judges a host that is written as an address, or is localhost by its
// name. Any other name is public here, and judged when it is dialled.
func classOfHost(host string) class {
	host = hostOf(host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return loopback
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return classOf(a)
	}
	return public
}
