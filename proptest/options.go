package proptest

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// Options configure a suite. The zero value of each field means its default. A flag of go
// test takes precedence over both.
type Options struct {
	Iterations int           // how many histories to run; default: that of -rapid.checks, which is 100; flag -bowline.iterations
	Concurrent int           // the maximum number of calls in flight; default 50; flag -bowline.concurrent
	Window     time.Duration // by how much answers may be delayed; default 100 ms; flag -bowline.window
	Cancels    int           // how often one call is cancelled; default 10; flag -bowline.cancels
	Calls      int           // how many calls a Soak makes; default 20,000; flag -bowline.calls

	// RealTime runs the suite outside of a testing/synctest bubble. Set it for a
	// transport that uses descriptors, processes, or goroutines from outside of the
	// bubble. The suite then checks order and counts, but no times.
	RealTime bool

	// Params returns the params of call n, counted from 1. Set it if the peer requires
	// a certain form. No two calls may have the same params. Nil: {"call":n}.
	Params func(n int) json.RawMessage

	// Guard is how long a suite waits in real time for an event before it fails.
	// Default: a minute; flag -bowline.guard.
	Guard time.Duration

	// Asks makes the peer of a Soak send a request to its caller while it serves every
	// fourth call. The transport must support that; over HTTP this requires a session.
	Asks bool

	// Version is the protocol revision that every call states; see
	// conn.Request.Version. Empty: calls state none.
	Version string

	// Faults are the faults that the suite may inject. Nil: all faults of package
	// fault.
	Faults []fault.Kind

	// Conn configures the Conn under test, for instance for a peer that requires a
	// handshake. Random faults do not hit the handshake; only suites that break the
	// link at every frame also break it there. If Dialect is nil, the Conn announces
	// an abandoned request by a notification "$/cancelRequest".
	//
	// In real time the defaults are a RequestTimeout of 2 s, a DrainGrace of 200 ms,
	// and a backoff of 5 to 20 ms. The suite waits for RequestTimeout when a fault has
	// removed an answer, so a shorter one makes such a suite faster.
	Conn conn.Options

	handshake frames // how many frames a handshake takes
}

// frames are counts of frames by direction.
type frames [2]int

var (
	iterations = flag.Int("bowline.iterations", 0, "proptest: histories per suite")
	concurrent = flag.Int("bowline.concurrent", 0, "proptest: calls in flight at once")
	window     = flag.Duration("bowline.window", 0, "proptest: how far answers are moved in time")
	hangGuard  = flag.Duration("bowline.guard", 0, "proptest: how long to wait in real time for what never comes")
	cancels    = flag.Int("bowline.cancels", 0, "proptest: cancellations of one call")
)

// ContractOptions configure LinkContract and StoreContract. The zero value of each field
// means its default.
type ContractOptions struct {
	Guard time.Duration // how long to wait for an event before the test fails; default a minute; flag -bowline.guard
}

// Wait returns how long a suite with these options waits for an event.
func (o ContractOptions) Wait() time.Duration { return cmp.Or(*hangGuard, o.Guard, time.Minute) }

// prepare fills in the defaults, and counts the frames of a handshake.
func (o Options) prepare(t *testing.T, from transport.Transport) Options {
	t.Helper()
	o = o.withDefaults()
	switch {
	case o.Conn.Handshake == nil:
	case o.RealTime:
		o.handshake = o.measure(t, from)
	default:
		synctest.Test(t, func(t *testing.T) { o.handshake = o.measure(t, from) })
	}
	return o
}

func (o Options) measure(t *testing.T, from transport.Transport) frames {
	t.Helper()
	h := newHarness(t, o, from, fault.Plan{})
	defer h.end()
	h.awaitReady()
	return h.outer.frameCounts()
}

func (o Options) withDefaults() Options {
	o.Iterations = cmp.Or(*iterations, o.Iterations, checks())
	o.Concurrent = cmp.Or(*concurrent, o.Concurrent, 50)
	o.Window = cmp.Or(*window, o.Window, 100*time.Millisecond)
	o.Cancels = cmp.Or(*cancels, o.Cancels, 10)
	o.Calls = cmp.Or(*calls, o.Calls, 20_000)
	if o.Conn.Dialect == nil {
		o.Conn.Dialect = cancelDialect{}
	}
	if o.Params == nil {
		o.Params = func(n int) json.RawMessage { return fmt.Appendf(nil, `{"call":%d}`, n) }
	}
	if o.RealTime {
		o.Conn.DrainGrace = cmp.Or(o.Conn.DrainGrace, 200*time.Millisecond)
		o.Conn.RequestTimeout = cmp.Or(o.Conn.RequestTimeout, 2*time.Second)
		o.Conn.BackoffMin = cmp.Or(o.Conn.BackoffMin, 5*time.Millisecond)
		o.Conn.BackoffMax = cmp.Or(o.Conn.BackoffMax, 20*time.Millisecond)
	}
	return o
}

// checks returns how many cases of one property rapid runs.
func checks() int {
	const standard = 100
	if given := flag.Lookup("rapid.checks"); given != nil {
		if n, err := strconv.Atoi(given.Value.String()); err == nil && n > 0 {
			return n
		}
	}
	return standard
}

// search runs a property on as many histories as the options say. The number
// that rapid runs is fixed: if fewer are wanted, the others end immediately,
// and if more are wanted, there are several rounds. After a failure no history
// is cut short, so that rapid can shrink it.
func (o Options) search(t *testing.T, property func(rt *rapid.T)) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	done, failing := 0, false
	for done < o.Iterations && !t.Failed() {
		rapid.Check(t, func(rt *rapid.T) {
			if done >= o.Iterations && !failing {
				return
			}
			passed := false
			defer func() { failing = failing || !passed }()
			property(rt)
			passed = true
			done++
		})
	}
	noneLeft(t, before)
}

// noneLeft checks that no goroutine is left. It waits for a while, because a busy
// machine needs time to end them.
func noneLeft(t *testing.T, before goleak.Option) {
	t.Helper()
	var left error
	for range 10 {
		if left = goleak.Find(before); left == nil || t.Failed() {
			return
		}
	}
	t.Errorf("goroutines are left, started by %s:\n%v", strings.Join(starters(left.Error()), " and "), left)
}

// starters lists the functions that started the goroutines of these stacks.
func starters(stacks string) (names []string) {
	for _, found := range startedBy.FindAllStringSubmatch(stacks, -1) {
		names = append(names, found[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

var startedBy = regexp.MustCompile(`(?m)^created by (\S+)`)

// history runs one history against a new Conn, in virtual time unless the
// options say RealTime.
func (o Options) history(rt *rapid.T, from transport.Transport, plan fault.Plan, run func(h *harness)) {
	if o.RealTime {
		h := newHarness(rt, o, from, plan)
		defer h.end()
		run(h)
		return
	}
	rapid.SyncTest(rt, func(rt *rapid.T) {
		h := newHarness(rt, o, from, plan)
		defer h.end()
		run(h)
	})
}
