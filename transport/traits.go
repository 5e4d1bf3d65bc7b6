package transport

import "time"

// As returns the first of v, what v wraps, what that wraps, and so on, that is a T. V is a
// Transport, a Link, a Receiver or an Exchange, and T an interface that some of them have,
// such as Flusher. What wraps another one and has a method Unwrap that returns it, as in
//
//	func (w *wrapper) Unwrap() transport.Link { return w.Link }
//
// keeps all interfaces of what it wraps, except those that it implements itself. A wrapper
// for which that is wrong, for instance because it delays frames, has no such method.
//
// The outermost implementation counts. So a wrapper changes one fact by its own Traits, which
// begins with those of what it wraps:
//
//	func (w *wrapper) Traits() transport.Traits {
//		traits := transport.TraitsOf(w.Transport)
//		traits.Name = "counted"
//		return traits
//	}
//
// As follows each Unwrap once: what wraps itself is a mistake of the program, and never ends.
func As[T any](v any) (found T, ok bool) {
	for ; v != nil; v = unwrap(v) {
		if found, ok = v.(T); ok {
			return found, true
		}
	}
	return found, false
}

// unwrap returns what v wraps, or nil if it wraps nothing. A method Unwrap that returns another
// type, such as that of an error, does not count.
func unwrap(v any) any {
	switch wrapper := v.(type) {
	case interface{ Unwrap() Transport }:
		return wrapper.Unwrap()
	case interface{ Unwrap() Link }:
		return wrapper.Unwrap()
	case interface{ Unwrap() Receiver }:
		return wrapper.Unwrap()
	case interface{ Unwrap() Exchange }:
		return wrapper.Unwrap()
	}
	return nil
}

// Traits are facts about a Transport. The zero Traits are true of any.
type Traits struct {
	// Name names the peer by its command or host, for people and logs. It reveals no
	// credentials, and need not be unique.
	Name string

	// Endpoint is the location of the peer, for instance "https://mcp.example.com".
	// Transports with the same endpoint lose and regain their peer together, so a Client
	// can reconnect all of them when one succeeds. It is "" if the location is unknown, or
	// if no other transport can reach the same peer. It reveals no credentials.
	Endpoint string

	// StartsProcess says that Open starts the peer as a process. Such a peer may download
	// and install itself before it sends its first message, so it gets more time for that
	// (ADR-0001).
	StartsProcess bool

	// MirrorsArguments says that the links use Route.Arguments: they also send them outside
	// of the message, as MCP over HTTP does in headers.
	MirrorsArguments bool

	// OpensAtOnce says that Open never waits for anything (ADR-0054).
	OpensAtOnce bool
}

// A Describer is a Transport that reports facts about itself. Traits does no I/O, and may be
// called from any goroutine, also before the first Open. What it returns does not change while
// a Conn uses the transport: a Conn asks once whether it starts a process.
type Describer interface{ Traits() Traits }

// TraitsOf returns the facts that t reports, or else those of what it wraps, or the zero Traits.
// Some transports compute them from their configuration, so keep what you need often.
func TraitsOf(t Transport) Traits {
	if describer, ok := As[Describer](t); ok {
		return describer.Traits()
	}
	return Traits{}
}

// LinkTraits are facts about a Link and its connection, as it knows them now. The zero
// LinkTraits are true of any link.
type LinkTraits struct {
	// RequestPerMessage says that each message is a separate request to the server, as over
	// HTTP. By default, its peer is probed every few seconds while something waits for it,
	// and otherwise at most once a minute (ADR-0025). It never changes.
	RequestPerMessage bool

	// RecordsReads says that the link records in LastRead when bytes last came in, on any
	// stream: the zero time if none have. So a peer that is sending a large frame slowly is
	// not mistaken for a peer that is gone. If a link does not, its peer is probed only if
	// the program asks for it (ADR-0025).
	RecordsReads bool
	LastRead     time.Time

	// Network is what the link knows about the network connection to its peer, for
	// telemetry (ADR-0061). A client's link learns it from the responses, a server's link
	// from the request that opened it.
	Network Network
}

// A LinkDescriber is a Link that reports facts about itself. A Conn asks it after each batch of
// events whether bytes have come in meanwhile, so it must be cheap. LinkTraits may be called from
// any goroutine, at any time, also after the link is lost, and does not block.
type LinkDescriber interface{ LinkTraits() LinkTraits }

// LinkTraitsOf returns the facts that l reports, or else those of what it wraps, or the zero
// LinkTraits. They may change from call to call: a link learns from what it receives.
func LinkTraitsOf(l Link) LinkTraits {
	if describer, ok := As[LinkDescriber](l); ok {
		return describer.LinkTraits()
	}
	return LinkTraits{}
}

// A Network is what a link knows about the connection to its peer. In the zero Network,
// nothing is known.
type Network struct {
	// HTTP is a version of HTTP, such as "1.1" or "2". On a client's link it is that of the
	// last response, and empty before the first. On a server's link it is that of the
	// request that opened the link. It is empty on links that are not HTTP.
	HTTP string

	// Session is the id of the session, as in the header Mcp-Session-Id. It is empty if
	// there is none. Treat it as a secret: whoever knows it may take part.
	Session string
}
