package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// Server describes the server, as reported by the server itself. Rely on
// ProtocolVersion and Capabilities; treat the rest as display text.
type Server struct {
	ProtocolVersion string // the revision in use
	Info            protocol.Implementation
	Capabilities    protocol.ServerCapabilities
	Instructions    string // for the model: how to use the server; empty if it gives none
}

// A peer is the server of one incarnation, as its handshake has described it.
type peer struct {
	incarnation *conn.Incarnation
	server      Server
	requestMeta // the _meta for every request; zero in the legacy revisions
}

// A requestMeta is the _meta of every modern request. All sessions of a client share it.
type requestMeta struct {
	members protocol.Meta   // read-only
	meta    json.RawMessage // the same in encoded form; equal bytes let a server recognize it
}

// Modern reports whether the server speaks a modern revision.
func (p *peer) Modern() bool { return p.members != nil }

// Epoch returns the number of the incarnation.
func (p *peer) Epoch() uint64 { return p.incarnation.Epoch() }

// Version returns the revision in use.
func (p *peer) Version() string { return p.server.ProtocolVersion }

// Members returns the _meta of every request; nil in the legacy revisions.
func (p *peer) Members() protocol.Meta { return p.members }

// Has reports whether the server has a capability.
func (p *peer) Has(capability string) bool { return p.server.Capabilities.Has(capability) }

// Offers reports whether the server offers a method.
func (p *peer) Offers(method string) bool {
	m, _ := protocol.MethodInfo(method)
	return p.offers(&m) == nil
}

// isCurrent reports whether the server is still the present one.
func (p *peer) isCurrent(status conn.Status) bool {
	return status.State == conn.Ready && status.Epoch == p.Epoch()
}

// offers returns nil if the server offers a method, and otherwise why not.
func (p *peer) offers(m *protocol.Method) error {
	version := p.server.ProtocolVersion
	switch {
	case !m.In(version):
		return fmt.Errorf("%w: revision %s has no %s", ErrUnsupported, version, m.Name)
	case m.Name == protocol.MethodComplete && !revision.Has(version, revision.CompletionCapability):
		return nil // this revision needs no capability for it
	case p.Modern() && m.Extension != "":
		if extension := "extensions." + m.Extension; !p.server.Capabilities.Has(extension) {
			return &CapabilityError{Capability: extension}
		}
		return nil
	case !p.server.Capabilities.Has(m.ServerCapability):
		return &CapabilityError{Capability: m.ServerCapability}
	default:
		return nil
	}
}

// makesTasks reports whether a legacy server can turn tool calls into tasks.
func (p *peer) makesTasks() bool {
	tasks := p.server.Capabilities.Tasks
	if tasks == nil || !revision.Has(p.server.ProtocolVersion, revision.Tasks) {
		return false
	}
	_, ok := tasks.Requests["tools"]["call"]
	return ok
}

// establish stores the peer of a successful handshake. It does not if the incarnation
// has ended, because the peer of a later one may be stored already.
func (s *session) establish(ctx context.Context, p *peer) error {
	for {
		before := s.peer.Load()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case before != nil && before.Epoch() > p.Epoch():
			return conn.ErrStale
		case s.peer.CompareAndSwap(before, p):
			s.client.outages.End(s.endpoint)
			return nil
		}
	}
}

// probeTimeout is how long a server may take to answer server/discover. After that, the
// client assumes that the server does not know the method; see patience.
const probeTimeout = 5 * time.Second

// handshake makes an incarnation ready. Only this function decides the era of a session
// (2026-07-28 basic/versioning). A server is modern if it answers server/discover with a
// result or a modern error. After any other answer, or none, it is legacy. The client
// keeps this decision until a handshake fails.
func (s *session) handshake(ctx context.Context, incarnation *conn.Incarnation) error {
	err := s.agree(ctx, incarnation)
	if errors.Is(err, transport.ErrClosed) { // the link is ending, and the reason of its loss says more
		<-ctx.Done()
	}
	return err
}

func (s *session) agree(ctx context.Context, incarnation *conn.Incarnation) error {
	wanted := s.client.options.ProtocolVersion
	if protocol.IsLegacy(wanted) {
		return s.initialize(ctx, incarnation)
	}
	if wanted == "" && s.legacy.Load() {
		return s.initializeAgain(ctx, incarnation)
	}
	if wanted != "" {
		return incompatible(s.discover(ctx, incarnation, -1)) // the Conn's InitTimeout limits it
	}
	s.probing.Store(true) // the function final reads this if the server dies
	err := s.discover(ctx, incarnation, s.patience())
	s.probing.Store(false)
	if !isLegacy(err) {
		return incompatible(err)
	}
	s.legacy.Store(true)
	refused := s.initializeAgain(ctx, incarnation)
	if errors.Is(err, conn.ErrTimedOut) && errors.As(refused, new(*jsonrpc.Error)) {
		return incompatible(s.discover(ctx, incarnation, -1)) // the server knows server/discover, but started slowly
	}
	return refused
}

// patience leaves at least half of the handshake's time for initialize.
func (s *session) patience() time.Duration {
	if limit := s.client.options.Conn.InitTimeout; limit > 0 {
		return min(probeTimeout, limit/2)
	}
	return probeTimeout
}

// initialize is the handshake of the legacy revisions, and the first request of each
// incarnation. The request is never cancelled (2025-11-25 basic/utilities/cancellation).
func (s *session) initialize(ctx context.Context, incarnation *conn.Incarnation) error {
	params, err := s.client.initialize()
	if err != nil {
		return err
	}
	raw, err := incarnation.Call(ctx, conn.Request{
		Method: protocol.MethodInitialize, Params: params,
		Timeout: -1, Silent: true, // the Conn's InitTimeout limits it
	})
	if err != nil {
		return err
	}
	var result protocol.InitializeResult
	if err := unmarshalResult(raw, &result); err != nil {
		return err
	}
	if result.ProtocolVersion == "" {
		return &ResultError{errors.New("it has no protocolVersion")}
	}
	if !protocol.IsLegacy(result.ProtocolVersion) {
		return fmt.Errorf("%w: the server speaks %q, this client %s",
			conn.ErrIncompatible, result.ProtocolVersion, strings.Join(protocol.Versions(), ", "))
	}
	s.dialect.Negotiated(result.ProtocolVersion, nil)
	if err := incarnation.Notify(ctx, protocol.NotificationInitialized, nil); err != nil {
		return err
	}
	return s.establish(ctx, &peer{incarnation: incarnation, server: Server{
		ProtocolVersion: result.ProtocolVersion,
		Info:            result.ServerInfo,
		Capabilities:    result.Capabilities,
		Instructions:    result.Instructions,
	}})
}

// initializeAgain opens a legacy session with a server that was legacy before. If the
// server refuses, the next attempt probes it again.
func (s *session) initializeAgain(ctx context.Context, incarnation *conn.Incarnation) error {
	err := s.initialize(ctx, incarnation)
	if err != nil {
		s.legacy.Store(false)
	}
	return err
}

// discover is the handshake of the modern revisions. It negotiates nothing: the server
// describes itself, and every request describes its client (2026-07-28 server/discover).
func (s *session) discover(ctx context.Context, incarnation *conn.Incarnation, patience time.Duration) error {
	version := s.client.context.ProtocolVersion
	said, err := s.client.meta()
	if err != nil {
		return err
	}
	encoded, err := s.client.discover()
	if err != nil {
		return err
	}
	request := conn.Request{
		Method: protocol.MethodDiscover, Params: encoded, Version: version,
		Timeout: patience, Silent: true, // a server that does not know the method does not know its cancellation
	}
	raw, err := incarnation.Call(ctx, request)
	if refusesOwnVersion(err, version) {
		raw, err = incarnation.Call(ctx, request)
	}
	if err != nil {
		return err
	}
	result, err := decodeDiscover(raw)
	if err != nil {
		return err
	}
	if !slices.Contains(result.SupportedVersions, version) {
		return s.noCommonVersion(result.SupportedVersions)
	}
	s.dialect.Negotiated(version, encoded)
	return s.establish(ctx, &peer{incarnation: incarnation, requestMeta: said, server: Server{
		ProtocolVersion: version,
		Info:            serverInfo(result.Meta),
		Capabilities:    result.Capabilities,
		Instructions:    result.Instructions,
	}})
}

// noCommonVersion continues with initialize, or ends the attempt.
func (s *session) noCommonVersion(theirs []string) error {
	if s.client.options.ProtocolVersion == "" && slices.ContainsFunc(theirs, protocol.IsLegacy) {
		return errNoModernVersion
	}
	return fmt.Errorf("%w: the server speaks %.200q, this client %s",
		conn.ErrIncompatible, theirs, strings.Join(protocol.Versions(), ", "))
}
