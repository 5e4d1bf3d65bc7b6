package specification

import (
	"sync/atomic"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/transcript"
)

// WatchClient returns a transport for a client that passes everything on to inner.
// Each message of the client's that does not fit the schema of the revision in force
// fails the test.
func WatchClient(t testing.TB, inner transport.Transport) transport.Transport {
	t.Helper()
	return Watch(t, inner, &Checker{ThisSide: true})
}

// WatchServer returns what wraps the links of one server, before it gets them. Each
// message of the server's that does not fit the schema of the revision in force fails
// the test.
func WatchServer(t testing.TB) func(transport.Link) transport.Link {
	t.Helper()
	c := &Checker{Server: true, ThisSide: true}
	c.reportTo(t)
	var links atomic.Int64
	return func(link transport.Link) transport.Link {
		return transcript.TapLink(link, int(links.Add(1)), c.Observe)
	}
}

// Watch wraps a transport so that c checks every message against the schema. A violation
// fails t.
func Watch(t testing.TB, inner transport.Transport, c *Checker) transport.Transport {
	t.Helper()
	c.reportTo(t)
	return transcript.Tap(inner, c.Observe)
}

// reportTo makes each violation fail the test, as long as the test runs.
func (c *Checker) reportTo(t testing.TB) {
	var ended atomic.Bool
	t.Cleanup(func() { ended.Store(true) })
	c.OnViolation = func(err error) {
		if !ended.Load() { // a link that is still open after the test reports nothing
			t.Errorf("against the schema: %v", err)
		}
	}
}
