package conn_test

import (
	"context"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
)

// TestEveryHistoryOfAttempts deals every sequence of three fates to the attempts of
// a call that may be repeated, and of one that may not. TestRetriesKeepTheirPromises
// draws few of them: it hardly ever draws the three in a row that show a call made
// a third time, or forgotten to have been executed.
//
// Guarantees: G-0023.1, G-0023.2, G-0023.4
func TestEveryHistoryOfAttempts(t *testing.T) {
	some := []fate{answered, refused, lost, lostUnsent, streamLost, failedUnsent}
	for _, first := range some {
		for _, second := range some {
			for _, third := range some {
				for _, repeatable := range []bool{false, true} {
					bubble(t, func(t *testing.T) {
						var told []conn.Attempt
						request := conn.Request{
							Method: "buy", Retries: 3, Repeatable: repeatable,
							OnAttempt: func(a conn.Attempt) { told = append(told, a) },
						}
						r, f := fatedRun(t, conn.Options{}, first, second, third, refused)
						result, err := r.Call(context.Background(), request)
						r.Stop()
						<-r.ended
						checkAttempts(t, f, request)
						checkEnd(t, f, result, err, told)
					})
				}
			}
		}
	}
}
