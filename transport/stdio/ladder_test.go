package stdio

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Guarantees: G-0014.7
func TestLadderAsksAndForcesAtItsRungs(t *testing.T) {
	for _, test := range []struct {
		name       string
		grace, end time.Duration // end: when the peer goes
		want       []string
	}{
		{"goes by itself", 100 * time.Millisecond, 20 * time.Millisecond, []string{"done 20ms"}},
		{"goes when asked", 100 * time.Millisecond, 50 * time.Millisecond, []string{"ask 30ms", "done 50ms"}},
		{"goes when forced", 100 * time.Millisecond, 80 * time.Millisecond, []string{"ask 30ms", "force 70ms", "done 80ms"}},
		{"is not asked without grace", 0, time.Millisecond, []string{"force 0s", "done 1ms"}},
		{"is not asked with less", -time.Hour, time.Millisecond, []string{"force 0s", "done 1ms"}},
		{"never goes", time.Second, time.Hour, []string{"ask 300ms", "force 700ms", "given up 5.7s"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := climbed(test.grace, test.end); !slices.Equal(got, test.want) {
					t.Fatalf("got %q, want %q", got, test.want)
				}
			})
		})
	}
}

func climbed(grace, end time.Duration) (rungs []string) {
	start := time.Now()
	log := func(rung string) { rungs = append(rungs, fmt.Sprint(rung, " ", time.Since(start))) }
	done := make(chan struct{})
	timer := time.AfterFunc(end, func() { close(done) })
	defer timer.Stop()
	if climb(done, grace, func() { log("ask") }, func() { log("force") }) {
		log("done")
	} else {
		log("given up")
	}
	return rungs
}
