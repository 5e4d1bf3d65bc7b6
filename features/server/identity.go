package server

import (
	"fmt"
	"slices"

	"github.com/bowline-mcp/bowline/features/internal/meta"
	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// identify finds out who made the request, and what the server offers to that client. The cheap
// ways come first: most requests say what the one before has said, and are recognized without
// decoding their _meta.
func (c *call) identify() error {
	known, session := c.peer.known.Load(), c.peer.session.Load()
	if known != nil {
		// The params begin with the bytes that the last modern request on this link had as its _meta.
		if c.cut = known.meta.Cut(c.in.Params); c.cut.Rest != nil {
			c.serveKnown(known)
			return nil
		}
	}
	// A _meta of nothing but a trace context names no revision, so this is the client of the session.
	if session != nil && c.Method != protocol.MethodInitialize {
		if c.cut = meta.CutTrace(c.in.Params); c.cut.Rest != nil {
			c.serveLegacy(session)
			return nil
		}
	}
	// From here on the _meta is looked for wherever it stands, and then read.
	text, _ := jsonrpc.Member(c.in.Params, "_meta")
	if c.recognize(known, text) {
		return nil
	}
	said, modern, err := protocol.ModernContext(c.in.Params)
	switch {
	case err != nil:
		return err
	case modern:
		return c.identifyModern(said, text)
	// It has no revision before it is negotiated. This one makes the method known; the answer says what holds.
	case c.Method == protocol.MethodInitialize:
		c.Client = &Client{ProtocolVersion: protocol.LatestLegacy}
		return nil
	case session == nil:
		return c.unidentified()
	}
	c.serveLegacy(session)
	return nil
}

// recognize looks for the _meta among those of the last client on this link, and of the last one on
// any link: many links may belong to one program. It reports false if it is new, and must be read.
func (c *call) recognize(known *knownClient, text []byte) bool {
	for _, last := range [...]*knownClient{known, c.peer.server.known.Load()} {
		if last == nil || !last.meta.Is(text) {
			continue
		}
		if last != known {
			c.peer.setVersion(last.client.ProtocolVersion)
		}
		c.peer.known.Store(last)
		c.serveKnown(last)
		return true
	}
	return false
}

// unidentified refuses a request of nobody, and says what is missing in the era that the server
// speaks.
func (c *call) unidentified() error {
	name := refusal.Shorten(c.Method, refusal.LongestName)
	if !slices.ContainsFunc(c.peer.server.options.ProtocolVersions, protocol.IsLegacy) {
		return refusal.New(jsonrpc.CodeInvalidParams, "%s: _meta: %s is missing", name, protocol.MetaProtocolVersion)
	}
	return refusal.New(jsonrpc.CodeInvalidRequest, "%s before initialize", name)
}

func (c *call) serveLegacy(session *Session) {
	c.Session, c.Client, c.offered = session, session.client, session.offered
}

// identifyModern reads a modern request. Earlier requests do not count, on this link or
// another (2026-07-28 basic/index).
func (c *call) identifyModern(said *protocol.RequestContext, text []byte) error {
	s := c.peer.server
	if !protocol.IsModern(said.ProtocolVersion) || !slices.Contains(s.options.ProtocolVersions, said.ProtocolVersion) {
		return refusal.Unsupported(said.ProtocolVersion, s.options.ProtocolVersions)
	}
	if said.LogLevel != "" && said.LogLevel.Severity() < 0 {
		return protocol.InvalidParams(protocol.ReasonMeta, fmt.Sprintf("_meta: %s: unknown level %q", protocol.MetaLogLevel, refusal.Shorten(string(said.LogLevel), refusal.LongestName)))
	}
	// Only after all checks: what is refused leaves no trace on the link.
	c.peer.setVersion(said.ProtocolVersion)
	c.modern, c.level = true, said.LogLevel
	c.offered = s.capabilities.modern()
	c.Client = &Client{ProtocolVersion: said.ProtocolVersion, Capabilities: said.ClientCapabilities}
	if said.ClientInfo != nil {
		c.Client.Info = *said.ClientInfo
	}
	// For the next request on this link, and for one on another link of the same program.
	if remembered := meta.Remember(text); remembered != nil {
		known := &knownClient{remembered, c.Client, c.level}
		c.peer.known.Store(known)
		s.known.Store(known)
	}
	return nil
}

// serveKnown uses what an earlier request with the same _meta said.
func (c *call) serveKnown(known *knownClient) {
	c.modern, c.level, c.Client, c.offered = true, known.level, known.client, c.peer.server.capabilities.modern()
}

// A knownClient is what the _meta of a modern request says. Most clients send the same in each of
// their requests.
type knownClient struct {
	meta   *meta.Known
	client *Client
	level  protocol.LogLevel
}

// decodeParams decodes the params. It does not decode a _meta that the server knows. If the
// program may never see it, addMeta adds it later.
func (c *call) decodeParams(m *method) error {
	if takes, ok := c.Params.(meta.Taker); ok && c.cut.Rest != nil {
		// If this fails, all is decoded once more, so that the error is the one that the client gets in every case.
		if m.decode(c.cut.Rest, c.Params, protocol.UnmarshalMembers) == nil {
			c.cut.Keep()
			c.metaDeferred = m.mayLackMeta && len(c.peer.server.options.Middleware) == 0
			if !c.metaDeferred {
				c.cut.AddTo(takes)
			}
			return nil
		}
	}
	c.cut = meta.Cut{}
	return m.decode(c.in.Params, c.Params, protocol.UnmarshalParams)
}

// addMeta adds the _meta that decodeParams has left out. Everything that shows the params to the
// program calls it before.
func (c *call) addMeta() {
	if !c.metaDeferred {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.whole {
		c.cut.AddTo(c.Params.(meta.Taker))
		c.whole = true
	}
}

// isOffered reports whether the server offers a method to the client of a call. It does
// not if the method was not added, the client's revision does not have it, or the server
// has no such feature.
func (c *call) isOffered(m *method) bool {
	return m != nil && m.In(c.Client.ProtocolVersion) && c.offered.Has(m.ServerCapability) && (m.offered == nil || m.offered(c))
}

// client returns whose share of the server's places a call uses: that of its link, if it has neither an
// identity nor an address. The link is there as long as the place is used.
func (c *call) client() share.Client {
	switch {
	case c.Origin.Identity != "":
		return share.Client{Identity: c.Origin.Identity}
	case c.Origin.RemoteAddr != "":
		return share.Client{Network: network.Of(c.Origin.Address())}
	default:
		return share.Client{Network: fmt.Sprintf("link %p", c.peer)}
	}
}
