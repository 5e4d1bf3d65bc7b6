package otel

import (
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
)

// A reading is a number in samples.
type reading struct {
	name, unit, help string
	counts           bool // whether the value is a count, which never falls
	of               func(*telemetry.Sample, put)
}

// A put reports a value. Labels distinguish it from other values of the same sample.
type put func(value float64, more labels)

// labels are the attributes of one value. The zero labels are none.
type labels [2]attribute.KeyValue

const (
	level = false // values of reading.counts
	count = true
)

// readings are all numbers that are read from samples.
var readings = []reading{
	{"bowline.conn.up", "", "1 while the connection is ready, else 0.", level, ofConn(func(c *telemetry.ConnSample) float64 { return truth(c.State == "ready") })},
	{"bowline.conn.epoch", "", "Number of the present incarnation.", level, ofConn(func(c *telemetry.ConnSample) float64 { return float64(c.Epoch) })},
	{"bowline.conn.outage", "s", "Time without a ready connection since the first, the present outage included.", count, ofConn(func(c *telemetry.ConnSample) float64 { return c.Outage.Seconds() })},
	{"bowline.conn.backoff.remaining", "s", "Time until the next attempt to connect.", level, ofConn(func(c *telemetry.ConnSample) float64 { return backoff(c.NextAttempt).Seconds() })},
	{"bowline.conn.state", "", "1 for the present state of the connection.", level, state},
	{"bowline.conn.stalled", "", "1 while the connection does not read from its peer.", level, stalled},
	{"bowline.conns", "", "Connections without series of their own, by state.", level, conns},

	{"bowline.calls", "", "Calls that have ended, by cause and delivery.", count, calls},
	{"bowline.calls.in_flight", "", "Calls that have not ended.", level, ofAny(func(c *telemetry.ConnSample) uint64 { return c.InFlight })},
	{"bowline.call.retries", "", "Attempts beyond the first of each call.", count, ofAny(func(c *telemetry.ConnSample) uint64 { return c.Retries })},
	{"bowline.replies.late", "", "Replies to calls that had ended.", count, ofAny(func(c *telemetry.ConnSample) uint64 { return c.Late })},
	{"bowline.replies.unknown", "", "Replies to calls that were never made.", count, ofAny(func(c *telemetry.ConnSample) uint64 { return c.Unknown })},
	{"bowline.serving", "", "Requests of the peer that are served.", level, ofAny(func(c *telemetry.ConnSample) int { return c.Serving })},
	{"bowline.waiting", "", "Requests of the peer that wait to be served.", level, ofAny(func(c *telemetry.ConnSample) int { return c.Waiting })},
	{"bowline.conn.stalls", "", "Times that the connection stopped reading for a while.", count, ofAny(func(c *telemetry.ConnSample) uint64 { return c.Stalls })},
	{"bowline.frames.malformed", "", "Frames that were not valid messages.", count, ofAny(func(c *telemetry.ConnSample) uint64 { return c.Malformed })},
	{"bowline.bytes.received", "By", "Bytes of messages that came in.", count, ofAny(func(c *telemetry.ConnSample) uint64 { return c.BytesIn })},
	{"bowline.bytes.sent", "By", "Bytes of messages that went out.", count, ofAny(func(c *telemetry.ConnSample) uint64 { return c.BytesOut })},
	{"bowline.hooks.dropped", "", "Events that reached no hook.", count, ofAny(func(c *telemetry.ConnSample) uint64 { return c.Dropped })},
	{"bowline.debug.mailbox", "", "Events that wait for the connection itself.", level, ofAny(func(c *telemetry.ConnSample) int { return c.Mailbox })},
	{"bowline.debug.tombstones", "", "Calls without an answer that are remembered.", level, ofAny(func(c *telemetry.ConnSample) int { return c.Tombstones })},
	{"bowline.debug.outbound.queued", "", "Frames that wait for a busy link.", level, ofAny(func(c *telemetry.ConnSample) int { return c.Queued })},
	{"bowline.debug.streams", "", "Streams of the link beside the main one.", level, ofAny(func(c *telemetry.ConnSample) int { return c.Streams })},
	{"bowline.debug.credit", "", "Frames that the link may deliver.", level, ofAny(func(c *telemetry.ConnSample) int { return c.Credit })},
	{"bowline.debug.notices", "", "Notifications that wait for the handler.", level, ofAny(func(c *telemetry.ConnSample) int { return c.Notifications })},

	{"bowline.supervisor.children", "", "Children, by state.", level, children},
	{"bowline.supervisor.restarts", "", "Restarts of children.", count, ofSupervisor(func(s *telemetry.SupervisorSample) uint64 { return s.Restarts })},
	{"bowline.supervisor.gave_up", "", "Times that the supervisor gave up.", count, ofSupervisor(func(s *telemetry.SupervisorSample) uint64 { return s.GaveUp })},
	{"bowline.supervisor.stuck", "", "Children that did not stop in time.", count, ofSupervisor(func(s *telemetry.SupervisorSample) uint64 { return s.Stuck })},
	{"bowline.gate.holding", "", "Connections that connect.", level, ofGate(func(g *telemetry.GateSample) int { return g.Holding })},
	{"bowline.gate.waiting", "", "Connections that wait for a place to connect.", level, ofGate(func(g *telemetry.GateSample) int { return g.Waiting })},
	{"bowline.http.sessions", "", "Sessions over HTTP.", level, ofHTTP(func(h *telemetry.HTTPSample) int { return h.Sessions })},
	{"bowline.http.shared", "", "Links over HTTP that requests without a session share.", level, ofHTTP(func(h *telemetry.HTTPSample) int { return h.Shared })},
	{"bowline.http.held", "By", "Bytes of requests that are held.", level, ofHTTP(func(h *telemetry.HTTPSample) int { return h.Held })},
	{"bowline.http.sessions.ended", "", "Sessions over HTTP that have ended.", count, sessionsEnded},
	{"bowline.http.refused", "", "HTTP requests that were refused, by status.", count, refused},

	{"bowline.auth.refreshes", "", "Refresh tokens that were exchanged, by result.", count, ofAuth(func(a *telemetry.AuthSample, put put) { results(a.Refreshes, refreshing, put) })},
	{"bowline.auth.logins", "", "Logins, by result.", count, ofAuth(func(a *telemetry.AuthSample, put put) { results(a.Logins, loggingIn, put) })},
	{"bowline.auth.denied", "", "Requests that a server refused for want of a token or of scopes, by status.", count, ofAuth(denied)},
	{"bowline.auth.expires", "s", "Time until the present token expires.", level, ofAuth(expires)},
}

// ofConn reads a single connection. A sum of connections has no state and no epoch.
func ofConn(read func(*telemetry.ConnSample) float64) func(*telemetry.Sample, put) {
	return func(s *telemetry.Sample, put put) {
		if s.Conn != nil {
			put(read(s.Conn), labels{})
		}
	}
}

// ofAny reads a connection or a sum of connections.
func ofAny[N uint64 | int](read func(*telemetry.ConnSample) N) func(*telemetry.Sample, put) {
	return func(s *telemetry.Sample, put put) {
		if c := anyConn(s); c != nil {
			put(float64(read(c)), labels{})
		}
	}
}

func anyConn(s *telemetry.Sample) *telemetry.ConnSample {
	if s.Server != nil {
		return &s.Server.Total
	}
	return s.Conn
}

func ofSupervisor(read func(*telemetry.SupervisorSample) uint64) func(*telemetry.Sample, put) {
	return func(s *telemetry.Sample, put put) {
		if s.Supervisor != nil {
			put(float64(read(s.Supervisor)), labels{})
		}
	}
}

func ofGate(read func(*telemetry.GateSample) int) func(*telemetry.Sample, put) {
	return func(s *telemetry.Sample, put put) {
		if s.Gate != nil {
			put(float64(read(s.Gate)), labels{})
		}
	}
}

func ofHTTP(read func(*telemetry.HTTPSample) int) func(*telemetry.Sample, put) {
	return func(s *telemetry.Sample, put put) {
		if s.HTTP != nil {
			put(float64(read(s.HTTP)), labels{})
		}
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// backoff returns the time until the next attempt; zero if there will be none.
func backoff(next time.Time) time.Duration {
	if next.IsZero() {
		return 0
	}
	return max(time.Until(next), 0)
}

func state(s *telemetry.Sample, put put) {
	if s.Conn != nil && s.Conn.State != "" {
		put(1, labels{keyState.String(s.Conn.State)})
	}
}

func stalled(s *telemetry.Sample, put put) {
	if s.Conn != nil && s.Conn.Stall != "" {
		put(1, labels{keyWhy.String(s.Conn.Stall)})
	}
}

// conns reports a server without clients too, because alerts recognize servers by this series.
func conns(s *telemetry.Sample, put put) {
	if s.Server == nil {
		return
	}
	if !slices.ContainsFunc(s.Server.Conns, func(c telemetry.ConnsSample) bool { return c.State == "ready" }) {
		put(0, labels{keyState.String("ready")})
	}
	for _, c := range s.Server.Conns {
		put(float64(c.Count), labels{keyState.String(c.State)})
	}
}

// doubtful are the causes of calls that a server may have executed or not. They are reported
// even while they are zero, because Prometheus sees no increase in a series that is new.
var doubtful = []conn.Cause{conn.TimedOut, conn.Cancelled, conn.LinkLost, conn.ShutDown}

var unknown = conn.Unknown.String()

func calls(s *telemetry.Sample, put put) {
	c := anyConn(s)
	if c == nil {
		return
	}
	for _, cause := range doubtful {
		if !slices.ContainsFunc(c.Settled, func(s telemetry.Settled) bool { return s.Cause == cause.String() && s.Delivery == unknown }) {
			put(0, labels{keyCause.String(cause.String()), keyDelivery.String(unknown)})
		}
	}
	for _, settled := range c.Settled {
		put(float64(settled.Count), labels{keyCause.String(settled.Cause), keyDelivery.String(settled.Delivery)})
	}
}

func children(s *telemetry.Sample, put put) {
	if s.Supervisor == nil {
		return
	}
	for _, c := range s.Supervisor.Children {
		put(float64(c.Count), labels{keyState.String(c.State)})
	}
}

func sessionsEnded(s *telemetry.Sample, put put) {
	if s.HTTP == nil {
		return
	}
	for _, e := range s.HTTP.Ended {
		put(float64(e.Count), labels{keyWhy.String(e.Why)})
	}
}

func refused(s *telemetry.Sample, put put) {
	if s.HTTP == nil {
		return
	}
	for _, r := range s.HTTP.Refused {
		put(float64(r.Count), labels{keyHTTPStatus.Int(r.Status)})
	}
}

func ofAuth(read func(*telemetry.AuthSample, put)) func(*telemetry.Sample, put) {
	return func(s *telemetry.Sample, put put) {
		if s.Auth != nil {
			read(s.Auth, put)
		}
	}
}

// The ways in which a login or a refresh fails. They are reported even while they are zero,
// like doubtful.
var (
	refreshing = []string{"refused", "failed"}
	loggingIn  = []string{"refused", "nobody", "impossible", "failed"}
)

func results(all []telemetry.AuthResult, failures []string, put put) {
	for _, failure := range failures {
		if !slices.ContainsFunc(all, func(r telemetry.AuthResult) bool { return r.Result == failure }) {
			put(0, labels{keyResult.String(failure)})
		}
	}
	for _, r := range all {
		put(float64(r.Count), labels{keyResult.String(r.Result)})
	}
}

func denied(a *telemetry.AuthSample, put put) {
	for _, r := range a.Denied {
		put(float64(r.Count), labels{keyHTTPStatus.Int(r.Status)})
	}
}

// expires reports nothing for a token whose end is unknown.
func expires(a *telemetry.AuthSample, put put) {
	if !a.Expires.IsZero() {
		put(max(time.Until(a.Expires), 0).Seconds(), labels{})
	}
}
