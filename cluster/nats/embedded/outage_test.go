package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	natsserver "github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/nats"
	"github.com/bowline-mcp/bowline/internal/testenv"
)

// A connection that is half open is noticed, and nothing waits for it much longer than its context:
// neither if the machine still accepts what is sent, nor if it does not.
//
// Guarantees: G-0078.3
func TestAHalfOpenConnection(t *testing.T) {
	t.Parallel()
	for name, dial := range map[string]func(t *testing.T, r *relay, o *nats.Options){
		"buffered": func(t *testing.T, r *relay, o *nats.Options) {
			l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
			r.listen(t, l)
			o.URLs = []string{"nats://" + l.Addr().String()}
		},
		"stuck": func(_ *testing.T, r *relay, o *nats.Options) { o.Dial = r.connect },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := plainServer(t, func(*natsserver.Options) {})
			r := newRelay(t, dialServer(s))
			o := optionsFor(s)
			dial(t, r, &o)
			halfOpen(t, connect(t, o), r, name == "buffered")
		})
	}
}

// halfOpen tests an engine whose connection the relay stalls. If the machine does not accept what is sent, a
// write may wait until the connection is lost: the client of NATS holds its lock while it sends.
func halfOpen(t *testing.T, e cluster.Engine, r *relay, buffered bool) {
	b := must[cluster.Bucket](t)(e.Bucket(within(t), cluster.BucketOptions{Name: "b"}))
	r.stall()
	stalled := time.Now()
	waits := make(chan error, 1)
	go func() {
		_, err := b.Put(context.Background(), "waits", nil)
		waits <- err
	}()
	ended := 0 // writes that ended with their context, while nobody knew that the connection was lost
	for connected := true; connected; {
		ctx, cancel := context.WithTimeout(within(t), 100*time.Millisecond)
		_, err := b.Put(ctx, "k", nil)
		cancel()
		if !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("put got %v", err)
		}
		if connected, _ = e.Connected(); connected {
			ended++
		}
		if time.Since(stalled) > limit/2 {
			t.Fatalf("the connection is not lost after %v", limit/2)
		}
	}
	if buffered && ended == 0 {
		t.Error("a write waited until the connection was lost, and not until its context ended")
	}
	if err := testenv.Receive(t, waits, "the write without a time limit ends"); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("what waited got %v", err)
	}
	r.resume()
	awaitConnected(t, e, true)
	awaitWrite(t, b)
}

// Close does not wait for a connection that is stuck.
func TestCloseWhileStuck(t *testing.T) {
	t.Parallel()
	s := plainServer(t, func(*natsserver.Options) {})
	r := newRelay(t, dialServer(s))
	o := optionsFor(s)
	o.Dial = r.connect
	e := connect(t, o)
	stop := must[func()](t)(e.Subscribe(within(t), "s", func(cluster.Message) {}))
	r.stall()
	began := time.Now()
	stop()
	closeEngine(t, e)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
}

// What the server sends to keep a watch alive is not counted.
//
// Guarantees: G-0078.2
func TestAnIdleEngineSendsNothing(t *testing.T) {
	t.Parallel()
	s := plainServer(t, func(*natsserver.Options) {})
	e := connect(t, optionsFor(s))
	b := must[cluster.Bucket](t)(e.Bucket(within(t), cluster.BucketOptions{Name: "b"}))
	ctx, cancel := context.WithCancel(within(t))
	current, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for entry := range b.Watch(ctx, "") {
			if entry.Current {
				close(current)
			}
		}
	}()
	testenv.Receive(t, current, "the watch is current")
	sent, received := e.Messages()
	// On a slow machine a heartbeat comes late, and the watch asks for it. That happens seldom.
	const attempts = 5
	for attempt := 1; ; attempt++ {
		before := must[*natsserver.Varz](t)(s.Varz(nil))
		now := before
		for now.OutMsgs < before.OutMsgs+2 { // two heartbeats, at least
			rest(ctx, t, 50*time.Millisecond)
			now = must[*natsserver.Varz](t)(s.Varz(nil))
		}
		if now.InMsgs == before.InMsgs {
			break
		}
		if attempt == attempts {
			t.Errorf("the server received %d messages while nothing was done, and some before", now.InMsgs-before.InMsgs)
			break
		}
	}
	if sentNow, receivedNow := e.Messages(); sentNow != sent || receivedNow != received {
		t.Errorf("the messages rose from %d, %d to %d, %d", sent, received, sentNow, receivedNow)
	}
	cancel()
	testenv.Receive(t, ended, "the watch ends")
}

// A store without room refuses values, and accepts them again.
func TestAFullStore(t *testing.T) {
	s := plainServer(t, func(o *natsserver.Options) { o.JetStreamMaxStore = 256 << 10 })
	e := connect(t, optionsFor(s))
	b := must[cluster.Bucket](t)(e.Bucket(within(t), cluster.BucketOptions{Name: "b"}))
	var revisions []uint64
	for n := 0; ; n++ {
		revision, err := b.Create(within(t), "k"+strconv.Itoa(n), make([]byte, 32<<10), 0)
		if errors.Is(err, cluster.ErrFull) {
			break
		}
		if revisions = append(revisions, must[uint64](t)(revision, err)); n > 20 {
			t.Fatal("a store of 256 KiB has 640 KiB")
		}
	}
	if _, err := e.Bucket(within(t), cluster.BucketOptions{Name: "c", MaxBytes: 1 << 20}); !errors.Is(err, cluster.ErrFull) {
		t.Errorf("a bucket that is larger than the store got %v, want ErrFull", err)
	}
	for n, revision := range revisions {
		if err := b.Delete(within(t), "k"+strconv.Itoa(n), revision); err != nil {
			t.Errorf("delete got %v", err)
		}
	}
	must[uint64](t)(b.Create(within(t), "again", make([]byte, 32<<10), 0))
}

// A mark that a key was deleted disappears after its time, and leaves no other mark.
func TestMarksDisappear(t *testing.T) {
	t.Parallel()
	s := plainServer(t, func(*natsserver.Options) {})
	e := connect(t, optionsFor(s))
	b := must[cluster.Bucket](t)(e.Bucket(within(t), cluster.BucketOptions{Name: "b", TTL: time.Hour}))
	if err := b.Delete(within(t), "k", must[uint64](t)(b.Create(within(t), "k", []byte("value"), 0))); err != nil {
		t.Fatal(err)
	}
	conn := must[*natsgo.Conn](t)(natsgo.Connect(s.ClientURL()))
	defer conn.Close()
	js := must[jetstream.JetStream](t)(jetstream.New(conn))
	stream := must[jetstream.Stream](t)(js.Stream(within(t), "KV_bl_test_b"))
	mark := must[*jetstream.RawStreamMsg](t)(stream.GetLastMsgForSubject(within(t), "$KV.bl_test_b.k"))
	if ttl := mark.Header.Get("Nats-TTL"); ttl != "10m0s" {
		t.Fatalf("the mark has the TTL %q", ttl)
	}
	soon := natsgo.NewMsg(mark.Subject) // the same, with a shorter time
	soon.Header = mark.Header
	soon.Header.Set("Nats-TTL", "1s")
	soon.Header.Del("Nats-Expected-Last-Subject-Sequence")
	must[*jetstream.PubAck](t)(js.PublishMsg(within(t), soon))
	ctx := within(t)
	for {
		state := must[*jetstream.StreamInfo](t)(stream.Info(within(t))).State
		if state.Msgs == 0 {
			if state.LastSeq != 3 {
				t.Errorf("the server has written %d messages, want 3", state.LastSeq)
			}
			return
		}
		rest(ctx, t, 20*time.Millisecond)
	}
}

// Credentials expire, and are read again.
func TestCredentialsExpire(t *testing.T) {
	t.Parallel()
	operator, account := must[nkeys.KeyPair](t)(nkeys.CreateOperator()), must[nkeys.KeyPair](t)(nkeys.CreateAccount())
	public := func(k nkeys.KeyPair) string { return must[string](t)(k.PublicKey()) }
	claims := jwt.NewAccountClaims(public(account))
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	resolver := &natsserver.MemAccResolver{}
	if err := resolver.Store(public(account), must[string](t)(claims.Encode(operator))); err != nil {
		t.Fatal(err)
	}
	system := must[nkeys.KeyPair](t)(nkeys.CreateAccount())
	if err := resolver.Store(public(system), must[string](t)(jwt.NewAccountClaims(public(system)).Encode(operator))); err != nil {
		t.Fatal(err)
	}
	s := plainServer(t, func(o *natsserver.Options) {
		o.TrustedKeys, o.AccountResolver, o.SystemAccount = []string{public(operator)}, resolver, public(system)
	})
	o := optionsFor(s)
	o.Credentials = filepath.Join(t.TempDir(), "node.creds")
	issue := func(life time.Duration) {
		user := must[nkeys.KeyPair](t)(nkeys.CreateUser())
		claims := jwt.NewUserClaims(public(user))
		claims.Expires = time.Now().Add(life).Unix()
		text := must[[]byte](t)(jwt.FormatUserConfig(must[string](t)(claims.Encode(account)), must[[]byte](t)(user.Seed())))
		if err := os.WriteFile(o.Credentials, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	issue(3 * time.Second)
	e := connect(t, o)
	b := must[cluster.Bucket](t)(e.Bucket(within(t), cluster.BucketOptions{Name: "b"}))
	awaitConnected(t, e, false)
	if _, err := b.Put(within(t), "k", nil); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("with expired credentials put got %v", err)
	}
	issue(time.Hour)
	awaitConnected(t, e, true)
	awaitWrite(t, b)
}

// A watch of many keys gets all of them, while somebody writes.
func TestAWatchOfManyKeys(t *testing.T) {
	const keys = 3000
	s := plainServer(t, func(*natsserver.Options) {})
	e := connect(t, optionsFor(s))
	b := must[cluster.Bucket](t)(e.Bucket(within(t), cluster.BucketOptions{Name: "b", Memory: true}))
	value := make([]byte, 20<<10)
	for n := range keys {
		must[uint64](t)(b.Put(within(t), fmt.Sprintf("k.%d", n), value))
	}
	var writing atomic.Bool
	writing.Store(true)
	written := make(chan int, 1)
	go func() {
		n := keys
		for ; writing.Load(); n++ {
			if _, err := b.Put(within(t), fmt.Sprintf("k.%d", n), nil); err != nil {
				t.Error(err)
				break
			}
		}
		written <- n
	}()
	seen := map[string]bool{}
	all := 0
	for entry := range b.Watch(within(t), "k.") {
		if entry.Current {
			if len(seen) < keys {
				t.Fatalf("a watch was current after %d of %d keys", len(seen), keys)
			}
			writing.Store(false)
			all = testenv.Receive(t, written, "nobody writes any more")
		} else {
			seen[entry.Key] = true
		}
		if all > 0 && len(seen) == all {
			break
		}
	}
	listed := 0
	for _, err := range b.Keys(within(t), "k.") {
		must[struct{}](t)(struct{}{}, err)
		listed++
	}
	if listed != all {
		t.Errorf("%d keys were listed, want %d", listed, all)
	}
}
