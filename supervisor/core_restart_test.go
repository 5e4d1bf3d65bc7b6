package supervisor

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// modelWithin is OTP's supervisor:add_restart/3: a restart counts if it is at most one period old. It
// returns how many count, and whether that is within the intensity.
func modelWithin(history []instant, intensity int, period time.Duration) (counted int, within bool) {
	now := history[len(history)-1]
	for _, restart := range history {
		if now <= restart+period {
			counted++
		}
	}
	return counted, counted <= intensity
}

// TestRestartArithmetic compares addRestart with the model, which never drops a restart, at random
// times. Steps of exactly one period are frequent.
//
// Guarantees: G-0002.4
func TestRestartArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		intensity := rapid.IntRange(-1, 5).Draw(t, "intensity")
		period := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(1, 20).Draw(t, "ms")) * time.Millisecond
		}).Draw(t, "period")
		now := instant(1)
		var recent, history []instant
		for range rapid.IntRange(1, 60).Draw(t, "restarts") {
			step := time.Duration(rapid.IntRange(0, 6).Draw(t, "step")) * period / 3
			now += step + time.Duration(rapid.IntRange(0, 1).Draw(t, "more"))
			history = append(history, now)
			var within bool
			recent, within = addRestart(recent, now, intensity, period)
			counted, want := modelWithin(history, intensity, period)
			if within != want || len(recent) != counted {
				t.Fatalf("at %v: within is %v with %d counted, want %v with %d", now, within, len(recent), want, counted)
			}
		}
	})
}

// A restart that is exactly one period old still counts.
//
// Guarantees: G-0002.4
func TestRestartAtTheEdge(t *testing.T) {
	first := 100 * time.Second
	for age, want := range map[time.Duration]bool{5 * time.Second: false, 5*time.Second + 1: true} {
		if _, within := addRestart([]instant{first}, first+age, 1, 5*time.Second); within != want {
			t.Errorf("a second restart %v after the first: within is %v, want %v", age, within, want)
		}
	}
}
