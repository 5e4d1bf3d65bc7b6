package server

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// identify finds out who made the request, and what the server offers to that client.
func (c *call) identify() error {
	s := c.peer.server
	known := c.peer.known.Load()
	if c.traced, c.rest = known.before(c.in.Params); c.rest != nil {
		c.serveKnown(known)
		return nil
	}
	session := c.peer.session.Load()
	if session != nil && c.Method != protocol.MethodInitialize {
		if c.traced, c.rest = beforeTraced(c.in.Params); c.rest != nil {
			c.serveLegacy(session)
			return nil
		}
	}
	meta, _ := jsonrpc.Member(c.in.Params, "_meta")
	for _, last := range [...]*knownClient{known, s.known.Load()} {
		if _, behind := last.within(meta); behind != nil && len(behind) == 0 {
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
	if session == nil {
		name := refusal.Shorten(c.Method, refusal.LongestName)
		if !slices.ContainsFunc(s.options.ProtocolVersions, protocol.IsLegacy) {
			return refusal.New(jsonrpc.CodeInvalidParams, "%s: _meta: %s is missing", name, protocol.MetaProtocolVersion)
		}
		return refusal.New(jsonrpc.CodeInvalidRequest, "%s before initialize", name)
	}
	c.serveLegacy(session)
	return nil
}

func (c *call) serveLegacy(session *Session) {
	c.Session, c.Client, c.offered = session, session.client, session.offered
}

// identifyModern reads a modern request. Earlier requests do not count, on this link or
// another (2026-07-28 basic/index).
func (c *call) identifyModern(said *protocol.RequestContext, meta []byte) error {
	s := c.peer.server
	if !protocol.IsModern(said.ProtocolVersion) || !slices.Contains(s.options.ProtocolVersions, said.ProtocolVersion) {
		return protocol.UnsupportedVersion(said.ProtocolVersion, s.options.ProtocolVersions)
	}
	if said.LogLevel != "" && said.LogLevel.Severity() < 0 {
		return protocol.UnknownLogLevel(refusal.Shorten(string(said.LogLevel), refusal.LongestName))
	}
	c.peer.spoke(said.ProtocolVersion)
	c.modern, c.level = true, said.LogLevel
	c.offered = s.capabilities.modern()
	c.Client = &Client{ProtocolVersion: said.ProtocolVersion, Capabilities: said.ClientCapabilities}
	if said.ClientInfo != nil {
		c.Client.Info = *said.ClientInfo
	}
	if meta = withoutTrace(meta); len(meta) <= maxKnown && !bytes.Contains(meta, []byte(protocol.MetaProgressToken)) {
		members := protocol.Meta{}
		if protocol.Unmarshal(meta, &members) == nil {
			known := &knownClient{meta, members, c.Client, c.level}
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

// A knownClient is the content of a modern request's _meta, without the trace context at its
// end. Most clients send the same in each of their requests.
type knownClient struct {
	meta    []byte
	members protocol.Meta // the decoded members of meta; shared, so read-only
	client  *Client
	level   protocol.LogLevel
}

const (
	// maxKnown is the maximum length of a _meta that is stored, in bytes.
	maxKnown = 2 << 10

	// maxRest is how many bytes may follow a _meta that is not decoded again.
	maxRest = 4 << 10
)

// before returns the rest of params that begin with the client's _meta: what follows that and
// a comma. It also returns the trace context at the end of that _meta. The rest is nil if the
// params begin otherwise, or if it may contain another _meta.
func (k *knownClient) before(params []byte) (traced, rest []byte) {
	params, found := bytes.CutPrefix(params, []byte(`{"_meta":`))
	if !found {
		return nil, nil
	}
	traced, behind := k.within(params)
	return traced, onlyRest(behind)
}

// beforeTraced does what before does for params of a legacy client whose _meta consists of a
// trace context.
func beforeTraced(params []byte) (traced, rest []byte) {
	text, found := bytes.CutPrefix(params, []byte(`{"_meta":`))
	if !found {
		return nil, nil
	}
	size, _ := traceMembers(text, nil)
	if size <= 0 || size == len(text) || text[size] != '}' {
		return nil, nil
	}
	return text[:size], onlyRest(text[size+1:])
}

// onlyRest returns what is behind the _meta of params, and the comma after that. It returns nil
// if there may be another _meta.
func onlyRest(behind []byte) []byte {
	if len(behind) == 0 || len(behind) > maxRest || bytes.Contains(behind, []byte("_meta")) || bytes.Contains(behind, []byte(`\u`)) {
		return nil
	}
	return bytes.TrimPrefix(behind, []byte{','})
}

// within returns what follows the client's _meta in a text that begins with it, and the trace
// context at the end of that _meta. What follows is nil if the text begins otherwise.
func (k *knownClient) within(text []byte) (traced, behind []byte) {
	if k == nil || len(k.meta) == 0 {
		return nil, nil
	}
	behind, found := bytes.CutPrefix(text, k.meta[:len(k.meta)-1])
	if !found {
		return nil, nil
	}
	size, _ := traceMembers(behind, k.members)
	if size < 0 || size == len(behind) || behind[size] != '}' {
		return nil, nil
	}
	return behind[:size], behind[size+1:]
}

// traceMembers returns the size of the members of a trace context that text begins with, each
// behind a comma, or the first behind a brace, and their values. The size is negative if one of
// them has an escape, is there twice, or is among the members before.
func traceMembers(text []byte, before protocol.Meta) (size int, values [len(traceNames)][]byte) {
members:
	for size < len(text) && (text[size] == ',' || size == 0 && text[size] == '{') {
		for i, name := range traceNames {
			value, found := bytes.CutPrefix(text[size+1:], []byte(name))
			if !found {
				continue
			}
			length := plainLength(value)
			if _, own := before[name[len(`"`):len(name)-len(`":`)]]; own || values[i] != nil || length == 0 {
				return -1, values
			}
			values[i] = value[:length:length]
			size += len(`,`) + len(name) + length
			continue members
		}
		break
	}
	return size, values
}

// plainLength returns the length of the JSON string that text begins with, or 0 if that has an
// escape, or text begins otherwise.
func plainLength(text []byte) int {
	if len(text) == 0 || text[0] != '"' {
		return 0
	}
	size, _ := scan.Plain(text[1:])
	if 1+size == len(text) || text[1+size] != '"' {
		return 0
	}
	return size + len(`""`)
}

// traceNames are the members of a trace context in _meta, with what surrounds their names.
var traceNames = [...]string{`"` + protocol.MetaTraceparent + `":`, `"` + protocol.MetaTracestate + `":`, `"` + protocol.MetaBaggage + `":`}

// withoutTrace returns a copy of a _meta without the trace context at its end.
func withoutTrace(meta []byte) []byte {
	if at := bytes.Index(meta, []byte(`,`+traceNames[0])); at > 0 {
		if size, _ := traceMembers(meta[at:], nil); size > 0 && at+size == len(meta)-1 {
			return append(bytes.Clone(meta[:at]), '}')
		}
	}
	return bytes.Clone(meta)
}

// decodeParams decodes the params. It does not decode a _meta that the server knows. If the
// program may never see it, addMeta adds it later.
func (c *call) decodeParams(m *method) error {
	if takes, ok := c.Params.(metaTaker); ok && c.rest != nil {
		from := len(c.in.Params) - len(c.rest) - 1
		behind := c.in.Params[from]
		c.in.Params[from] = '{' // so that the rest is an object
		err := m.decode(c.in.Params[from:], c.Params)
		c.in.Params[from] = behind
		if err == nil {
			c.traced = bytes.Clone(c.traced) // so that a long call does not keep its frame
			c.lacksMeta = m.mayLackMeta && len(c.peer.server.options.Middleware) == 0
			if !c.lacksMeta {
				c.addMetaTo(takes)
			}
			return nil
		}
	}
	c.traced = nil
	return m.decode(c.in.Params, c.Params)
}

// addMeta adds the _meta that decodeParams has left out. Everything that shows the params to the
// program calls it before.
func (c *call) addMeta() {
	if !c.lacksMeta {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.whole {
		c.addMetaTo(c.Params.(metaTaker))
		c.whole = true
	}
}

// addMetaTo adds a copy of a known _meta, and the trace context at its end.
func (c *call) addMetaTo(params metaTaker) {
	var known protocol.Meta
	if c.known != nil {
		known = c.known.members
	}
	params.AddMeta(known)
	meta := protocol.MetaOf(params)
	_, values := traceMembers(c.traced, nil)
	for i, name := range [...]string{protocol.MetaTraceparent, protocol.MetaTracestate, protocol.MetaBaggage} {
		if values[i] != nil {
			meta[name] = values[i]
		}
	}
}

// A metaTaker has params that may have a _meta.
type metaTaker interface{ AddMeta(members protocol.Meta) }

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
