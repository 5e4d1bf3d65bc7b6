package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bowline-mcp/bowline/cluster"
)

// newTestEngine returns an engine without a connection, and what it logs, without the times.
func newTestEngine(t *testing.T) (*engine, *strings.Builder) {
	t.Helper()
	lines := new(strings.Builder)
	timeless := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	e := newEngine(Options{
		Cluster: "c", Log: slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{ReplaceAttr: timeless})),
		Dial: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed },
	})
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, lines
}

// wantConnected checks whether the engine is connected, and that those who wait for a change of that are told.
func wantConnected(t *testing.T, e *engine, want bool, change func()) {
	t.Helper()
	_, changed := e.Connected()
	change()
	select {
	case <-changed:
	default:
		t.Error("nobody is told of the change")
	}
	if got, _ := e.Connected(); got != want {
		t.Errorf("it is connected: %t", got)
	}
}

// operate begins an operation.
func operate(t *testing.T, e *engine, on ...string) *operation {
	t.Helper()
	op, err := e.begin(t.Context(), on...)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// wantEnd checks why an operation ends.
func wantEnd(t *testing.T, op *operation, why ...error) {
	t.Helper()
	<-op.Done()
	for _, one := range why {
		if got := op.explain(natsgo.ErrTimeout); !errors.Is(got, one) {
			t.Errorf("the operation has ended with %v, want %v", got, one)
		}
	}
	op.end()
}

// When the connection is lost, what is under way ends, and nothing begins. When it is back, subscribers learn that they may have missed something, also if
// nobody has noticed the loss. The log says each once.
func TestALostConnection(t *testing.T) {
	e, lines := newTestEngine(t)
	if _, err := e.begin(t.Context()); !errors.Is(err, cluster.ErrUnavailable) || !strings.HasSuffix(err.Error(), "the connection is being made again") {
		t.Errorf("without a connection something begins: %v", err)
	}
	missed, sub := 0, new(natsgo.Subscription)
	e.misses[sub] = func() { missed++ }
	wantConnected(t, e, true, e.reconnected)
	op, ended := operate(t, e), operate(t, e)
	ended.end()
	wantConnected(t, e, false, func() { e.disconnected(errors.New("cut")) })
	e.disconnected(errors.New("cut again"))
	wantEnd(t, op, errLost)
	if _, err := e.begin(t.Context()); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("while the connection is lost something begins: %v", err)
	}
	for want, err := range map[string]error{
		"publish to s: ": e.Publish("s", nil), "request to s: ": second(e.Request(t.Context(), "s", nil)), "collect from s: ": collected(e, "s"),
		"subscribe s: ": second(e.Subscribe(t.Context(), "s", func(cluster.Message) {})), "answer s: ": second(e.Answer(t.Context(), "s", func(context.Context, []byte) []byte { return nil })),
	} {
		if !errors.Is(err, cluster.ErrUnavailable) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("while the connection is lost: %v, want %s and why", err, want)
		}
	}
	for what, err := range map[string]error{
		"Publish": e.Publish("s t", nil), "Request": second(e.Request(t.Context(), "s t", nil)), "Collect": collected(e, "s t"),
		"Subscribe": second(e.Subscribe(t.Context(), "s t", nil)), "Answer": second(e.Answer(t.Context(), "s t", nil)),
	} {
		if !errors.Is(err, cluster.ErrInvalid) {
			t.Errorf("%s with a bad subject got %v", what, err)
		}
	}
	wantConnected(t, e, true, e.reconnected)
	op = operate(t, e)
	if e.life.Err() != nil {
		t.Error("what begins on the new connection ends with the old one")
	}
	left, leave := context.WithCancelCause(t.Context())
	why := errors.New("the caller has left")
	leave(why)
	if _, err := e.begin(left); !errors.Is(err, why) || !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("something begins for a caller that has left: %v", err)
	}
	if missed != 2 {
		t.Errorf("subscribers were told %d times, want twice", missed)
	}
	wantConnected(t, e, true, e.reconnected)
	wantEnd(t, op, errLost)
	e.failed(sub, natsgo.ErrSlowConsumer)
	if missed != 4 || len(e.operations) != 0 {
		t.Errorf("subscribers were told %d times, and %d operations are left, want 4 and none", missed, len(e.operations))
	}
	const want = `level=INFO msg="the connection to NATS is back" cluster=c
level=WARN msg="the connection to NATS was lost" cluster=c err=cut
level=INFO msg="the connection to NATS is back" cluster=c
level=INFO msg="the connection to NATS is back" cluster=c
`
	if got := lines.String(); got != want {
		t.Errorf("the log says\n%swant\n%s", got, want)
	}
	if got := e.LocalAddress(); got != "127.0.0.1" {
		t.Errorf("the address of this side is %q", got)
	}
}

func second[T any](_ T, err error) error { return err }

func collected(e *engine, subject string) (err error) {
	for _, err = range e.Collect(context.Background(), subject, nil) {
	}
	return err
}

// The answer to a read is awaited for two seconds, and that to a write for five. What the caller does not wait for any longer ends with that.
func TestHowLongAnswersAreAwaited(t *testing.T) {
	silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	own := errors.New("the server's own")
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			do      func(*operation) error
			patient time.Duration // of the caller
			within  time.Duration
			want    error
		}{
			"a read":                   {func(op *operation) error { return op.read(silent) }, time.Minute, 2 * time.Second, errNoAnswer},
			"a write":                  {func(op *operation) error { return op.write(silent) }, time.Minute, 5 * time.Second, errUnknown},
			"for an impatient caller":  {func(op *operation) error { return op.write(silent) }, time.Second, time.Second, context.DeadlineExceeded},
			"that is answered at once": {func(op *operation) error { return op.read(func(context.Context) error { return own }) }, time.Minute, 0, own},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), c.patient)
			op := &operation{Context: ctx}
			began := time.Now()
			if err := c.do(op); !errors.Is(err, c.want) || time.Since(began) != c.within {
				t.Errorf("%s: %v after %v, want %v after %v", name, err, time.Since(began), c.want, c.within)
			}
			cancel()
		}
	})
}

// A subscriber is told one at a time, never waits to be told that it has missed something, and is told nothing after the end.
func TestASubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []cluster.Message
		s := &subscription{missed: make(chan struct{}, 1), stopped: make(chan struct{}), ended: make(chan struct{}), deliver: func(m cluster.Message) { got = append(got, m) }}
		s.miss()
		s.miss() // which is the same news
		go s.reportMissed()
		synctest.Wait()
		s.call(cluster.Message{Body: []byte("x")})
		for range 2 {
			s.end()
		}
		s.call(cluster.Message{Body: []byte("late")})
		s.miss()
		s.miss()
		if len(got) != 2 || !got[0].Missed || string(got[1].Body) != "x" {
			t.Errorf("it was told %+v", got)
		}
		<-s.ended
	})
}

// A permission that is missing ends what it is for, and nothing else.
func TestAMissingPermission(t *testing.T) {
	e, lines := newTestEngine(t)
	e.reconnected()
	op, other := operate(t, e, subjectOf("bl.c.req.s")), operate(t, e, subjectOf("bl.c.req.s.t"))
	e.failed(nil, fmt.Errorf(`%w for Publish to "bl.c.req.s"`, natsgo.ErrPermissionViolation))
	wantEnd(t, op, cluster.ErrUnavailable, cluster.ErrDenied, natsgo.ErrPermissionViolation)
	if other.Err() != nil {
		t.Errorf("something else has ended: %v", context.Cause(other))
	}
	other.end()
	if !strings.Contains(lines.String(), `level=WARN msg="NATS reports a problem" cluster=c err=`) {
		t.Errorf("the log says %s", lines)
	}
}

// A connection that NATS ends for good is lost, and the log says what to do. That of an engine which is closed is no news.
func TestTheEndOfAConnection(t *testing.T) {
	e, lines := newTestEngine(t)
	e.reconnected()
	op := operate(t, e)
	lines.Reset()
	wantConnected(t, e, false, e.gone)
	wantEnd(t, op, errLost)
	<-e.ended
	if got := lines.String(); !strings.HasPrefix(got, `level=ERROR msg="NATS has ended the connection for good; restart this process" cluster=c err=`) || strings.Count(got, "\n") != 1 {
		t.Errorf("the log says %s", got)
	}

	e, lines = newTestEngine(t)
	e.reconnected()
	op = operate(t, e)
	stopped := 0
	if err := e.keep(&stopper{end: func() { stopped++ }}); err != nil {
		t.Error(err)
	}
	lines.Reset()
	for range 2 {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	e.disconnected(net.ErrClosed)
	e.reconnected()
	e.gone()
	wantEnd(t, op, errClosed)
	if connected, _ := e.Connected(); connected || stopped != 1 || lines.Len() > 0 || e.dialing.Err() == nil {
		t.Errorf("after Close it is connected: %t; %d subscriptions were ended, want 1; it goes on dialling: %t; the log says %s", connected, stopped, e.dialing.Err() == nil, lines)
	}
	_, begun := e.begin(t.Context())
	for what, err := range map[string]error{"begin": begun, "publish": e.Publish("s", nil), "subscribe": e.keep(&stopper{})} {
		if !errors.Is(err, errClosed) {
			t.Errorf("after Close, %s got %v", what, err)
		}
	}
}

// A bucket is made, and looked for, with the settings that its options need. An error names all that differ.
func TestSettingsOfBuckets(t *testing.T) {
	of := func(replicas int, o cluster.BucketOptions) *bucket {
		e, _ := newTestEngine(t)
		e.options.Replicas = replicas
		o.Name, o.MaxValue = "b", 1000
		return &bucket{engine: e, options: o, stream: "KV_bl_c_b", prefix: "$KV.bl_c_b."}
	}
	for name, c := range map[string]struct {
		options            cluster.BucketOptions
		replicas           int
		age, window, marks time.Duration
		bytes              int64
		storage            jetstream.StorageType
		metadata           map[string]string
	}{
		"plain":               {cluster.BucketOptions{}, 1, 0, 2 * time.Minute, 0, -1, jetstream.FileStorage, nil},
		"with a TTL":          {cluster.BucketOptions{TTL: time.Minute}, 1, time.Minute, time.Minute, markerTTL, -1, jetstream.FileStorage, nil},
		"with a long TTL":     {cluster.BucketOptions{TTL: time.Hour, MaxBytes: 7}, 1, time.Hour, 2 * time.Minute, markerTTL, 7, jetstream.FileStorage, nil},
		"with TTLs of keys":   {cluster.BucketOptions{OwnTTL: true}, 1, 0, 2 * time.Minute, markerTTL, -1, jetstream.FileStorage, map[string]string{ownTTL: "true"}},
		"in memory":           {cluster.BucketOptions{Memory: true}, 1, 0, 2 * time.Minute, 0, -1, jetstream.MemoryStorage, map[string]string{inMemory: "true"}},
		"in memory, of three": {cluster.BucketOptions{Memory: true}, 3, 0, 2 * time.Minute, 0, -1, jetstream.FileStorage, map[string]string{inMemory: "true"}},
	} {
		got := of(0, c.options).config(c.replicas)
		if got.MaxAge != c.age || got.Duplicates != c.window || got.SubjectDeleteMarkerTTL != c.marks || got.MaxBytes != c.bytes || got.Storage != c.storage ||
			got.Replicas != c.replicas || got.MaxMsgSize != 1000+room || got.Discard != jetstream.DiscardNew || !maps.Equal(got.Metadata, c.metadata) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	has := of(0, cluster.BucketOptions{}).config(3)
	for replicas, want := range map[int]string{0: "", 3: "", 1: "num_replicas is 3, and not 1"} {
		if err := of(replicas, cluster.BucketOptions{}).compare(has); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("with %d replicas: %v, want %s", replicas, err, want)
		}
	}
	err := of(0, cluster.BucketOptions{TTL: time.Minute, OwnTTL: true}).compare(has)
	var differ *cluster.SettingsError
	const want = "max_age is 0s, and not 1m0s, subject_delete_marker_ttl is 0s, and not 10m0s, metadata bowline_own_ttl is , and not true; edit or delete the stream KV_bl_c_b"
	if !errors.As(err, &differ) || *differ != (cluster.SettingsError{Bucket: "b", Detail: want}) {
		t.Errorf("got %v, want %s", err, want)
	}
	for given, want := range map[int]int{0: 1, 2: 2, 3: 3} {
		if got := of(given, cluster.BucketOptions{}).replicas(); got != want {
			t.Errorf("with %d replicas in the options and one server, a bucket has %d, want %d", given, got, want)
		}
	}
}
