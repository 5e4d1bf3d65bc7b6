package otel

import (
	"net"
	"net/url"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/transport"
)

// A network contains the attributes of the network between the peers.
type network struct {
	transport, protocol string // network.transport and network.protocol.name
	version             string // network.protocol.version, of HTTP; "" before it is known
	address, port       string // of the server; "" if it has none
}

var (
	overPipe = network{transport: "pipe"} // standard input and output, or memory
	overHTTP = network{transport: "tcp", protocol: "http"}
)

// networks keeps the networks to the endpoints of clients.
type networks struct {
	mu    sync.RWMutex
	known map[string]network
}

// of returns the network to an endpoint, as transport.Located returns it. "" means a pipe.
func (n *networks) of(endpoint string) network {
	if endpoint == "" {
		return overPipe
	}
	n.mu.RLock()
	found, ok := n.known[endpoint]
	n.mu.RUnlock()
	if ok {
		return found
	}
	found = networkTo(endpoint)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = make(map[string]network)
	}
	if len(n.known) < maxSets {
		n.known[endpoint] = found
	}
	return found
}

func networkTo(endpoint string) network {
	at, err := url.Parse(endpoint)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" {
		return network{}
	}
	to := overHTTP
	to.address, to.port = at.Hostname(), at.Port()
	if to.port == "" {
		to.port = map[string]string{"http": "80", "https": "443"}[at.Scheme]
	}
	return to
}

// from returns the network over which a message came.
func from(origin *transport.Origin) network {
	if origin.Headers == nil {
		return overPipe
	}
	came := overHTTP
	came.version = versionOf(origin.HTTP)
	return came
}

// versionOf returns a version of HTTP, or _OTHER if there is no such version.
func versionOf(http string) string {
	switch http {
	case "", "1.0", "1.1", "2", "3":
		return http
	default:
		return other
	}
}

// tellOrigin records who has sent a request, and its session.
func tellOrigin(span trace.Span, origin *transport.Origin) {
	if host, port, err := net.SplitHostPort(origin.RemoteAddr); err == nil {
		span.SetAttributes(keyClientAddress.String(shorten(host)))
		if number, err := strconv.Atoi(port); err == nil {
			span.SetAttributes(keyClientPort.Int(number))
		}
	}
	tellSession(span, sessionOf(origin))
}

// sessionOf returns the id of the session that a message came in, or "".
func sessionOf(origin *transport.Origin) string {
	if ids := origin.Headers["Mcp-Session-Id"]; len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// tellSession records the beginning of the id of a session. Whoever knows the whole id can
// join the session.
func tellSession(span trace.Span, id string) {
	if len(id) >= minSessionID {
		span.SetAttributes(keySessionID.String(shorten(id[:toldSessionID])))
	}
}

const (
	toldSessionID = 8  // characters of a session id that are recorded
	minSessionID  = 32 // length from which they are
)

// attributes appends the attributes of a span, with the address of the server.
func (n network) attributes(to []attribute.KeyValue) []attribute.KeyValue {
	for _, a := range [...]struct {
		key  attribute.Key
		text string
	}{{keyTransport, n.transport}, {keyProtocolName, n.protocol}, {keyProtocolHTTP, n.version}, {keyServerAddress, n.address}, {keyServerPort, n.port}} {
		if a.text != "" {
			to = append(to, textOrNumber(a.key, a.text))
		}
	}
	return to
}

// textOrNumber returns an attribute of the type that the conventions require.
func textOrNumber(key attribute.Key, text string) attribute.KeyValue {
	if key == keyServerPort {
		if number, err := strconv.Atoi(text); err == nil {
			return key.Int(number)
		}
	}
	return key.String(text)
}
