package web

import "github.com/bowline-mcp/bowline/internal/share"

// SmallMessage is the size up to which a message counts for a separate pool, so that large
// messages never cause the refusal of a small one.
const SmallMessage = 64 << 10

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
