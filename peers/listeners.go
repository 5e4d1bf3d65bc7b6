package peers

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
)

// listeners has the calls that wait for progress, by token. The SDKs report the
// progress of all calls of a session in one place, and sometimes after the call
// has ended.
type listeners struct {
	tokens  atomic.Int64
	byToken sync.Map // token → func()
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

// A notice may be given several times before somebody waits for it. Then the
// wait ends at once, and the next wait needs another.
type notice chan struct{}

func newNotice() notice { return make(notice, 1) }

func (n notice) give() {
	select {
	case n <- struct{}{}:
	default: // the notice is given already
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
