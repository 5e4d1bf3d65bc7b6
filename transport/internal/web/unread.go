package web

import (
	"sync/atomic"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/transport"
)

// SmallMessage is the size up to which a message counts for a separate pool, so that large
// messages never cause the refusal of a small one.
const SmallMessage = 64 << 10

// shortMessage is the size up to which a message without room waits with its sender. A longer one would take memory meanwhile.
const shortMessage = 1 << 10

// FrameOverhead is added to the bytes of each queued message: the memory of its entry.
const FrameOverhead = 256

// Unread are the pools of messages that wait to be written to clients. A client that reads slowly holds them for
// long.
type Unread struct{ Small, Large *share.Pool }

// Of returns the pool for a message to a client, and how many bytes it counts: at most as many as the client ever
// gets, so that no message is too large for it.
func (u *Unread) Of(of share.Client, frame []byte) (*share.Pool, int) {
	if len(frame) > SmallMessage {
		return u.Large, u.Large.Fit(of, len(frame)+FrameOverhead)
	}
	return u.Small, len(frame) + FrameOverhead
}

// Take takes room for a message until Give. Without room it fails: with transport.ErrBusy if the message is so short that it may wait with its
// sender, and else with transport.ErrNoRoom.
func (u *Unread) Take(of share.Client, frame []byte) error {
	pool, bytes := u.Of(of, frame)
	switch {
	case pool.Take(of, bytes):
		return nil
	case len(frame) <= shortMessage:
		return transport.ErrBusy
	default:
		return transport.ErrNoRoom
	}
}

// Give gives back what Take has taken.
func (u *Unread) Give(of share.Client, frame []byte) {
	pool, bytes := u.Of(of, frame)
	pool.Give(of, bytes)
}

// TakeRoom takes bytes of a pool for a message, while it is served. It returns nil if there is no room.
func TakeRoom(pool *share.Pool, of share.Client, bytes int) transport.Room {
	if !pool.Take(of, bytes) {
		return nil
	}
	r := &room{pool: pool, of: of}
	r.bytes.Store(int64(bytes))
	return r
}

// A room is what a message takes of a pool while it is served.
type room struct {
	pool  *share.Pool
	of    share.Client
	bytes atomic.Int64 // 0 once they were given back
}

// Release implements transport.Room.
func (r *room) Release() { r.pool.Give(r.of, int(r.bytes.Swap(0))) }
