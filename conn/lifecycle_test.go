package conn_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
)

// A thousand Conns that lose their server at the same moment reconnect evenly spread over the jitter.
// The test counts their attempts in twenty parts of the 200 ms. Its bounds are exceeded by chance
// once in a hundred million runs.
//
// Guarantees: G-0001.4
func TestReconnectsAfterACommonLossAreSpread(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const many, parts, from, width = 1000, 20, time.Second, 200 * time.Millisecond
		links, opened, attempts := make([]*script, many), make([]int, many), make(chan time.Time, many)
		var runs []run
		for i := range many {
			runs = append(runs, start(conn.New(opening(func(context.Context) (transport.Link, error) {
				if opened[i]++; opened[i] > 1 {
					attempts <- time.Now()
				}
				links[i] = new(script)
				return links[i], nil
			}), conn.Options{})))
		}
		synctest.Wait()
		lost := time.Now()
		for _, link := range links {
			link.lose(transport.Loss{Reason: errors.New("the server is gone")})
		}
		advance(from + width)
		if len(attempts) != many {
			t.Fatalf("%d attempts were made within %v, want %d", len(attempts), from+width, many)
		}
		var histogram [parts]int
		for range many {
			after := (<-attempts).Sub(lost)
			if after < from {
				t.Fatalf("an attempt was made after %v, want %v at least", after, from)
			}
			histogram[min((after-from)*parts/width, parts-1)]++
		}
		t.Logf("attempts in parts of %v from %v on: %v", width/parts, from, histogram)
		const mean = float64(many) / parts
		unevenness := 0.0 // chi-square with parts-1 degrees of freedom
		for part, n := range histogram {
			if math.Abs(float64(n)-mean) > 6*math.Sqrt(mean) {
				t.Errorf("%d attempts in part %d, want about %v", n, part, mean)
			}
			unevenness += (float64(n) - mean) * (float64(n) - mean) / mean
		}
		if unevenness > 80 {
			t.Errorf("chi-square is %.1f, want 80 at most", unevenness)
		}
		for _, r := range runs {
			r.Stop()
			<-r.ended
		}
	})
}
