package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
)

// An account is how a call ended.
type account struct {
	cause    conn.Cause
	delivery conn.Delivery
}

func (a account) String() string { return fmt.Sprintf("%s (%s)", a.cause, a.delivery) }

// accounts are all that there can be, in order.
func accounts() (all []account) {
	for _, cause := range conn.Causes() {
		for _, delivery := range conn.Deliveries() {
			all = append(all, account{cause, delivery})
		}
	}
	return all
}

// books are what callers were told, once for each call. Handshakes are callers
// too, and kept apart.
type books struct {
	mu         sync.Mutex
	told       map[account]uint64
	handshakes map[account]uint64
	strange    error // an outcome that is no *conn.CallError
}

func newBooks() *books {
	return &books{told: make(map[account]uint64), handshakes: make(map[account]uint64)}
}

// hooks enter the calls of handshakes.
func (b *books) hooks() telemetry.Hooks {
	return telemetry.Hooks{RequestStopped: func(_ context.Context, e telemetry.RequestStopped) {
		if e.Method == protocol.MethodInitialize || e.Method == protocol.MethodDiscover {
			b.add(b.handshakes, e.Err)
		}
	}}
}

// enter enters how one call ended, as its caller was told.
func (b *books) enter(err error) account { return b.add(b.told, err) }

func (b *books) add(to map[account]uint64, err error) account {
	b.mu.Lock()
	defer b.mu.Unlock()
	how := account{conn.Answered, conn.Sent}
	if err != nil {
		var call *conn.CallError
		if !errors.As(err, &call) {
			b.strange = err
			return account{}
		}
		how = account{call.Cause, call.Delivery}
	}
	to[how]++
	return how
}

// answered is how many callers got a result.
func (b *books) answered() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told[account{conn.Answered, conn.Sent}]
}

// statsOf are the Conns' own books.
func statsOf(sessions []*client.Session) []conn.Stats {
	stats := make([]conn.Stats, len(sessions))
	for i, s := range sessions {
		stats[i] = s.Conn().Stats()
	}
	return stats
}

// balance holds the callers' book against those of the Conns: every call has
// ended exactly once, in the way its caller was told.
func (b *books) balance(stats []conn.Stats) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var wrong []error
	if b.strange != nil {
		wrong = append(wrong, fmt.Errorf("books: a caller was told something strange: %w", b.strange))
	}
	var made, ended uint64
	settled := make(map[account]uint64)
	for _, s := range stats {
		made, ended = made+s.Calls, ended+s.Ended()
		for cause, byDelivery := range s.Settled {
			for delivery, n := range byDelivery {
				settled[account{cause, delivery}] += n
			}
		}
	}
	if made != ended {
		wrong = append(wrong, fmt.Errorf("books: %d calls were made, and %d have ended", made, ended))
	}
	for _, how := range accounts() {
		if told := b.told[how] + b.handshakes[how]; settled[how] != told {
			wrong = append(wrong, fmt.Errorf("books: %v: %d calls ended so, %d callers were told so", how, settled[how], told))
		}
	}
	return errors.Join(wrong...)
}

// String is a row for each way in which calls have ended.
func (b *books) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var text strings.Builder
	for _, how := range accounts() {
		if told, handshakes := b.told[how], b.handshakes[how]; told+handshakes > 0 {
			fmt.Fprintf(&text, "   %-24v %9s calls %9s handshakes\n", how, count(int(told)), count(int(handshakes)))
		}
	}
	return strings.TrimSuffix(text.String(), "\n")
}
