package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// What is kept of a task is what it says of itself, but for texts, unless that is too long.
//
// Guarantees: G-0094.3
func TestWhatIsKeptOfATask(t *testing.T) {
	const frame = `{"taskId":""}`
	long := func(bytes int) string { return `{"taskId":"` + strings.Repeat("x", bytes-len(frame)) + `"}` }
	for task, want := range map[string]string{
		`{"taskId":"a","statusMessage":"half","status":"working","_meta":{"x":1}}`: `{"taskId":"a","status":"working"}`,
		long(4 << 10):   long(4 << 10),
		long(4<<10 + 1): `{}`,
	} {
		if got := string(kept(json.RawMessage(task))); got != want {
			t.Errorf("of %.100s is kept %.100s, want %.100s", task, got, want)
		}
	}
}

// A task is kept as long as its server does, and for a day at most, also if it does not say so.
//
// Guarantees: G-0094.4
func TestHowLongATaskIsKept(t *testing.T) {
	const day = 24 * time.Hour
	for ttl, want := range map[string]time.Duration{
		"0": 0, "1": time.Millisecond, "60000": time.Minute, "86399999": day - time.Millisecond, "86400000": day, "86400001": day,
		"9223372036854775807": day, "9223372036854775808": day, "-1": day, "null": day, `"60000"`: day, "1.5": day, "{}": day,
	} {
		for _, member := range []string{"ttl", "ttlMs"} {
			if got := keptFor(fmt.Appendf(nil, `{"status":"working",%q:%s}`, member, ttl)); got != want {
				t.Errorf("with %s %s it is kept for %v, want %v", member, ttl, got, want)
			}
		}
	}
	if got := keptFor(json.RawMessage(`{"status":"working"}`)); got != day {
		t.Errorf("a task that does not say it is kept for %v", got)
	}
}
