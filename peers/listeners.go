package peers

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
)

// progressListeners contains the calls of a session that want progress, by token. The SDKs
// report the progress of all calls in one place, and sometimes after the call has ended.
type progressListeners struct {
	tokens  atomic.Int64
	byToken sync.Map // token → func()
}

// add returns the token to request progress with.
func (l *progressListeners) add(callback func()) (token string) {
	token = "token " + strconv.FormatInt(l.tokens.Add(1), 10)
	l.byToken.Store(token, callback)
	return token
}

func (l *progressListeners) notify(token any) {
	if callback, found := l.byToken.Load(token); found {
		callback.(func())()
	}
}

// An event may be set several times before await. Then await returns immediately, and the
// next await needs another set.
type event chan struct{}

func newEvent() event { return make(event, 1) }

func (n event) set() {
	select {
	case n <- struct{}{}:
	default: // the event is set already
	}
}

func (n event) await(ctx context.Context) error {
	select {
	case <-n:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
