package guardian

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A schedule arrives as it was sent.
func TestSchedulesAreEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t)
		if got := decodeSchedule([scheduleSize]byte(s.encode())); got != s {
			t.Fatalf("got %+v, want %+v", got, s)
		}
	})
}

func drawSchedule(t *rapid.T) schedule {
	return schedule{rapid.Int64().Draw(t, "ask"), rapid.Int64().Draw(t, "kill"), rapid.Bool().Draw(t, "closing")}
}

// Whatever the deadline, SIGTERM comes before SIGKILL, by a tenth of the time and at most a
// second, and SIGKILL not after the deadline.
//
// Guarantees: G-0079.1
func TestSchedulesOfDeadlines(t *testing.T) {
	for _, c := range []struct {
		remaining time.Duration
		want      schedule
	}{
		{17 * time.Second, schedule{ask: 100 + int64(16*time.Second), kill: 100 + int64(17*time.Second)}},
		{time.Second, schedule{ask: 100 + int64(900*time.Millisecond), kill: 100 + int64(time.Second)}},
		{0, schedule{ask: 100, kill: 100}},
		{-time.Second, schedule{ask: 100 - int64(time.Second), kill: 100 - int64(time.Second)}},
		{math.MaxInt64, schedule{ask: math.MaxInt64 - int64(time.Second) + 100, kill: math.MaxInt64}},
	} {
		if got := byDeadline(100, c.remaining); got != c.want {
			t.Errorf("%v: got %+v, want %+v", c.remaining, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		now, remaining := rapid.Int64Min(0).Draw(t, "now"), time.Duration(rapid.Int64().Draw(t, "remaining"))
		s := byDeadline(now, remaining)
		if s.ask > s.kill || s.kill < now && remaining > 0 || s.next(now, false) < 0 || s.next(now, true) < s.next(now, false) {
			t.Fatalf("got %+v", s)
		}
	})
}

// The sooner of two schedules is never later than either.
func TestTheSoonerScheduleCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSchedule(t), drawSchedule(t)
		s := a.sooner(b)
		if s != b.sooner(a) || s.ask != min(a.ask, b.ask) || s.kill != min(a.kill, b.kill) || s.closing != (a.closing || b.closing) {
			t.Fatalf("got %+v of %+v and %+v", s, a, b)
		}
	})
}
