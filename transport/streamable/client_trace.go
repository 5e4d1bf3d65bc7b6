package streamable

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"
)

// A requestTrace observes one attempt of an HTTP request. The HTTP client calls its
// functions on its own goroutines. A new one needs ten allocations, so a trace is reused
// once it has certainly seen everything of its attempt.
type requestTrace struct {
	carrier context.Context // contains the trace for net/http
	of      atomic.Pointer[httpRequest]

	connections atomic.Int32 // that the attempt got
	made        atomic.Bool  // one of them was not idle before, so a dial may continue
	written     atomic.Int32 // how often the attempt was written
}

// newTrace returns a trace for one attempt.
func (m *remote) newTrace(r *httpRequest) *requestTrace {
	t, ok := m.traces.Get().(*requestTrace)
	if !ok {
		t = new(requestTrace)
		t.carrier = httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
			GetConn:      func(string) { t.of.Load().waiting.Store(true) },
			DNSStart:     func(httptrace.DNSStartInfo) { t.of.Load().dialing.Store(true) },
			ConnectStart: func(string, string) { t.of.Load().dialing.Store(true) },
			GotConn:      t.gotConnection,
			WroteRequest: t.wrote,
		})
	}
	t.of.Store(r)
	return t
}

func (t *requestTrace) gotConnection(info httptrace.GotConnInfo) {
	t.connections.Add(1)
	if !info.WasIdle {
		t.made.Store(true)
	}
	r := t.of.Load()
	r.connected.Store(true)
	r.to.mu.Lock()
	defer r.to.mu.Unlock()
	r.begin()
}

func (t *requestTrace) wrote(info httptrace.WroteRequestInfo) {
	if r := t.of.Load(); r.posts != nil && info.Err == nil {
		r.written.Store(true)
		r.posts.written()
	}
	t.written.Add(1)
}

// releaseTrace makes the trace of the last attempt reusable, if nothing more can be
// reported to it: if the attempt got one connection, without a dial, and was written to
// it. Other traces stay with their attempt. Two goroutines may close a body; only one of
// them returns the trace.
func (r *httpRequest) releaseTrace() {
	t := r.trace.Load()
	if t == nil || t.connections.Load() != 1 || t.made.Load() || t.written.Load() != 1 {
		return
	}
	if !r.trace.CompareAndSwap(t, nil) {
		return
	}
	t.connections.Store(0)
	t.written.Store(0)
	r.to.traces.Put(t)
}

// A tracedContext is a context with a trace.
type tracedContext struct {
	context.Context
	trace context.Context
}

// Value implements context.Context.
func (c *tracedContext) Value(key any) any {
	if value := c.trace.Value(key); value != nil {
		return value
	}
	return c.Context.Value(key)
}
