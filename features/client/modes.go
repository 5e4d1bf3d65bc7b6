package client

import (
	"cmp"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// maxListed is of how many tools a session remembers what their server has said
// of their mode and effects, and maxListedName how long their names may be: a
// server may list as many as it likes, for as long as it likes.
const (
	maxListed     = 10_000
	maxListedName = 256
)

// listed is what a server has said of its tools, when it listed them last.
type listed struct {
	mu    sync.Mutex
	tools map[string]saying // those of which it has said something
}

// A saying is what a tool is said to be.
type saying struct {
	mode       protocol.ToolMode
	repeatable bool // to call it twice does no harm
}

// learn notes what is said of the tools of a page. Annotations count only if
// the server is trusted.
func (l *listed) learn(tools []*protocol.Tool, trusted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, tool := range tools {
		l.note(tool.Name, saying{mode: tool.Mode(), repeatable: trusted && repeatable(tool.Annotations)})
	}
}

func (l *listed) note(tool string, said saying) {
	before, known := l.tools[tool]
	switch {
	case said == before:
	case said == saying{}:
		delete(l.tools, tool)
	case !known && (len(tool) > maxListedName || len(l.tools) >= maxListed):
	default:
		if l.tools == nil {
			l.tools = make(map[string]saying)
		}
		l.tools[strings.Clone(tool)] = said
	}
}

func repeatable(hints *protocol.ToolAnnotations) bool {
	return hints != nil && (hints.ReadOnlyHint || hints.IdempotentHint)
}

func (l *listed) of(tool string) saying {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tools[tool]
}

// forTool is the view of a session for a call of one tool.
func (s *Session) forTool(name string) *Session {
	said := s.listed.of(name)
	stateful := s.mode(name, said) == protocol.Stateful
	if !stateful && !said.repeatable {
		return s
	}
	view := s.With(s.options)
	if stateful {
		view.options.stateful(s.conn.Status())
	} else {
		view.options.Repeatable = true
	}
	return view
}

// mode is that of a tool: what the call says, or the client's options, or the
// server; stateless when nobody says anything.
func (s *Session) mode(name string, said saying) protocol.ToolMode {
	return cmp.Or(s.options.ToolMode, s.client.options.ToolModes[name], said.mode, protocol.Stateless)
}

// stateful makes the options those of a call that depends on earlier ones
// (ADR-0012). It is for the session that is ready now, and waits for no other.
func (o *CallOptions) stateful(now conn.Status) {
	o.Repeatable = false
	switch {
	case o.Epoch != 0:
	case now.State == conn.Ready:
		o.Epoch = now.Epoch
	default:
		o.WaitForReady, o.Retries = false, 0
	}
}
