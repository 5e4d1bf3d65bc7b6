//go:build cluster

package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/cluster/nats"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// servers are three servers that form a cluster, each in a process of its own.
type servers struct {
	t     *testing.T
	names [3]string // by which a stream names its leader
	kill  func(n int)
	start func(n int) // again, after kill
	dial  func(n int) (net.Conn, error)
	login func(n int, o *nats.Options)
}

// engine connects to server n through a line.
func (s *servers) engine(t *testing.T, n int) (cluster.Engine, *line) {
	t.Helper()
	l := &line{dial: func() (net.Conn, error) { return s.dial(n) }}
	o := nats.Options{URLs: []string{"nats://127.0.0.1"}, Cluster: "test", Dial: l.open, Log: slog.New(slog.DiscardHandler)}
	s.login(n, &o)
	return connectOnly(t, o), l
}

func (s *servers) contract(t *testing.T) {
	clustertest.EngineContract(t, func(*testing.T) clustertest.Harness {
		var lines sync.Map
		var next atomic.Int64
		return clustertest.Harness{
			Engine: func(t *testing.T) cluster.Engine {
				e, l := s.engine(t, int(next.Add(1))%3)
				lines.Store(e, l)
				return e
			},
			Cut: func(e cluster.Engine) func() {
				l, _ := lines.Load(e)
				l.(*line).setCut(true)
				return func() { l.(*line).setCut(false) }
			},
		}
	})
}

// info asks server n about the stream of a bucket. The server may just be starting.
func (s *servers) info(t *testing.T, n int, bucket string) *jetstream.StreamInfo {
	t.Helper()
	var o nats.Options
	s.login(n, &o)
	ctx := within(t)
	dial := dialerFunc(func() (net.Conn, error) {
		for {
			conn, err := s.dial(n)
			if err == nil || ctx.Err() != nil {
				return conn, err
			}
			rest(ctx, t, 20*time.Millisecond)
		}
	})
	conn := must[*natsgo.Conn](t)(natsgo.Connect("nats://127.0.0.1", natsgo.SetCustomDialer(dial), natsgo.Token(o.Token)))
	defer conn.Close()
	js := must[jetstream.JetStream](t)(jetstream.New(conn))
	for { // a server that does not know yet who leads drops the question
		short, cancel := context.WithTimeout(ctx, time.Second)
		stream, err := js.Stream(short, "KV_bl_test_"+bucket)
		cancel()
		if err == nil {
			return stream.CachedInfo()
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("server %d about the stream of %s: %v", n, bucket, err)
		}
	}
}

type dialerFunc func() (net.Conn, error)

func (f dialerFunc) Dial(string, string) (net.Conn, error) { return f() }

// leader returns which server leads the stream of a bucket, as server n knows it.
func (s *servers) leader(t *testing.T, n int, bucket string) int {
	t.Helper()
	ctx := within(t)
	for {
		leader := s.info(t, n, bucket).Cluster.Leader
		for i, name := range s.names {
			if name == leader {
				return i
			}
		}
		rest(ctx, t, 50*time.Millisecond)
	}
}

// awaitCurrent waits until all replicas of a bucket have everything.
func (s *servers) awaitCurrent(t *testing.T, bucket string) {
	t.Helper()
	ctx := within(t)
	for {
		info := s.info(t, 0, bucket)
		current := info.Cluster.Leader != "" && len(info.Cluster.Replicas) == 2
		for _, replica := range info.Cluster.Replicas {
			current = current && replica.Current && !replica.Offline
		}
		if current {
			return
		}
		if err := wait.Sleep(ctx, 50*time.Millisecond); err != nil {
			for _, replica := range info.Cluster.Replicas {
				t.Logf("server 0 says of a replica of %s, which %s leads: %+v", bucket, info.Cluster.Leader, *replica)
			}
			t.Fatal(err)
		}
	}
}

// leaderIsKilled kills the server that leads a bucket while somebody writes to another one.
func (s *servers) leaderIsKilled(t *testing.T) {
	e0, _ := s.engine(t, 0)
	must[cluster.Bucket](t)(e0.Bucket(within(t), cluster.BucketOptions{Name: "killed"}))
	closeEngine(t, e0)
	s.awaitCurrent(t, "killed")
	leader := s.leader(t, 0, "killed")
	e, _ := s.engine(t, (leader+1)%3)
	defer closeEngine(t, e)
	b := must[cluster.Bucket](t)(e.Bucket(within(t), cluster.BucketOptions{Name: "killed"}))
	written := map[string]uint64{}
	write := func(n int) {
		key := fmt.Sprintf("k%d", n)
		written[key] = must[uint64](t)(b.Create(within(t), key, []byte(key), 0))
	}
	for n := range 100 {
		write(n)
	}
	began := time.Now()
	s.kill(leader)
	for ctx := within(t); ; rest(ctx, t, 20*time.Millisecond) {
		short, cancel := context.WithTimeout(ctx, time.Second) // as who renews a lease does
		revision, err := b.Put(short, "k100", []byte("k100"))
		cancel()
		if written["k100"] = revision; err == nil {
			break
		}
		if !errors.Is(err, cluster.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	t.Logf("a write succeeded %v after the leader was killed", time.Since(began))
	s.start(leader)
	s.awaitCurrent(t, "killed")
	back, _ := s.engine(t, leader)
	defer closeEngine(t, back)
	again := must[cluster.Bucket](t)(back.Bucket(within(t), cluster.BucketOptions{Name: "killed"}))
	for key, revision := range written {
		entry, err := again.Get(within(t), key)
		if err != nil || entry.Revision != revision || string(entry.Value) != key {
			t.Errorf("%s is %+v (%v), want revision %d", key, entry, err, revision)
		}
	}
	if _, err := again.Create(within(t), "k100", nil, 0); !errors.Is(err, cluster.ErrExists) {
		t.Errorf("a create of what was written got %v", err)
	}
}

// The servers run in three processes of this program, which reach each other through relays.
//
// Guarantees: G-0078.8
func TestThreeProcesses(t *testing.T) {
	s, relays := startProcesses(t)
	t.Run("contract", s.contract)
	t.Run("the leader is killed", s.leaderIsKilled)
	t.Run("a replica lags", func(t *testing.T) { s.replicaLags(t, relays) })
	t.Run("the leader is cut off", func(t *testing.T) { s.leaderIsCutOff(t, relays) })
}

// A cluster that is new waits for the third server, and says so. Later two of three are enough, also for
// what need not survive. A server whose folder is lost gets everything from the others.
//
// Guarantees: G-0078.9
func TestServersComeBack(t *testing.T) {
	three := newTrio(t)
	three.join(0, 1)
	created := make(chan error, 1)
	go func() {
		_, err := three.engines[1].Bucket(within(t), cluster.BucketOptions{Name: "b"})
		created <- err
	}()
	three.awaitLog(1, "waiting for 1 more of 3 nodes: "+three.options[2].Listen+" (a cluster that is new")
	three.join(2)
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	three.awaitLog(1, "3 of 3 nodes are there")
	must[uint64](t)(three.bucket(2).Create(within(t), "k", []byte("value"), 0))
	buckets(t, three.engines[0])
	for n := range 3 {
		three.leave(n)
	}
	three.join(0, 2)
	wantGet(t, three.bucket(0), "k", "value")
	must[uint64](t)(three.bucket(2).Put(within(t), "k", []byte("later")))
	_, inMemory := buckets(t, three.engines[0])
	must[uint64](t)(inMemory.Create(within(t), "k", []byte("value"), 0))
	if err := os.RemoveAll(three.options[1].Folder); err != nil {
		t.Fatal(err)
	}
	three.join(1)
	wantGet(t, three.bucket(1), "k", "later")
	serversOf(t, &three.options).awaitCurrent(t, "b")
	three.leave(0)
	wantGet(t, three.bucket(1), "k", "later")
	must[uint64](t)(three.bucket(1).Put(within(t), "k", []byte("last")))
}

// startProcesses starts three members. relays[a][b] is the way from server a to server b.
func startProcesses(t *testing.T) (*servers, *[3][3]*relay) {
	listen := freeAddresses(t, 3)
	var relays [3][3]*relay
	var options [3]Options
	for a := range 3 {
		var routes []string
		for b := range 3 {
			if a != b {
				relays[a][b] = newRelay(t, func() (net.Conn, error) { return net.Dial("tcp", listen[b]) })
				l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
				relays[a][b].listen(t, l)
				routes = append(routes, l.Addr().String())
			}
		}
		options[a] = Options{
			Folder: filepath.Join(testenv.Dir(t), "cluster"), Cluster: "test", Listen: listen[a], Self: listen[a], Seeds: listen, Key: testKey, Routes: routes,
		}
	}
	var processes [3]*process
	var joined [3]<-chan struct{}
	for n := range 3 {
		processes[n], joined[n] = spawn(t, options[n])
	}
	for n := range 3 {
		processes[n].await(joined[n])
	}
	s := serversOf(t, &options)
	s.kill = func(n int) { processes[n].kill() }
	s.start = func(n int) { processes[n] = startMember(t, options[n]) }
	return s, &relays
}

// serversOf describes servers that run with options.
func serversOf(t *testing.T, options *[3]Options) *servers {
	s := &servers{t: t}
	for n := range 3 {
		s.names[n] = serverName(options[n].Self)
	}
	s.dial = func(n int) (net.Conn, error) {
		return dialState(options[n].folder())(context.Background(), "", "")
	}
	s.login = func(n int, o *nats.Options) { o.Token = must[state](t)(readState(options[n].folder())).Token }
	return s
}

// replicaLags cuts a server off from the leader of a bucket. It does not take for missing what it has not
// heard of.
func (s *servers) replicaLags(t *testing.T, relays *[3][3]*relay) {
	o := cluster.BucketOptions{Name: "lags"}
	e0, _ := s.engine(t, 0)
	must[cluster.Bucket](t)(e0.Bucket(within(t), o))
	closeEngine(t, e0)
	s.awaitCurrent(t, "lags")
	leader := s.leader(t, 0, "lags")
	lags := (leader + 1) % 3
	atLeader, _ := s.engine(t, leader)
	defer closeEngine(t, atLeader)
	there, _ := s.engine(t, lags)
	defer closeEngine(t, there)
	writer, reader := must[cluster.Bucket](t)(atLeader.Bucket(within(t), o)), must[cluster.Bucket](t)(there.Bucket(within(t), o))
	must[uint64](t)(writer.Create(within(t), "before", []byte("value"), 0))
	get := func(key string) (cluster.Entry, error) {
		short, cancel := context.WithTimeout(within(t), time.Second)
		defer cancel()
		return reader.Get(short, key)
	}
	for ctx := within(t); ; rest(ctx, t, 200*time.Millisecond) { // until the replica there answers by itself
		relays[leader][lags].stall()
		relays[lags][leader].stall()
		if _, err := get("before"); err == nil {
			break
		}
		relays[leader][lags].resume()
		relays[lags][leader].resume()
	}
	must[uint64](t)(writer.Create(within(t), "k", []byte("value"), 0))
	if entry, err := get("k"); err != nil && !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("a replica that lags shows %+v: %v, want ErrUnavailable", entry, err)
	}
	relays[leader][lags].resume()
	relays[lags][leader].resume()
	wantGet(t, reader, "k", "value")
	wantNone(t, reader, "none")
}

// leaderIsCutOff cuts the leader of a bucket off from the other servers. A node there keeps its
// claim until it expires, and another one has it only then.
func (s *servers) leaderIsCutOff(t *testing.T, relays *[3][3]*relay) {
	o := cluster.BucketOptions{Name: "cut", TTL: 5 * time.Second, Memory: true}
	e0, _ := s.engine(t, 0)
	must[cluster.Bucket](t)(e0.Bucket(within(t), o))
	closeEngine(t, e0)
	s.awaitCurrent(t, "cut")
	leader := s.leader(t, 0, "cut")
	other := (leader + 1) % 3
	atLeader, _ := s.engine(t, leader)
	defer closeEngine(t, atLeader)
	elsewhere, _ := s.engine(t, other)
	defer closeEngine(t, elsewhere)
	holder, rival := must[cluster.Bucket](t)(atLeader.Bucket(within(t), o)), must[cluster.Bucket](t)(elsewhere.Bucket(within(t), o))
	revision := must[uint64](t)(holder.Create(within(t), "claim", []byte("holder"), 0))
	claimed := time.Now()
	for n := range 3 {
		if n != leader {
			relays[leader][n].stall()
			relays[n][leader].stall()
		}
	}
	short, cancel := context.WithTimeout(within(t), 2*time.Second)
	_, err := holder.Update(short, "claim", []byte("holder"), revision)
	cancel()
	if !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("a renewal at the leader that is cut off got %v, want ErrUnavailable", err)
	}
	ctx := within(t)
	for {
		short, cancel := context.WithTimeout(ctx, time.Second)
		_, err := rival.Create(short, "claim", []byte("rival"), 0)
		cancel()
		if err == nil {
			break
		}
		if !errors.Is(err, cluster.ErrExists) && !errors.Is(err, cluster.ErrUnavailable) {
			t.Fatal(err)
		}
		rest(ctx, t, 20*time.Millisecond)
	}
	if took := time.Since(claimed); took < o.TTL {
		t.Errorf("the rival has the claim after %v, before it could expire", took)
	} else {
		t.Logf("the rival has the claim after %v", took)
	}
	if entry, err := holder.Get(within(t), "claim"); err == nil {
		t.Logf("the leader that is cut off shows the claim of the %s", entry.Value)
	}
	healed := time.Now()
	for n := range 3 {
		if n != leader {
			relays[leader][n].resume()
			relays[n][leader].resume()
		}
	}
	ctx = within(t)
	_, err = holder.Update(ctx, "claim", []byte("holder"), revision)
	for errors.Is(err, cluster.ErrUnavailable) && ctx.Err() == nil { // it may come to the old leader before that learns of the new one
		_, err = holder.Update(ctx, "claim", []byte("holder"), revision)
	}
	if !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("after the cut a renewal got %v, want ErrConflict", err)
	}
	t.Logf("the old holder learned it %v after the cut", time.Since(healed))
	for entry := range holder.Watch(within(t), "") {
		if string(entry.Value) == "rival" || entry.Deleted {
			break // it expires, since nobody renews it
		}
	}
}
