package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// An eventLog keeps the events of hooks as text: those of callers and those of the Conn, since only
// within each of these the order is certain.
type eventLog struct {
	mu            sync.Mutex
	callers, conn []string
}

func (s *eventLog) add(part *[]string, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*part = append(*part, fmt.Sprintf(format, args...))
}

// span is the context key under which RequestStarted puts a text.
type span struct{}

// hooks returns hooks that log every event.
func (s *eventLog) hooks() telemetry.Hooks {
	byCaller := func(ctx context.Context, format string, args ...any) {
		s.add(&s.callers, "%v "+format, append([]any{ctx.Value(span{})}, args...)...)
	}
	return telemetry.Hooks{
		RequestStarted: func(ctx context.Context, e telemetry.RequestStarted) context.Context {
			ctx = context.WithValue(ctx, span{}, fmt.Sprint("span of ", e.ID))
			byCaller(ctx, "%s started, %d", e.Method, e.ID)
			return ctx
		},
		Retried: func(ctx context.Context, e telemetry.Retried) {
			byCaller(ctx, "%s retried after attempt %d, %d in %d: %s, %s, %v", e.Method, e.Attempt, e.ID, e.Epoch, e.Cause, e.Delivery, e.Err)
		},
		RequestStopped: func(ctx context.Context, e telemetry.RequestStopped) {
			byCaller(ctx, "%s stopped, %d, after %d: %s, %s, %v, %v", e.Method, e.ID, e.Attempts, e.Cause, e.Delivery, e.Duration, e.Err)
		},
		Transition: func(e telemetry.Transition) { s.add(&s.conn, "%d %s → %s: %s", e.Epoch, e.From, e.To, e.Kind) },
		Gap: func(e telemetry.Gap) {
			s.add(&s.conn, "gap from %d to %d of %v, %d calls, %s, %v", e.Lost, e.Epoch, e.Duration, e.Calls, e.Kind, e.Reason)
		},
		NotificationReceived: func(e telemetry.NotificationReceived) {
			s.add(&s.conn, "%d received %s of %d bytes", e.Epoch, e.Method, e.Size)
		},
		LateReply:    func(e telemetry.Reply) { s.add(&s.conn, "%d late reply to %d, %s", e.Epoch, e.ID, e.Cause) },
		UnknownReply: func(e telemetry.Reply) { s.add(&s.conn, "%d unknown reply to %d", e.Epoch, e.ID) },
		Violation:    func(e telemetry.Violation) { s.add(&s.conn, "%d violation", e.Epoch) },
	}
}

// The hooks report a connection whose server is killed, from connect to close, with all its calls. The
// backoff has no jitter, because its bounds are equal.
//
// Guarantees: G-0024.1, G-0024.3, G-0024.4, G-0024.5
func TestEventsOfAKilledServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(eventLog)
		r, _ := runWithOutcomes(t, conn.Options{Tuning: conn.Tuning{Name: "c", Hooks: s.hooks(), BackoffMin: time.Second, BackoffMax: time.Second}}, answered, lost, answered, silence)
		if _, err := r.Call(t.Context(), conn.Request{Method: "first"}); err != nil {
			t.Error(err)
		}
		if _, err := r.Call(t.Context(), conn.Request{Method: "second", Retries: 2, Repeatable: true}); err != nil {
			t.Error(err)
		}
		r.Call(t.Context(), conn.Request{Method: "third", Timeout: time.Second})
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		<-r.ended
		r.Call(t.Context(), conn.Request{Method: "fourth"})
		wantCallers := []string{
			"span of 1 first started, 1",
			"span of 1 first stopped, 1, after 1: answered, sent, 0s, <nil>",
			"span of 2 second started, 2",
			"span of 2 second retried after attempt 1, 2 in 1: link lost, unknown, link broken: EOF",
			"span of 2 second stopped, 3, after 2: answered, sent, 1s, <nil>",
			"span of 4 third started, 4",
			"span of 4 third stopped, 4, after 1: timed out, unknown, 1s, third: timed out; it may have been executed",
			"span of 5 fourth started, 5",
			"span of 5 fourth stopped, 5, after 1: shut down, not sent, 0s, fourth: the connection is closed; not executed",
		}
		wantConn := []string{
			"1 starting → initializing: link opened",
			"1 initializing → ready: handshaken",
			"1 ready → backoff: link broken",
			"1 backoff → starting: retry due",
			"2 starting → initializing: link opened",
			"2 initializing → ready: handshaken",
			"gap from 1 to 2 of 1s, 1 calls, link broken, link broken: EOF",
			"2 ready → closing: drained",
		}
		if diff := cmp.Diff(wantCallers, s.callers); diff != "" {
			t.Errorf("events of callers (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(wantConn, s.conn); diff != "" {
			t.Errorf("events of the Conn (-want +got):\n%s", diff)
		}
	})
}

// RequestStopped says how long the call took until its answer came, also if the loop was awake all
// the time.
func TestACallLastsUntilItsAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const answerAfter = 20 * time.Millisecond // before the loop parks
		var got []time.Duration
		var link *script
		var tag transport.Tag
		later := outcome{"later", func(s *script, o transport.Outbound) error { link, tag = s, o.Tag; return nil }, conn.Answered, true, false}
		r, _ := runWithOutcomes(t, conn.Options{Tuning: conn.Tuning{Hooks: telemetry.Hooks{
			RequestStopped: func(_ context.Context, e telemetry.RequestStopped) { got = append(got, e.Duration, e.Last) },
		}}}, later)
		call := r.calling(t.Context(), conn.Request{Method: "a"})
		synctest.Wait()
		advance(answerAfter)
		link.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":1}`, tag))
		<-call
		if want := []time.Duration{answerAfter, answerAfter}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		r.Stop()
		<-r.ended
	})
}

// A late reply is reported with the cause with which its request ended.
//
// Guarantees: G-0024.6
func TestLateRepliesSayHowTheirRequestsEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reported := new(eventLog)
		s := &script{}
		r := scripted(t, s, conn.Options{Tuning: conn.Tuning{Hooks: reported.hooks(), RequestTimeout: time.Second}})
		wantEnd(t, <-r.calling(t.Context(), conn.Request{Method: "a"}), conn.TimedOut, conn.Unknown)
		ctx, cancel := context.WithCancel(t.Context())
		left := r.calling(ctx, conn.Request{Method: "b"})
		cancel()
		wantEnd(t, <-left, conn.Cancelled, conn.Unknown)
		reported.conn = nil
		for _, frame := range []string{
			`{"jsonrpc":"2.0","id":2,"result":1}`, `{"jsonrpc":"2.0","id":1,"result":1}`,
			`{"jsonrpc":"2.0","id":7,"result":1}`, `{"jsonrpc":"2.0","method":"log","params":[1]}`,
		} {
			s.deliver(frame)
		}
		synctest.Wait()
		want := []string{"1 late reply to 2, cancelled", "1 late reply to 1, timed out", "1 unknown reply to 7", "1 received log of 3 bytes"}
		if diff := cmp.Diff(want, reported.conn); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		r.Stop()
		<-r.ended
	})
}

// A gap is reported when an incarnation is ready again, however many attempts have failed. It counts
// the calls that the lost incarnation has ended.
//
// Guarantees: G-0024.5
func TestGapIsReportedOnceItIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var gaps []telemetry.Gap
		var s *script
		opens := 0
		var first *conn.Incarnation
		shakes := func(ctx context.Context, incarnation *conn.Incarnation) error {
			if first == nil {
				first = incarnation
			}
			if incarnation.Epoch() == 3 {
				_, err := incarnation.Call(ctx, conn.Request{Method: "hello"}) // ends with the third link and not with the first
				return err
			}
			return nil
		}
		r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
			if opens++; opens == 2 {
				return nil, errors.New("refused")
			}
			s = &script{onSend: func(_ *script, o transport.Outbound) error {
				if o.Tag == 0 {
					return transport.ErrBusy
				}
				return nil
			}}
			return s, nil
		}), conn.Options{
			Handshake: shakes,
			Tuning: conn.Tuning{
				Name:       "c",
				BackoffMin: time.Second,
				BackoffMax: time.Second,
				Hooks:      telemetry.Hooks{Gap: func(g telemetry.Gap) { gaps = append(gaps, g) }},
			},
		}))
		synctest.Wait()
		for range 3 {
			r.calling(t.Context(), conn.Request{Method: "m"})
		}
		go r.Notify(t.Context(), "n", nil) // waits for the link, and does not count as a call
		synctest.Wait()
		s.lose(transport.Loss{Reason: io.EOF})
		synctest.Wait()
		if _, err := first.Call(t.Context(), conn.Request{Method: "m"}); !conn.NotExecuted(err) { // refused, so the gap does not count it
			t.Error(err)
		}
		advance(2 * time.Second) // to the third attempt
		s.lose(transport.Loss{Reason: io.ErrUnexpectedEOF})
		advance(time.Second)
		if len(gaps) != 1 {
			t.Fatalf("reported %v, want one gap", gaps)
		}
		g := gaps[0]
		if g.Conn != "c" || g.Lost != 1 || g.Epoch != 4 || g.Calls != 3 || g.Duration != 3*time.Second || g.Kind != string(conn.LinkBroken) || !errors.Is(g.Reason, io.EOF) {
			t.Errorf("reported %+v, want 3 calls and 3s between the epochs 1 and 4", g)
		}
		r.Stop()
		<-r.ended
	})
}

// After a panic of the loop, the next Run reports the gap. Calls for the incarnation before are refused.
//
// Guarantees: G-0003.14, G-0024.5
func TestGapOfAPanic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var gaps []telemetry.Gap
		panics := true
		c := conn.New(opening(func(context.Context) (transport.Link, error) {
			return &script{onSend: func(*script, transport.Outbound) error {
				if panics {
					panics = false
					panic("send")
				}
				return nil
			}}, nil
		}), conn.Options{Tuning: conn.Tuning{Hooks: telemetry.Hooks{Gap: func(g telemetry.Gap) { gaps = append(gaps, g) }}}})
		r := start(c)
		synctest.Wait()
		wantEnd(t, <-r.calling(t.Context(), conn.Request{Method: "m"}), conn.LinkLost, conn.Unknown)
		if err := <-r.ended; !errors.As(err, new(*conn.PanicError)) {
			t.Fatal(err)
		}
		if _, err := c.Call(t.Context(), conn.Request{Method: "m", Epoch: 1, WaitForReady: true}); !errors.Is(err, conn.ErrStale) || !conn.NotExecuted(err) {
			t.Errorf("a call between the Runs: %v, want ErrStale and not executed", err)
		}
		advance(time.Minute)
		again := start(c)
		synctest.Wait()
		if len(gaps) != 1 || gaps[0].Lost != 1 || gaps[0].Epoch != 2 || gaps[0].Calls != 1 || gaps[0].Duration != time.Minute || !errors.As(gaps[0].Reason, new(*conn.PanicError)) {
			t.Errorf("reported %+v, want one gap of 1m with 1 call and a PanicError", gaps)
		}
		again.Stop()
		<-again.ended
	})
}

// A panic of a hook affects neither calls nor the Conn.
//
// Guarantees: G-0024.1
func TestPanicOfAHookLosesOnlyItsEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := runWithOutcomes(t, conn.Options{Tuning: conn.Tuning{Hooks: telemetry.Hooks{
			RequestStarted:       func(context.Context, telemetry.RequestStarted) context.Context { panic("started") },
			Retried:              func(context.Context, telemetry.Retried) { panic("retried") },
			RequestStopped:       func(context.Context, telemetry.RequestStopped) { panic("stopped") },
			Transition:           func(telemetry.Transition) { panic("transition") },
			Gap:                  func(telemetry.Gap) { panic("gap") },
			NotificationReceived: func(telemetry.NotificationReceived) { panic("received") },
		}}}, lost)
		if _, err := r.Call(t.Context(), conn.Request{Method: "m", Retries: 1, Repeatable: true}); err != nil {
			t.Error(err)
		}
		if stats := r.Stats(); stats.Calls != stats.Ended() {
			t.Errorf("%d calls ended, want %d", stats.Ended(), stats.Calls)
		}
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// If the context that RequestStarted returns has ended, the call does not end with it.
//
// Guarantees: G-0024.3
func TestAContextOfTheHooksEndsNoCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var found []any
		r, _ := runWithOutcomes(t, conn.Options{Tuning: conn.Tuning{Hooks: telemetry.Hooks{
			RequestStarted: func(ctx context.Context, _ telemetry.RequestStarted) context.Context {
				ended, end := context.WithCancel(context.WithValue(ctx, span{}, "mine"))
				end()
				return ended
			},
			RequestStopped: func(ctx context.Context, _ telemetry.RequestStopped) { found = append(found, ctx.Value(span{})) },
		}}})
		if _, err := r.Call(t.Context(), conn.Request{Method: "m"}); err != nil {
			t.Error(err)
		}
		if len(found) != 1 || found[0] != "mine" {
			t.Errorf("RequestStopped found %v, want \"mine\"", found)
		}
		r.Stop()
		<-r.ended
	})
}

// A pause in reading is reported and counted when it begins, and reported with its duration when it ends.
//
// Guarantees: G-0004.9
func TestStallIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var reported []telemetry.Stalled
		s, release := &script{}, make(chan struct{})
		r := scripted(t, s, conn.Options{
			Handler: handler{"n": func(context.Context, *conn.Incoming) (json.RawMessage, error) { <-release; return nil, nil }},
			Tuning: conn.Tuning{
				MaxNotifications: 4,
				Hooks:            telemetry.Hooks{Stalled: func(e telemetry.Stalled) { reported = append(reported, e) }},
			},
		})
		for range 4 { // the handler has one, and the others wait
			s.deliver(`{"jsonrpc":"2.0","method":"n"}`)
			synctest.Wait()
		}
		advance(3 * time.Second)
		close(release)
		synctest.Wait()
		switch {
		case len(reported) != 2:
			t.Fatalf("reported %+v, want two events", reported)
		case reported[0].Over || reported[0].Why != conn.NotificationsWait.String() || !reported[0].Since.Equal(time.Now().Add(-3*time.Second)):
			t.Errorf("the begin is %+v, want NotificationsWait since 3s", reported[0])
		case !reported[1].Over || reported[1].Duration != 3*time.Second || !reported[1].Since.Equal(reported[0].Since):
			t.Errorf("the end is %+v, want 3s", reported[1])
		case r.Stats().Stalls != 1:
			t.Errorf("%d stalls are counted, want 1", r.Stats().Stalls)
		}
		r.Stop()
		<-r.ended
	})
}

// Each probe that the peer misses is reported with the number of misses in a row.
func TestMissedProbesAreReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var reported []int
		r := scripted(t, &script{}, conn.Options{
			Dialect: dialect{},
			Tuning: conn.Tuning{
				Liveness: time.Second,
				Hooks:    telemetry.Hooks{Missed: func(e telemetry.Missed) { reported = append(reported, e.InRow) }},
			},
		})
		advance(3 * time.Second)
		if len(reported) != 2 || reported[0] != 1 || reported[1] != 2 || r.State() != conn.Backoff {
			t.Errorf("reported %v in %s, want 1 and 2 in backoff", reported, r.State())
		}
		r.Stop()
		<-r.ended
	})
}

// Each refusal of a busy link is reported with the number of attempts.
func TestBusyRetriesAreReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var reported []telemetry.BusyRetry
		refusals := 2
		s := &script{onSend: func(*script, transport.Outbound) error {
			if refusals--; refusals >= 0 {
				return fmt.Errorf("full: %w", transport.ErrBusy)
			}
			return nil
		}}
		r := scripted(t, s, conn.Options{Tuning: conn.Tuning{Hooks: telemetry.Hooks{BusyRetry: func(e telemetry.BusyRetry) { reported = append(reported, e) }}}})
		result := r.calling(t.Context(), conn.Request{Method: "m"})
		advance(time.Second)
		if len(reported) != 2 || reported[0].Attempts != 1 || reported[1].Attempts != 2 || reported[1].ID == 0 {
			t.Errorf("reported %+v, want the attempts 1 and 2", reported)
		}
		r.Stop()
		<-result
		<-r.ended
	})
}

// When the Conn closes while many events wait, hooks are called as long as there is time, and a hook
// that returns in time does not count as stuck.
//
// Guarantees: G-0009.3
func TestCloseWhileEventsWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reported, s := 0, new(script)
		r := scripted(t, s, conn.Options{
			Handler: handler{},
			Tuning: conn.Tuning{
				Hooks: telemetry.Hooks{
					NotificationReceived: func(telemetry.NotificationReceived) { advance(40 * time.Millisecond); reported++ },
				},
			},
		})
		for range 10 {
			s.deliver(`{"jsonrpc":"2.0","method":"n"}`)
		}
		synctest.Wait()
		began := time.Now()
		r.Stop()
		if err, took := <-r.ended, time.Since(began); err != nil || reported != 3 || took != 120*time.Millisecond {
			t.Errorf("Run: %v after %v, %d events were reported; want no error after 120ms, 3", err, took, reported)
		}
	})
}

// A described transport reports its endpoint, its links their version of HTTP, and its dialect the
// protocol version. While panics is set, they panic instead.
type described struct {
	transport.Transport
	panics *atomic.Bool
}

func (d described) text(what string) string {
	if d.panics.Load() {
		panic(what)
	}
	return what
}

func (d described) Traits() transport.Traits {
	return transport.Traits{Endpoint: d.text("https://far.test")}
}

func (d described) Open(ctx context.Context) (transport.Link, error) {
	link, err := d.Transport.Open(ctx)
	return describedLink{link, d}, err
}

type describedLink struct {
	transport.Link
	described
}

func (l describedLink) LinkTraits() transport.LinkTraits {
	return transport.LinkTraits{Network: transport.Network{HTTP: l.text("2")}}
}

type describedDialect struct {
	dialect
	described
}

func (d describedDialect) Version() string { return d.text("2025-11-25") }

// Only the transition out of ready has the protocol version, the endpoint and the version of HTTP of
// the connection that ends. If code that returns them panics, the transition lacks them.
//
// Guarantees: G-0060.1
func TestTransitionDescribesTheEndedConnection(t *testing.T) {
	for _, panics := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			var reported []telemetry.Transition
			panicked := 0
			d := described{panics: new(atomic.Bool)}
			d.Transport = &outcomeTransport{outcomes: []outcome{answered}}
			r := start(conn.New(d, conn.Options{
				Dialect: describedDialect{described: d},
				Tuning: conn.Tuning{
					Hooks: telemetry.Hooks{
						Transition: func(e telemetry.Transition) { reported = append(reported, e) },
						Panic: func(e telemetry.Panic) {
							if e.Where == "Dialect.Version" || e.Where == "Transport.Traits" || e.Where == "Link.LinkTraits" {
								panicked++
							}
						},
					},
				},
			}))
			synctest.Wait()
			d.panics.Store(panics)
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
			<-r.ended
			ended := 0
			for _, e := range reported {
				got, want := [...]string{e.Version, e.Endpoint, e.HTTP}, [3]string{}
				if e.From == "ready" {
					if ended++; !panics {
						want = [...]string{"2025-11-25", "https://far.test", "2"}
					}
				}
				if got != want {
					t.Errorf("%s → %s has %q, want %q", e.From, e.To, got, want)
				}
			}
			if ended != 1 || panics != (panicked == 3) {
				t.Errorf("%d transitions out of ready and %d panics were reported, want 1 and %v", ended, panicked, panics)
			}
		})
	}
}

// All events of a call have the same correlation, whatever the ids of its attempts, and no other
// call has it.
//
// Guarantees: G-0024.12
func TestEventsOfACallCorrelate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		events := make(map[uint64]string)
		s := &script{}
		var first *script
		links := opening(func(context.Context) (transport.Link, error) {
			if first == nil {
				first = new(script)
				return first, nil
			}
			return s, nil
		})
		c := conn.New(links, conn.Options{Tuning: conn.Tuning{Hooks: telemetry.Hooks{
			RequestStarted: func(ctx context.Context, e telemetry.RequestStarted) context.Context {
				events[e.Correlation] += "started "
				return ctx
			},
			Retried:        func(_ context.Context, e telemetry.Retried) { events[e.Correlation] += "retried " },
			RequestStopped: func(_ context.Context, e telemetry.RequestStopped) { events[e.Correlation] += "stopped " },
		}}})
		ended := make(chan error, 1)
		go func() { ended <- c.Run(t.Context()) }()
		synctest.Wait()
		r := run{c, ended}
		retried := r.calling(t.Context(), conn.Request{Method: "a", Retries: 1, Repeatable: true, WaitForReady: true})
		synctest.Wait()
		first.lose(transport.Loss{Reason: transport.ErrPeerClosed})
		timer := time.NewTimer(time.Minute / 4)
		<-timer.C
		s.deliver(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		if err := <-retried; err != nil {
			t.Error(err)
		}
		other := r.calling(t.Context(), conn.Request{Method: "b"})
		synctest.Wait()
		s.deliver(`{"jsonrpc":"2.0","id":3,"result":{}}`)
		if err := <-other; err != nil {
			t.Error(err)
		}
		got := slices.Sorted(maps.Values(events))
		if want := []string{"started retried stopped ", "started stopped "}; !slices.Equal(got, want) || events[0] != "" {
			t.Errorf("got the events %q by correlation, want %q, and no correlation of 0", events, want)
		}
		c.Stop()
		<-ended
	})
}
