package streamable_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// BenchmarkGoodClientUnderAttack measures the calls of a good client while another
// client uses as many resources as it can: repeated calls of a slow tool with 16 MiB,
// 128 small calls of that tool, and 1,024 requests to listen. It prints the 99th
// percentile, and for comparison the 99th percentile of as many calls without an
// attacker. The attacker runs in
// the same process and takes its share of the processors, too.
//
//	go test -run '^$' -bench GoodClientUnderAttack -benchtime 2000x ./transport/streamable
func BenchmarkGoodClientUnderAttack(b *testing.B) {
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	type text struct {
		Text string `json:"text"`
	}
	server.AddTool(s, protocol.Tool{Name: "echo"}, func(_ context.Context, in text) (string, error) { return in.Text, nil })
	server.AddTool(s, protocol.Tool{Name: "slow"}, func(ctx context.Context, _ text) (string, error) {
		patience := time.NewTimer(2 * time.Second)
		defer patience.Stop()
		select {
		case <-patience.C:
		case <-ctx.Done():
		}
		return "", ctx.Err()
	})
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{
		MaxBody:  17 << 20,
		Identify: func(r *http.Request) string { return r.Header.Get("X-User") },
	})
	site := httptest.NewServer(endpoint)
	defer site.Close()
	defer endpoint.Close(0)
	defer s.Close(context.Background())
	ctx, stop := context.WithCancel(b.Context())

	good := attacker{b, ctx, site.URL, "good", site.Client()}
	small := bodyOf("tools/call", "echo", 64)
	calls := func(n int) (p50, p99 time.Duration) {
		took := make([]time.Duration, n)
		for i := range took {
			begun := time.Now()
			if status := good.call("tools/call", "echo", small); status != 200 {
				b.Fatalf("the good client got status %d, want 200", status)
			}
			took[i] = time.Since(begun)
		}
		slices.Sort(took)
		return took[n/2], took[n*99/100]
	}
	n := max(b.N, 100)
	calls(100) // warm-up
	idle50, idle99 := calls(n)

	evil := attacker{b, ctx, site.URL, "evil", &http.Client{Transport: new(http.Transport)}}
	var attack sync.WaitGroup
	again := func(clients int, method, name string, size int) {
		body := bodyOf(method, name, size)
		for range clients {
			attack.Go(func() {
				for ctx.Err() == nil {
					if evil.call(method, name, body) == http.StatusServiceUnavailable {
						pause(ctx, time.Second) // Retry-After is a second
					}
				}
			})
		}
	}
	again(4, "tools/call", "slow", 16<<20)
	again(128, "tools/call", "slow", 64)
	again(1024, "subscriptions/listen", "", 0)
	pause(ctx, time.Second) // until the attack has begun
	b.ResetTimer()
	under50, under99 := calls(n)
	b.StopTimer()
	stop()
	attack.Wait()
	us := func(d time.Duration) float64 { return float64(d.Microseconds()) }
	b.ReportMetric(us(idle50), "idle-p50-µs")
	b.ReportMetric(us(idle99), "idle-p99-µs")
	b.ReportMetric(us(under50), "attacked-p50-µs")
	b.ReportMetric(us(under99), "attacked-p99-µs")
	b.ReportMetric(us(under99)/us(idle99), "p99-ratio")
}

func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// An attacker makes modern calls as a given user.
type attacker struct {
	b    *testing.B
	ctx  context.Context
	url  string
	user string
	http *http.Client
}

// bodyOf returns a modern call with a text of the given size.
func bodyOf(method, name string, size int) string {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	params := `"notifications":{"toolsListChanged":true},`
	if name != "" {
		params = fmt.Sprintf(`"name":%q,"arguments":{"text":"%s"},`, name, strings.Repeat("x", size))
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s%s}}`, method, params, meta)
}

// call makes a call, reads its response and returns the status, or 0 without a
// response.
func (a attacker) call(method, name, body string) int {
	r, err := http.NewRequestWithContext(a.ctx, "POST", a.url, strings.NewReader(body))
	if err != nil {
		a.b.Error(err)
		return 0
	}
	for header, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "X-User": a.user,
	} {
		r.Header.Set(header, value)
	}
	if name != "" {
		r.Header.Set("Mcp-Name", name)
	}
	response, err := a.http.Do(r)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // may be cut off at the end
	return response.StatusCode
}
