package otel

import (
	"net"
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/transport"
)

// A network contains the attributes of the network between the peers.
type network struct {
	transport, protocol string // network.transport and network.protocol.name
	address, port       string // of the server; "" if it has none
}

var (
	overPipe = &network{transport: "pipe"} // standard input and output, or memory
	overHTTP = &network{transport: "tcp", protocol: "http"}
	overElse = new(network) // to an endpoint that is no URL
)

// networkOf returns the network to an endpoint of a client, as transport.Traits has it. ""
// means a pipe.
func (t *Telemetry) networkOf(endpoint string) *network {
	if endpoint == "" {
		return overPipe
	}
	if found := t.networks.all()[endpoint]; found != nil {
		return found
	}
	return t.networks.keep(endpoint, networkTo(endpoint))
}

func networkTo(endpoint string) *network {
	at, err := url.Parse(endpoint)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" {
		return overElse
	}
	to := *overHTTP
	to.address, to.port = at.Hostname(), at.Port()
	if to.port == "" {
		to.port = map[string]string{"http": "80", "https": "443"}[at.Scheme]
	}
	return &to
}

// withoutServer returns the network of a question, which has no server's address: the server
// asks.
func (n *network) withoutServer() *network {
	if n.protocol == overHTTP.protocol {
		return overHTTP
	}
	return n
}

// from returns the network over which a message came, and its version of HTTP.
func from(origin *transport.Origin) (by *network, http string) {
	if origin.Headers == nil {
		return overPipe, ""
	}
	return overHTTP, versionOf(origin.HTTP)
}

// httpVersions are the values of network.protocol.version, beside "".
var httpVersions = [...]string{"1.0", "1.1", "2", "3", other}

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
	toldSessionID = 8  // how many characters of a session id are recorded
	minSessionID  = 32 // the minimum length of a session id of which they are recorded
)

// textOrNumber returns an attribute of the type that the conventions require.
func textOrNumber(key attribute.Key, text string) attribute.KeyValue {
	if key == keyServerPort {
		if number, err := strconv.Atoi(text); err == nil {
			return key.Int(number)
		}
	}
	return key.String(text)
}
