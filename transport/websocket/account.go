package websocket

import (
	"errors"
	"time"

	ws "github.com/coder/websocket"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

const (
	maxLarge   = 32            // messages above web.SmallBody that are read at a time
	maxServed  = 64 << 20      // bytes of messages that are served
	mostServed = maxServed / 8 // what one of them counts at most: its client gets so much even when half of it is in use
	maxUnread  = 64 << 20      // bytes of messages that wait to be written, of those up to 64 KiB and of longer ones
)

// pools are what the clients of a Handler share.
type pools struct {
	large, served *share.Pool
	unread        web.Unread
}

func newPools() *pools {
	// shared: messages above 64 KiB over WebSocket | maxLarge places of HandlerOptions.MaxFrame | one | the message waits, 30 s at most, and its client is disconnected with status 1013 | –
	// shared: messages over WebSocket that are served | maxServed bytes | 64 KiB; one counts at most an eighth | the client is disconnected with status 1013 | –
	// shared: messages over WebSocket up to 64 KiB that wait to be written | maxUnread bytes | 64 KiB | an answer is dropped with -32051, and what has up to 1 KiB waits in its session | –
	// shared: longer messages over WebSocket | maxUnread bytes | 256 KiB | the answer is dropped with -32051 | –
	return &pools{
		large: share.New(maxLarge, 1, nil), served: share.NewLasting(maxServed, web.SmallBody),
		unread: web.Unread{Small: share.NewLasting(maxUnread, web.SmallMessage+web.FrameOverhead), Large: share.NewLasting(maxUnread, 256<<10)},
	}
}

// An account is what one client takes of the pools. A nil account, that of a client's link, takes nothing.
type account struct {
	*pools
	of share.Client
}

// awaitPlace takes a place for a large message, for which the caller calls read.
func (a *account) awaitPlace(stopped <-chan struct{}) error {
	if a == nil {
		return nil
	}
	claim := a.large.Claim(a.of, 1)
	if claim == nil {
		return nil
	}
	patience := time.NewTimer(web.BodyPatience)
	defer patience.Stop()
	failed := transport.ErrClosed
	select {
	case <-claim.Granted():
		return nil
	case <-patience.C:
		failed = &violation{errors.New("websocket: too many large messages wait to be read"), ws.StatusTryAgainLater}
	case <-stopped:
	}
	claim.Withdraw()
	return failed
}

// read gives back what awaitPlace has taken, if it has.
func (a *account) read(wasLarge bool) {
	if a != nil && wasLarge {
		a.large.Give(a.of, 1)
	}
}

// serve takes room for a message that is served now.
func (a *account) serve(bytes int) (transport.Room, error) {
	if a == nil {
		return nil, nil
	}
	taken := web.TakeRoom(a.served, a.of, min(bytes, mostServed))
	if taken == nil {
		return nil, &violation{errors.New("websocket: too much of the client is being served"), ws.StatusTryAgainLater}
	}
	return taken, nil
}

// write takes room for a message to the client.
func (a *account) write(frame []byte) error {
	if a == nil {
		return nil
	}
	return a.unread.Take(a.of, frame)
}

// written gives it back.
func (a *account) written(frame []byte) {
	if a != nil {
		a.unread.Give(a.of, frame)
	}
}
