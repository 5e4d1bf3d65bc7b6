package peers

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
)

// listeners are whoever waits for progress, by token: the SDKs hand over what a
// session gets for all of its calls, and some of it after the call has ended.
type listeners struct {
	tokens  atomic.Int64
	byToken sync.Map // of func()
}

// add returns the token to ask for progress with.
func (l *listeners) add(told func()) (token string, remove func()) {
	token = "token " + strconv.FormatInt(l.tokens.Add(1), 10)
	l.byToken.Store(token, told)
	return token, func() { l.byToken.Delete(token) }
}

func (l *listeners) tell(token any) {
	if told, waits := l.byToken.Load(token); waits {
		told.(func())()
	}
}

// A notice is given any number of times, and awaited as one.
type notice chan struct{}

func newNotice() notice { return make(notice, 1) }

func (n notice) give() {
	select {
	case n <- struct{}{}:
	default: // it is given already
	}
}

func (n notice) await(ctx context.Context) error {
	select {
	case <-n:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
