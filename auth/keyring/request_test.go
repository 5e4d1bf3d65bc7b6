package keyring

import (
	"context"
	"encoding/base64"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zalando/go-keyring"
)

// A lockedRing waits in each Get until it is unlocked. It has one secret, under the names of the one Set.
type lockedRing struct {
	unlocked chan struct{}

	mu         sync.Mutex
	secret     string
	names      [2]string // of the program and the user
	gets, sets int
}

func (r *lockedRing) enter(count *int) {
	r.mu.Lock()
	*count++
	r.mu.Unlock()
	<-r.unlocked
}

func (r *lockedRing) Get(service, user string) (string, error) {
	r.enter(&r.gets)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.secret == "" || r.names != [2]string{service, user} {
		return "", keyring.ErrNotFound
	}
	return r.secret, nil
}

func (r *lockedRing) Set(service, user, secret string) error {
	r.enter(&r.sets)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secret, r.names = secret, [2]string{service, user}
	return nil
}

// want checks that the key is the one in the key ring.
func (r *lockedRing) want(t *testing.T, key []byte, err error) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || r.secret != base64.StdEncoding.EncodeToString(key) || r.sets != 1 {
		t.Errorf("the key is %x, %v, and not that of the key ring, after %d keys were created", key, err, r.sets)
	}
}

var errPatience = errors.New("the caller has lost patience")

// giveUp requests the key, and stops waiting after a second.
func giveUp(t *testing.T, k *keyLoader) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errPatience)
	defer cancel()
	if _, err := k.key(ctx); !errors.Is(err, errPatience) {
		t.Errorf("%v", err)
	}
}

// Of several calls that wait for the same answer, one stops waiting. The user is asked once, and each of the others gets a key of its own.
func TestCallsThatWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &lockedRing{unlocked: make(chan struct{})}
		k := &keyLoader{program: program, ring: r}
		var waits sync.WaitGroup
		keys, errs := make([][]byte, 3), make([]error, 3)
		for n := range keys {
			waits.Go(func() { keys[n], errs[n] = k.key(t.Context()) })
		}
		giveUp(t, k)
		synctest.Wait()
		if r.gets != 1 {
			t.Errorf("the user was asked %d times, want once", r.gets)
		}
		close(r.unlocked)
		waits.Wait()
		if r.gets != 3 || r.sets != 1 {
			t.Errorf("the key ring was asked %d times for a key, and got %d, want 3 and 1", r.gets, r.sets)
		}
		for n := range keys {
			r.want(t, keys[n], errs[n])
			clear(keys[n])
		}
	})
}

// If calls have stopped waiting, the user is still asked once, and the next call gets the key
// of the key ring.
func TestOneQuestionIsOpen(t *testing.T) {
	for name, next := range map[string]bool{"somebody waits": true, "nobody waits": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &lockedRing{unlocked: make(chan struct{})}
				k := &keyLoader{program: program, ring: r}
				for range 5 {
					giveUp(t, k)
				}
				synctest.Wait()
				if r.gets != 1 {
					t.Errorf("the user was asked %d times", r.gets)
				}
				var waits sync.WaitGroup
				if next {
					waits.Go(func() {
						key, err := k.key(t.Context())
						r.want(t, key, err)
					})
					synctest.Wait()
				}
				close(r.unlocked)
				waits.Wait()
				synctest.Wait()
				if !next && r.sets != 0 {
					t.Error("a key was created that no call waits for")
				}
				key, err := k.key(t.Context())
				r.want(t, key, err)
			})
		})
	}
}

// Nobody waits any more when the key ring says for the second time that there is no key. Then none is created.
func TestNoKeyForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &lockedRing{unlocked: make(chan struct{})}
		k := &keyLoader{program: program, ring: r}
		go func() { r.unlocked <- struct{}{} }() // the first answer
		giveUp(t, k)
		close(r.unlocked)
		synctest.Wait()
		if r.gets != 2 || r.sets != 0 {
			t.Errorf("the key ring was asked %d times for a key, and got %d, want 2 and none", r.gets, r.sets)
		}
	})
}

// A racingRing has no key for the first two calls of Get. The second Set waits until the first
// program has read its key.
type racingRing struct {
	lockedRing
	looked  sync.WaitGroup
	setting atomic.Int64
	read    chan struct{}
	once    sync.Once
}

func (r *racingRing) Get(service, user string) (string, error) {
	secret, err := r.lockedRing.Get(service, user)
	r.mu.Lock()
	early := r.gets <= 2 && err != nil
	r.mu.Unlock()
	if early {
		r.looked.Done()
		r.looked.Wait()
	}
	if err == nil {
		r.once.Do(func() { close(r.read) })
	}
	return secret, err
}

func (r *racingRing) Set(service, user, secret string) error {
	if r.setting.Add(1) == 1 {
		<-time.NewTimer(time.Second).C // the other looks again, if it can
	} else {
		<-r.read
	}
	return r.lockedRing.Set(service, user, secret)
}

// Programs with one name that create the first key at the same time get the same key, even if
// their logins are in different folders.
func TestOneKeyForOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &racingRing{lockedRing: lockedRing{unlocked: make(chan struct{})}, read: make(chan struct{})}
		close(r.unlocked)
		r.looked.Add(2)
		keys, errs := make([][]byte, 2), make([]error, 2)
		var all sync.WaitGroup
		for n := range keys {
			all.Go(func() { keys[n], errs[n] = (&keyLoader{program: "twice", ring: r}).key(t.Context()) })
		}
		all.Wait()
		for n := range keys {
			r.want(t, keys[n], errs[n])
		}
	})
}
