package peers

import (
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
