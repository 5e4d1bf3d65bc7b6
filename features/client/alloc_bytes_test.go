//go:build !race

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
)

// An echo in memory allocates at most this much, for each length of the text: raw
// arguments, which the tool gets and answers as JSON, and typed ones. Each ceiling leaves
// a tenth for differences between runs, and less than a copy of the text. The race
// detector allocates too, so the test does not run with it.
func TestEchoOfAnyLengthAllocates(t *testing.T) {
	for _, c := range []struct {
		length     int
		raw, typed spent // at most
	}{
		{64, spent{14.5, 2150}, spent{12.5, 2000}},
		{1 << 10, spent{14.5, 6850}, spent{13.5, 6600}},
		{16 << 10, spent{15.5, 83_000}, spent{14.5, 79_000}},
		{256 << 10, spent{19.5, 1_230_000}, spent{20, 1_210_000}},
		{1 << 20, spent{22.5, 4_800_000}, spent{26, 4_790_000}},
	} {
		arguments := json.RawMessage(`{"message":"` + strings.Repeat("x", c.length) + `"}`)
		for _, kind := range []struct {
			name string
			raw  bool
			most spent
		}{{"raw", true, c.raw}, {"typed", false, c.typed}} {
			t.Run(fmt.Sprintf("%s, %d bytes", kind.name, c.length), func(t *testing.T) {
				session := connected(t, accepting(t, echoServer(kind.raw)), client.Options{ProtocolVersion: protocol.LatestLegacy})
				times := max(20, 2000/(1+c.length>>10))
				spentBy(t, times/10, echoes(session, arguments)) // allocates what is kept for reuse
				least := spentBy(t, times, echoes(session, arguments))
				for range 2 { // a busy machine collects what was kept for reuse
					least = least.orLess(spentBy(t, times, echoes(session, arguments)))
				}
				least.check(t, kind.most)
			})
		}
	}
}

// A call of one of a thousand concurrent callers allocates about as much as that of a
// single one: waiting for a turn allocates nothing. The race detector allocates too, so
// the test does not run with it.
func TestCallOfACrowdAllocates(t *testing.T) {
	testenv.Crowd(t)
	for version, most := range map[string]spent{protocol.LatestLegacy: {13.2, 3000}, protocol.Latest: {17.2, 3800}} {
		t.Run(version, func(t *testing.T) {
			const callers, calls = 1000, 20
			echo := echoes(connected(t, accepting(t, echoServer(false)), client.Options{ProtocolVersion: version}), json.RawMessage(echoArguments))
			crowd := func() error {
				failed := make([]error, callers)
				var calling sync.WaitGroup
				for i := range failed {
					calling.Go(func() {
						for range calls {
							failed[i] = errors.Join(failed[i], echo())
						}
					})
				}
				calling.Wait()
				return errors.Join(failed...)
			}
			spentBy(t, 1, crowd) // allocates what is kept for reuse
			spentBy(t, 1, crowd).by(callers*calls).check(t, most)
		})
	}
}

// A call over one of many connections that have been idle reuses the memory that others
// have given up. It allocates a goroutine more than a call over a busy connection, and
// timers.
func TestCallOverIdleConnectionsAllocates(t *testing.T) {
	for version, most := range map[string]spent{protocol.LatestLegacy: {15.5, 2050}, protocol.Latest: {19.5, 2900}} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := supervisor.New(supervisor.Options{})
				defer all.Stop(context.Background())
				over, c := accepting(t, echoServer(false)), client.New(clientInfo, client.Options{ProtocolVersion: version, Supervisor: all})
				sessions := make([]*client.Session, 200)
				for i := range sessions {
					sessions[i] = callOnce(t, c, over)
				}
				params := &protocol.CallToolParams{Name: "echo", Arguments: json.RawMessage(echoArguments)}
				turn := time.NewTimer(time.Hour)
				inTurn := func() error {
					for i, session := range sessions {
						turn.Reset(10 * time.Millisecond) // so that each connection is idle for 2 s
						<-turn.C
						if _, err := session.CallTool(context.Background(), params); err != nil {
							return fmt.Errorf("connection %d: %w", i, err)
						}
					}
					return nil
				}
				spentBy(t, 1, inTurn) // allocates what is kept for reuse
				spentBy(t, 5, inTurn).by(len(sessions)).check(t, most)
			})
		})
	}
}

// A result that the program keeps does not keep its frame, also with middleware.
func TestAKeptResultKeepsNoFrame(t *testing.T) {
	const size, many = 1 << 20, 8
	through := func(next client.Handler) client.Handler { return next }
	text := strings.Repeat("x", size)
	s := answering(map[string]string{
		protocol.MethodInitialize: `{"protocolVersion":"` + protocol.LatestLegacy + `","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"0"}}`,
		protocol.MethodCallTool:   `{"content":[{"type":"text","text":"` + text + `"}]}`,
	})
	session := openFake(t, s, client.Options{ProtocolVersion: protocol.LatestLegacy, Middleware: []client.Middleware{through}})
	var kept [many]*protocol.CallToolResult
	before := held()
	for i := range kept {
		var err error
		if kept[i], err = session.CallTool(t.Context(), &protocol.CallToolParams{Name: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if each := (held() - before) / many; each > size*3/2 {
		t.Errorf("a result of %d bytes keeps %d", size, each)
	}
	runtime.KeepAlive(kept)
}

// spent is what work allocates each time.
type spent struct{ allocs, bytes float64 }

func (s spent) String() string { return fmt.Sprintf("%.2f allocations, %.0f bytes", s.allocs, s.bytes) }

func (s spent) check(t *testing.T, most spent) {
	t.Helper()
	if t.Log(s); s.allocs > most.allocs || s.bytes > most.bytes {
		t.Errorf("%v, want %v at most", s, most)
	}
}

func (s spent) orLess(o spent) spent { return spent{min(s.allocs, o.allocs), min(s.bytes, o.bytes)} }

// by shares what was spent among many.
func (s spent) by(many int) spent { return spent{s.allocs / float64(many), s.bytes / float64(many)} }

// spentBy does work so many times, one after the other.
func spentBy(t *testing.T, times int, work func() error) spent {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		if err := work(); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	each := func(before, after uint64) float64 { return float64(after-before) / float64(times) }
	return spent{each(before.Mallocs, after.Mallocs), each(before.TotalAlloc, after.TotalAlloc)}
}
