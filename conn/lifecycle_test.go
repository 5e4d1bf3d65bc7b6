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

// TestConnsThatLoseOneServerComeBackSpreadOut has a server go that a thousand
// Conns were on. It counts their next attempts in twenty parts of the fifth of
// a second that the jitter has. The bounds are those that chance exceeds once in
// a hundred million runs.
//
// Guarantees: G-0001.4
func TestConnsThatLoseOneServerComeBackSpreadOut(t *testing.T) {
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
			t.Fatalf("%d attempts were made within %v", len(attempts), from+width)
		}
		var histogram [parts]int
		for range many {
			after := (<-attempts).Sub(lost)
			if after < from {
				t.Fatalf("an attempt was made after %v", after)
			}
			histogram[min((after-from)*parts/width, parts-1)]++
		}
		t.Logf("attempts by %v from %v on: %v", width/parts, from, histogram)
		const mean = float64(many) / parts
		unevenness := 0.0 // chi-square with parts-1 degrees of freedom
		for part, n := range histogram {
			if math.Abs(float64(n)-mean) > 6*math.Sqrt(mean) {
				t.Errorf("%d attempts in part %d", n, part)
			}
			unevenness += (float64(n) - mean) * (float64(n) - mean) / mean
		}
		if unevenness > 80 {
			t.Errorf("the attempts are not spread evenly: %.1f", unevenness)
		}
		for _, r := range runs {
			r.Stop()
			<-r.ended
		}
	})
}
