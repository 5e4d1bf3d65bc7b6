package fault

import "github.com/bowline-mcp/bowline/transport"

// Heard implements transport.Hearing, where the wrapped link does. A link that
// is half open hears nothing.
func (l *link) Heard() (bytes uint64, ok bool) {
	hearing, ok := l.inner.(transport.Hearing)
	if !ok {
		return 0, false
	}
	if bytes, ok = hearing.Heard(); ok && !l.halfOpen.Load() {
		l.heard.Store(bytes)
	}
	return l.heard.Load(), ok
}
