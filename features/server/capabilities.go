package server

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/protocol"
)

// capabilities determines what the server offers to clients. That follows from the
// features that the server has.
type capabilities struct {
	server     *Server
	offered    atomic.Pointer[offer]        // what was last offered to modern clients
	introduced atomic.Pointer[introduction] // the introduction that the last legacy client got
}

// An offer contains the kinds of features that a server has, and the capabilities that
// follow from them.
type offer struct {
	features     features
	capabilities protocol.ServerCapabilities
}

// features says which kinds of features a server has.
// Two are equal if the same is offered: extensions are compared by their map, which is replaced whenever it changes.
type features struct {
	tools, prompts, resources, completion bool
	extensions                            *map[string]json.RawMessage // those of AddExtension
}

func (cs *capabilities) has() features {
	s := cs.server
	return features{
		tools: s.tools.Used(), prompts: s.prompts.Used(),
		resources:  s.resources.Used() || s.resources.templates.Used() || s.options.OnSubscribe != nil,
		extensions: s.extensions.Load(), completion: s.completions.used.Load(),
	}
}

// modern returns the capabilities that clients of 2026-07-28 see. The result is
// cached and shared, so it is read-only.
func (cs *capabilities) modern() *protocol.ServerCapabilities {
	now := cs.has()
	last := cs.offered.Load()
	if last == nil || last.features != now {
		// Goroutines that find an outdated one at the same time make equal ones; which of them stays does not matter.
		last = &offer{now, *cs.of(now, true)}
		cs.offered.Store(last)
	}
	return &last.capabilities
}

// of returns the capabilities that follow from the features, in addition to
// Options.Capabilities.
func (cs *capabilities) of(now features, modern bool) *protocol.ServerCapabilities {
	s := cs.server
	c := s.options.Capabilities
	c.Logging = &protocol.Capability{}
	if now.tools {
		c.Tools = &protocol.ListCapability{ListChanged: true}
	}
	if now.prompts {
		c.Prompts = &protocol.ListCapability{ListChanged: true}
	}
	if now.resources {
		subscribe := s.options.OnSubscribe != nil || c.Resources != nil && c.Resources.Subscribe
		c.Resources = &protocol.ResourcesCapability{ListChanged: true, Subscribe: subscribe}
	}
	s.tasks.offer(&c, modern)
	if modern && now.extensions != nil {
		for name, settings := range *now.extensions {
			c.Extensions = withExtension(c.Extensions, name, settings)
		}
	}
	if now.completion {
		c.Completions = &protocol.Capability{}
	}
	return &c
}

// An introduction is the result of initialize for most clients, as long as the server has
// the same kinds of features. Sessions share it, so it is read-only.
type introduction struct {
	features features
	result   protocol.InitializeResult
	encoded  json.RawMessage // the encoded result; nil if it cannot be encoded
}

// introduction returns what the server says of itself in a legacy revision. Middleware may
// change its result, so it gets one of its own.
func (cs *capabilities) introduction(version string) *introduction {
	s, now := cs.server, cs.has()
	last := cs.introduced.Load()
	if last != nil && last.features == now && last.result.ProtocolVersion == version {
		return last
	}
	last = &introduction{features: now, result: protocol.InitializeResult{
		ProtocolVersion: version, Capabilities: *cs.of(now, false), ServerInfo: s.info, Instructions: s.options.Instructions,
	}}
	if len(s.options.Middleware) == 0 {
		last.encoded, _ = protocol.Marshal(&last.result) // the error is ignored here, because encode reports it to each client
		cs.introduced.Store(last)
	}
	return last
}

// encodeIntroduced encodes the result of initialize, unless it is an introduction.
func (cs *capabilities) encodeIntroduced(encodeResult func(*call, []byte, any) ([]byte, error)) func(*call, []byte, any) ([]byte, error) {
	return func(c *call, dst []byte, result any) ([]byte, error) {
		last := cs.introduced.Load()
		// By identity: only this very result was encoded before. One that offers the list of tasks is a copy.
		if last != nil && result == any(&last.result) && last.encoded != nil {
			return append(dst, last.encoded...), nil
		}
		return encodeResult(c, dst, result)
	}
}

// discover describes the server (2026-07-28 server/discover).
func (cs *capabilities) discover(_ context.Context, c *call, _ *protocol.DiscoverParams) (*protocol.DiscoverResult, error) {
	options := &cs.server.options
	return &protocol.DiscoverResult{
		SupportedVersions: slices.Clone(options.ProtocolVersions),
		Capabilities:      *c.offered,
		Instructions:      options.Instructions,
	}, nil
}
