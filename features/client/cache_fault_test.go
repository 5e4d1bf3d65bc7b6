package client_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// A versionLog records which version of a user's resource existed at which time.
type versionLog struct {
	user   string
	server *server.Server

	mu    sync.Mutex
	since []time.Time // when each version began
}

// seeds is how many random sequences of faults each test tries. make soak tries more.
var seeds = flag.Uint64("seeds", 20, "histories of each test with faults")

const ledgerURI, ledgerTTL = "x://balance", 2 * time.Second

func newVersionLog(user string) *versionLog {
	l := &versionLog{user: user, since: []time.Time{time.Now()}}
	l.server = server.New(serverInfo, server.Options{OnSubscribe: func(context.Context, string) error { return nil }})
	server.AddResource(l.server, protocol.Resource{URI: ledgerURI, Name: "balance"}, func(context.Context) (*protocol.ReadResourceResult, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		text := fmt.Sprintf("%s %d", l.user, len(l.since)-1)
		ttl := ledgerTTL.Milliseconds()
		return &protocol.ReadResourceResult{
			CacheableResult: protocol.CacheableResult{TTLMs: &ttl, CacheScope: protocol.CachePrivate},
			Contents:        protocol.ContentsOfResource{{URI: ledgerURI, Text: &text}},
		}, nil
	})
	return l
}

func (l *versionLog) change() {
	l.mu.Lock()
	l.since = append(l.since, time.Now())
	l.mu.Unlock()
	l.server.ResourceUpdated(ledgerURI)
}

// check returns an error if a reader that began at the given time should not have got
// this result.
func (l *versionLog) check(r *protocol.ReadResourceResult, begun time.Time, maxStale time.Duration) error {
	var user string
	var version int
	if _, err := fmt.Sscanf(r.Text(), "%s %d", &user, &version); err != nil || user != l.user {
		return fmt.Errorf("%s got %q, %v", l.user, r.Text(), err)
	}
	asked := begun // the version must have existed then or later
	if !r.Received.IsZero() {
		if age := time.Since(r.Received); age > max(ledgerTTL, maxStale) {
			return fmt.Errorf("%s got a result that is %v old, want less", l.user, age)
		}
		asked = r.Received.Add(-patience)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if version+1 < len(l.since) && l.since[version+1].Before(asked) {
		return fmt.Errorf("%s got version %d, which ended at %v, before %v", l.user, version, l.since[version+1], asked)
	}
	return nil
}

const patience = 300 * time.Millisecond // of one read

// Whatever happens to frames and links, no user gets another user's result, a result
// older than the server or the caller allows, or a result that is known to have
// changed.
//
// Guarantees: G-0035.2, G-0035.3, G-0035.5
func TestTheCacheUnderFaults(t *testing.T) {
	var kept, stale atomic.Int64
	for seed := range *seeds {
		synctest.Test(t, func(t *testing.T) {
			var all sync.WaitGroup
			for i, user := range []string{"ada", "grace"} {
				all.Go(func() { readUnderFaults(t, newVersionLog(user), seed*2+uint64(i), &kept, &stale) })
			}
			all.Wait()
		})
	}
	if t.Logf("%d results from the cache, %d stale", kept.Load(), stale.Load()); kept.Load() < 1000 || stale.Load() < 10 {
		t.Error("too few results came from the cache, want 1000 and 10 stale ones")
	}
}

func readUnderFaults(t *testing.T, l *versionLog, seed uint64, kept, stale *atomic.Int64) {
	random := rand.New(rand.NewPCG(seed, 0))
	n := &network{t: t, server: l.server}
	defer n.close()
	lossy := fault.New(n.transport(), fault.Plan{Seed: seed, Faults: []fault.Fault{
		{Kind: fault.Die, Direction: fault.Inbound, Probability: 0.1, After: 4},
		{Kind: fault.Drop, Direction: fault.Inbound, Probability: 0.05, After: 4},
		{Kind: fault.Delay, Direction: fault.Inbound, Probability: 0.1, After: 4},
		{Kind: fault.Drop, Direction: fault.Outbound, Probability: 0.05, After: 4},
	}})
	version := protocol.Latest
	if seed%4 == 0 {
		version = protocol.LatestLegacy
	}
	s, err := client.New(clientInfo, client.Options{
		ProtocolVersion: version, Calls: client.CallOptions{Timeout: patience},
		Conn: conn.Options{BackoffMin: 5 * time.Second},
	}).Connect(t.Context(), specification.WatchClient(t, lossy))
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close(context.Background())
	_ = s.Subscribe(t.Context(), &protocol.SubscribeParams{URI: ledgerURI})
	for range 200 {
		pass(time.Duration(random.IntN(400)) * time.Millisecond)
		options := client.CallOptions{Timeout: patience}
		switch random.IntN(6) {
		case 0:
			l.change()
		case 1:
			pass(time.Duration(random.IntN(3000)) * time.Millisecond)
		case 2, 4:
			options.MaxStale = 60 * time.Second
		case 3:
			options.Fresh = true
		}
		begun := time.Now()
		r, err := s.With(options).ReadResource(t.Context(), &protocol.ReadResourceParams{URI: ledgerURI})
		if err != nil {
			continue
		}
		if err := l.check(r, begun, options.MaxStale); err != nil {
			t.Errorf("seed %d: %v\n%v", seed, err, lossy.Log())
			return
		}
		switch age := time.Since(r.Received); {
		case r.Received.IsZero():
		case age > ledgerTTL:
			stale.Add(1)
		default:
			kept.Add(1)
		}
		if options.Fresh && !r.Received.IsZero() {
			t.Errorf("seed %d: got an outdated result after the faults, want a fresh one", seed)
		}
	}
}
