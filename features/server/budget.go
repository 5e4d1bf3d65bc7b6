package server

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// A logBudget limits how many messages are sent.
// Each message that is sent adds its time to spent, and time that passes takes it away again. As long as spent would
// not exceed a second, a message may be sent: so many in a burst, and then as many as the rate allows.
type logBudget struct {
	mu      sync.Mutex
	spent   time.Duration // how far the messages are ahead of their rate; at most one second
	at      time.Time
	dropped droppedLogs
}

// droppedLogs count messages that were dropped: because there were too many, and because the
// connection was busy.
type droppedLogs struct{ many, busy int }

// text tells the client, which may not exceed the rate.
func (d droppedLogs) text(rate int) string {
	var why []string
	if d.many > 0 {
		why = append(why, fmt.Sprintf("there were more than %d a second", rate))
	}
	if d.busy > 0 {
		why = append(why, "the connection was busy")
	}
	return fmt.Sprintf("%d log messages were dropped: %s", d.many+d.busy, strings.Join(why, ", and "))
}

// giveBack counts messages as dropped that were not sent after all.
func (b *logBudget) giveBack(dropped droppedLogs) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropped.many += dropped.many
	b.dropped.busy += dropped.busy
}

// take reports whether a message may be sent, and how many were dropped before it.
func (b *logBudget) take(rate int) (ok bool, dropped droppedLogs) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if rate < 0 {
		dropped, b.dropped = b.dropped, droppedLogs{}
		return true, dropped
	}
	now, each := time.Now(), time.Second/time.Duration(rate)
	b.spent = max(0, b.spent-now.Sub(b.at))
	if b.at = now; b.spent+each > time.Second {
		b.dropped.many++
		return false, droppedLogs{}
	}
	b.spent += each
	dropped, b.dropped = b.dropped, droppedLogs{}
	return true, dropped
}
