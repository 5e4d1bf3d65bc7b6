package network

import (
	"context"
	"net/netip"
	"strings"
)

const (
	// mostForwarded is how many addresses of a request are read, and mostForwardedBytes how long the header with them may be.
	mostForwarded      = 32
	mostForwardedBytes = 4 << 10
)

// Proxies are the addresses of the proxies whose word on their clients counts.
type Proxies []netip.Prefix

// ParseProxy reads the addresses of proxies: a prefix such as 10.0.0.0/8, or a single address.
func ParseProxy(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil {
		return ip.Prefix(ip.BitLen())
	}
	return netip.ParsePrefix(text)
}

func (p Proxies) contain(ip netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(ip) {
			return true
		}
	}
	return false
}

// Trust reports whether the sender of a request, with the address that net/http has given it, is one of the proxies.
func (p Proxies) Trust(remote string) bool {
	ip, ok := parse(remote)
	return ok && p.contain(ip)
}

// ClientOf returns the address of the client of a request that a proxy has sent: the last one in X-Forwarded-For,
// or in Forwarded (RFC 7239) if there is no such header, that is not one of the proxies. It returns "" if the proxy has told
// none, or nothing that can be believed: the header is malformed or too long, or the two contradict each other.
func (p Proxies) ClientOf(header map[string][]string) string {
	listed, standard := header["X-Forwarded-For"], header["Forwarded"]
	if len(listed) == 0 && len(standard) == 0 {
		return ""
	}
	var clients []netip.Addr
	for _, told := range []struct {
		lines []string
		next  func(line string) (element, rest string)
		parse func(element string) (netip.Addr, bool)
	}{{listed, cutListed, parse}, {standard, cutForwarded, parseForwarded}} {
		if len(told.lines) == 0 {
			continue
		}
		ip, ok := p.last(told.lines, told.next, told.parse)
		if !ok {
			return ""
		}
		clients = append(clients, ip)
	}
	if clients[0] != clients[len(clients)-1] {
		return ""
	}
	return clients[0].String()
}

// last returns the last address that is not one of the proxies or, if all are, the first.
func (p Proxies) last(lines []string, next func(string) (string, string), parse func(string) (netip.Addr, bool)) (ip netip.Addr, ok bool) {
	if tooLong(lines) {
		return ip, false
	}
	read := 0
	for i := len(lines) - 1; i >= 0; i-- {
		for rest := lines[i]; rest != ""; read++ {
			var element string
			element, rest = next(rest)
			if ip, ok = parse(strings.Trim(element, " \t")); !ok || read == mostForwarded {
				return ip, false
			}
			if !p.contain(ip) {
				return ip, true
			}
		}
	}
	return ip, ok
}

func tooLong(lines []string) bool {
	bytes := 0
	for _, line := range lines {
		bytes += len(line)
	}
	return bytes > mostForwardedBytes || len(lines) > mostForwarded
}

// cutListed returns the last element of a list, and what is before it.
func cutListed(line string) (element, rest string) {
	at := strings.LastIndexByte(line, ',')
	return line[at+1:], line[:max(at, 0)]
}

// cutForwarded returns the last element of a list whose elements may have commas between quotes, and what is before it.
func cutForwarded(line string) (element, rest string) {
	begin, quoted := -1, false
	for i := range len(line) {
		switch {
		case line[i] == '"':
			quoted = !quoted
		case line[i] == ',' && !quoted:
			begin = i
		}
	}
	return line[begin+1:], line[:max(begin, 0)]
}

// parseForwarded returns the address in the one parameter "for" of an element of Forwarded.
func parseForwarded(element string) (ip netip.Addr, ok bool) {
	for element != "" {
		name, value, found := strings.Cut(element, "=")
		if !found || strings.ContainsAny(name, "\", ;") {
			return ip, false
		}
		if value, element, found = cutValue(value); !found {
			return ip, false
		}
		if !strings.EqualFold(name, "for") {
			continue
		}
		if ok { // it is there twice
			return ip, false
		}
		if ip, ok = parse(strings.TrimRight(value, " \t")); !ok {
			return ip, false
		}
	}
	return ip, ok
}

// cutValue returns the value with which a text begins, and the parameters behind it. A value with quotes has them around it.
func cutValue(text string) (value, rest string, ok bool) {
	if quoted, isQuoted := strings.CutPrefix(text, `"`); isQuoted {
		value, rest, ok = strings.Cut(quoted, `"`)
		if rest = strings.TrimLeft(rest, " \t"); !ok || rest != "" && rest[0] != ';' {
			return "", "", false
		}
		rest = strings.TrimPrefix(rest, ";")
	} else if value, rest, _ = strings.Cut(text, ";"); strings.Contains(value, `"`) {
		return "", "", false
	}
	return value, strings.TrimLeft(rest, " \t"), true
}

// parse returns an IP address, which may have a port and, if it is of IPv6, brackets.
func parse(text string) (ip netip.Addr, ok bool) {
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		with, err := netip.ParseAddrPort(text)
		if err != nil {
			return ip, false
		}
		ip = with.Addr()
	}
	return ip.Unmap().WithZone(""), true
}

// Host returns the IP address in an address that may have a port.
func Host(address string) (host string, ok bool) {
	ip, ok := parse(address)
	return ip.String(), ok
}

// clientKey is the key of the context of a request whose client is known.
type clientKey struct{}

// WithClient returns the context of a request that came from a proxy on behalf of a client with this address.
func WithClient(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, clientKey{}, address)
}

// Client returns the address of the client of a request, without a port, if a proxy has told it; otherwise "".
func Client(ctx context.Context) string {
	address, _ := ctx.Value(clientKey{}).(string)
	return address
}
