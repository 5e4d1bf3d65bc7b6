//bowline:pure

package guardian

import (
	"encoding/binary"
	"math"
	"time"
)

// A schedule says when the processes of a server are asked to end, and when they are killed:
// times on the clock of the machine, in nanoseconds. It is the only message that a program
// sends to a guardian. Each replaces the one before.
type schedule struct {
	ask, kill int64
	closing   bool // somebody has closed the link; otherwise it is a deadline
}

const (
	scheduleSize = 17 // bytes

	// orphanGrace is the time between SIGTERM and SIGKILL when the program has ended.
	orphanGrace = time.Second

	// maxAskBefore is the longest time between SIGTERM and a deadline.
	maxAskBefore = time.Second
)

// never is the schedule of a guardian that has no deadline.
func never() schedule { return schedule{ask: math.MaxInt64, kill: math.MaxInt64} }

// byDeadline returns the schedule for a deadline that is that far from now.
func byDeadline(now int64, remaining time.Duration) schedule {
	before := min(max(remaining, 0)/10, maxAskBefore)
	return schedule{ask: after(now, remaining-before), kill: after(now, remaining)}
}

// byGrace returns the schedule for a link that is closed with a grace (transport.Link).
func byGrace(now int64, grace time.Duration) schedule {
	grace = max(grace, 0)
	return schedule{ask: after(now, grace/10*3), kill: after(now, grace/10*7), closing: true}
}

// byOrphan returns the schedule for a server whose program has ended.
func byOrphan(now int64) schedule { return schedule{ask: now, kill: after(now, orphanGrace)} }

// after returns the time that is d after now, or the last time that there is.
func after(now int64, d time.Duration) int64 {
	if then := now + int64(d); d < 0 || then >= now {
		return then
	}
	return math.MaxInt64
}

// sooner returns the earlier of both times of two schedules.
func (s schedule) sooner(other schedule) schedule {
	return schedule{min(s.ask, other.ask), min(s.kill, other.kill), s.closing || other.closing}
}

// next returns how long nothing has to be done.
func (s schedule) next(now int64, asked bool) time.Duration {
	due := s.kill
	if !asked {
		due = min(s.ask, s.kill)
	}
	return time.Duration(max(due, now) - now)
}

func (s schedule) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, scheduleSize), uint64(s.ask))
	b = binary.BigEndian.AppendUint64(b, uint64(s.kill))
	if s.closing {
		return append(b, 1)
	}
	return append(b, 0)
}

func decodeSchedule(b [scheduleSize]byte) schedule {
	return schedule{
		ask:     int64(binary.BigEndian.Uint64(b[:8])),
		kill:    int64(binary.BigEndian.Uint64(b[8:16])),
		closing: b[16] != 0,
	}
}
