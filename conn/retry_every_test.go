package conn_test

import (
	"context"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
)

// TestEverySequenceOfAttempts checks calls whose attempts end in every sequence of three outcomes, with
// and without Repeatable. TestRetriesFollowTheirPolicy draws random sequences, and so seldom the ones
// in which a call is made a third time, or an early attempt was executed.
//
// Guarantees: G-0023.1, G-0023.2, G-0023.4
func TestEverySequenceOfAttempts(t *testing.T) {
	some := []outcome{answered, refused, lost, lostUnsent, streamLost, failedUnsent}
	for _, first := range some {
		for _, second := range some {
			for _, third := range some {
				for _, repeatable := range []bool{false, true} {
					bubble(t, func(t *testing.T) {
						var reported []conn.Attempt
						request := conn.Request{
							Method: "buy", Retries: 3, Repeatable: repeatable,
							OnAttempt: func(a conn.Attempt) { reported = append(reported, a) },
						}
						r, f := runWithOutcomes(t, conn.Options{}, first, second, third, refused)
						result, err := r.Call(context.Background(), request)
						r.Stop()
						<-r.ended
						checkAttempts(t, f, request)
						checkEnd(t, f, result, err, reported)
					})
				}
			}
		}
	}
}
