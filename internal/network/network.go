// Package network says what addresses mean: which clients count as one where bounds are per client, for which client a
// proxy speaks, and what stays on this machine.
package network

import (
	"net"
	"net/netip"
	"strings"
)

// Of returns the address without its port, if it has one. Of an IPv6 address it keeps the first
// 64 bits, since one host can use all addresses behind them.
func Of(address string) string {
	if host, port, ok := strings.Cut(address, ":"); ok && !strings.ContainsAny(port, ":]") && !strings.ContainsAny(host, "[]") {
		return host // as most are: of IPv4
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Unmap().Is4() {
		return host
	}
	network, _ := ip.WithZone("").Prefix(64) // 64 bits are never too many
	return network.String()
}
