package server

import (
	"bytes"
	"slices"

	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// identify finds out who made the request, and what the server offers to that client.
func (c *call) identify() error {
	s := c.peer.server
	known := c.peer.known.Load()
	if c.rest = known.before(c.in.Params); c.rest != nil {
		c.serveKnown(known)
		return nil
	}
	meta, _ := jsonrpc.Member(c.in.Params, "_meta")
	for _, last := range [...]*knownClient{known, s.known.Load()} {
		if last != nil && bytes.Equal(last.meta, meta) {
			if last != known {
				c.peer.spoke(last.client.ProtocolVersion)
			}
			c.peer.known.Store(last)
			c.serveKnown(last)
			return nil
		}
	}
	said, modern, err := protocol.ModernContext(c.in.Params)
	switch {
	case err != nil:
		return err
	case modern:
		return c.identifyModern(said, meta)
	case c.Method == protocol.MethodInitialize:
		c.Client = &Client{ProtocolVersion: protocol.LatestLegacy}
		return nil
	}
	session := c.peer.session.Load()
	if session == nil {
		name := shorten(c.Method, longestName)
		if !slices.ContainsFunc(s.options.ProtocolVersions, protocol.IsLegacy) {
			return refuse(jsonrpc.CodeInvalidParams, "%s: _meta: %s is missing", name, protocol.MetaProtocolVersion)
		}
		return refuse(jsonrpc.CodeInvalidRequest, "%s before initialize", name)
	}
	c.Session, c.Client, c.offered = session, &session.client, session.offered
	return nil
}

// identifyModern reads a modern request. Earlier requests do not count, on this link or
// another (2026-07-28 basic/index).
func (c *call) identifyModern(said *protocol.RequestContext, meta []byte) error {
	s := c.peer.server
	if !protocol.IsModern(said.ProtocolVersion) || !slices.Contains(s.options.ProtocolVersions, said.ProtocolVersion) {
		return protocol.UnsupportedVersion(said.ProtocolVersion, s.options.ProtocolVersions)
	}
	if said.LogLevel != "" && said.LogLevel.Severity() < 0 {
		return refuse(jsonrpc.CodeInvalidParams, "_meta: %s: unknown level %q", protocol.MetaLogLevel, shorten(string(said.LogLevel), longestName))
	}
	c.peer.spoke(said.ProtocolVersion)
	c.modern, c.level = true, said.LogLevel
	c.offered = s.capabilities.modern()
	c.Client = &Client{ProtocolVersion: said.ProtocolVersion, Capabilities: said.ClientCapabilities}
	if said.ClientInfo != nil {
		c.Client.Info = *said.ClientInfo
	}
	if len(meta) <= maxKnown && !bytes.Contains(meta, []byte(protocol.MetaProgressToken)) {
		members := protocol.Meta{}
		if protocol.Unmarshal(meta, &members) == nil {
			known := &knownClient{bytes.Clone(meta), members, c.Client, c.level}
			c.peer.known.Store(known)
			s.known.Store(known)
		}
	}
	return nil
}

// serveKnown uses what an earlier request with the same _meta said.
func (c *call) serveKnown(known *knownClient) {
	c.known, c.modern, c.level, c.Client, c.offered = known, true, known.level, known.client, c.peer.server.capabilities.modern()
}

// A knownClient is the content of a modern request's _meta. Most clients send the same
// in each of their requests.
type knownClient struct {
	meta    []byte
	members protocol.Meta // of meta; shared, so read-only
	client  *Client
	level   protocol.LogLevel
}

const (
	// maxKnown is the maximum length of a _meta that is stored, in bytes.
	maxKnown = 2 << 10

	// maxRest is how many bytes may follow a _meta that is not decoded again.
	maxRest = 4 << 10
)

// before returns the rest of params that begin with the client's _meta: what follows
// that and a comma. It returns nil if they begin otherwise, or if the rest may contain
// another _meta.
func (k *knownClient) before(params []byte) (rest []byte) {
	const opening = `{"_meta":`
	if k == nil || len(params) <= len(opening)+len(k.meta) || string(params[:len(opening)]) != opening {
		return nil
	}
	rest, found := bytes.CutPrefix(params[len(opening):], k.meta)
	if !found || len(rest) > maxRest || bytes.Contains(rest, []byte("_meta")) || bytes.Contains(rest, []byte(`\u`)) {
		return nil
	}
	return bytes.TrimPrefix(rest, []byte{','})
}

// decodeParams decodes the params. It does not decode the _meta of a known client again.
func (c *call) decodeParams(m *method) error {
	if takes, ok := c.Params.(metaTaker); ok && c.rest != nil {
		from := len(c.in.Params) - len(c.rest) - 1
		behind := c.in.Params[from]
		c.in.Params[from] = '{' // so that the rest is an object
		err := m.decode(c.in.Params[from:], c.Params)
		c.in.Params[from] = behind
		if err == nil {
			takes.AddMeta(c.known.members)
			return nil
		}
	}
	return m.decode(c.in.Params, c.Params)
}

// A metaTaker has params that may have a _meta.
type metaTaker interface{ AddMeta(members protocol.Meta) }

// isOffered reports whether the server offers a method to the client of a call. It does
// not if the method was not added, the client's revision does not have it, or the server
// has no such feature.
func (c *call) isOffered(m *method) bool {
	return m != nil && m.In(c.Client.ProtocolVersion) && c.offered.Has(m.ServerCapability) && (m.offered == nil || m.offered(c))
}

// A clientKey identifies the client of a modern call, for limits per client: its
// identity, or else its network, or else its link.
type clientKey struct {
	identity, network string
	link              *peer
}

func (c *call) clientKey() clientKey {
	switch {
	case c.Origin.Identity != "":
		return clientKey{identity: c.Origin.Identity}
	case c.Origin.RemoteAddr != "":
		return clientKey{network: network.Of(c.Origin.RemoteAddr)}
	default:
		return clientKey{link: c.peer}
	}
}
