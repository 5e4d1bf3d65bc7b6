package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// What errors and changes say, and what they wrap.
func TestTexts(t *testing.T) {
	c := open()
	for _, test := range []struct {
		said fmt.Stringer
		want string
	}{
		{registry.Change{Kind: registry.Added, Name: "n", Conn: c}, "n added"},
		{registry.Change{Kind: registry.Replaced, Name: "n", Conn: c}, "n replaced"},
		{registry.Change{Kind: registry.Removed, Name: "n", Conn: c, Err: errDown}, "n removed: the store is down"},
		{text{&registry.LostError{Name: "n"}}, `registry: name "n" is lost`},
		{text{&registry.LostError{Name: "n\n", Err: errDown}}, `registry: name "n\n" is lost: the store is down`},
		{refusal(t, ""), `registry: name "" is empty`},
		{refusal(t, strings.Repeat("x", 257)), `registry: name "` + strings.Repeat("x", 40) + `" has 257 bytes, more than 256`},
		{refusal(t, "a\xff"), `registry: name "a\xff" is not UTF-8`},
		{refusal(t, "a\nb"), `registry: name "a\nb" has characters that do not print`},
	} {
		if got := test.said.String(); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

type text struct{ error }

func (t text) String() string { return t.Error() }

// refusal returns the error of Register for a name.
func refusal(t *testing.T, name string) text {
	t.Helper()
	err := registry.New(registry.Options{}).Register(t.Context(), name, open())
	if !errors.As(err, new(*registry.NameError)) {
		t.Fatalf("%q: got %v, want a NameError", name, err)
	}
	return text{err}
}

// Register and Unregister say what they were to do, and wrap why they could not. An error that the Store defines is
// returned as it is.
//
// Guarantees: G-0013.13
func TestHowRegisterAndUnregisterFail(t *testing.T) {
	over, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	fails := func(err error) func(context.Context, registry.Claim) (registry.Release, error) {
		return func(context.Context, registry.Claim) (registry.Release, error) { return nil, err }
	}
	c := open()
	for name, test := range map[string]struct {
		store *scripted
		do    func(r *registry.Registry) error
		cause error
		want  string
	}{
		"the Store fails": {&scripted{claim: fails(errDown)}, func(r *registry.Registry) error { return r.Register(t.Context(), "n", c) },
			errDown, `registry: register "n": the store is down`},
		"the Store knows another holder": {&scripted{claim: fails(&registry.TakenError{Name: "n", Holder: "x"})}, func(r *registry.Registry) error { return r.Register(t.Context(), "n", c) },
			nil, `registry: name "n" is taken by "x"`},
		"the context of Register has ended": {new(scripted), func(r *registry.Registry) error { return r.Register(over, "n", c) },
			enough, `registry: register "n": enough`},
		"the release fails": {&scripted{release: func(context.Context) error { return errDown }}, func(r *registry.Registry) error {
			register(t, r, "n", c)
			return r.Unregister(t.Context(), "n", c)
		}, errDown, `registry: unregister "n": the store is down`},
		"the release of a closed Conn fails": {&scripted{release: func(context.Context) error { return errDown }}, func(r *registry.Registry) error {
			closed := open()
			register(t, r, "n", closed)
			finish(t, closed)
			return r.Register(t.Context(), "n", c)
		}, errDown, `registry: register "n": registry: unregister "n": the store is down`},
	} {
		err := test.do(registry.New(registry.Options{Store: test.store}))
		if err == nil || err.Error() != test.want || test.cause != nil && !errors.Is(err, test.cause) {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
}

// Who waits for an operation of somebody else with the same name gets the error of that operation, or the cause of its own
// context, and no name.
//
// Guarantees: G-0013.13
func TestWaitingForAnOperationThatFails(t *testing.T) {
	enough := errors.New("enough")
	for name, test := range map[string]struct {
		release func() error // what the Store does when the name is released
		cancel  bool         // the context of the one that waits ends meanwhile
		want    string
		is      error
	}{
		"it succeeds": {func() error { return nil }, false, "", nil},
		"it fails":    {func() error { return errDown }, false, `registry: unregister "n": the store is down`, errDown},
		"it panics":   {func() error { panic(errDown) }, false, `registry: unregister "n": registry: the store panicked`, nil},
		"no patience": {func() error { return nil }, true, `registry: unregister "n": enough`, enough},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				release := make(chan struct{})
				r := registry.New(registry.Options{Store: &scripted{release: func(context.Context) error { <-release; return test.release() }}})
				c := open()
				register(t, r, "n", c)
				go func() {
					defer func() { _ = recover() }()
					_ = r.Unregister(t.Context(), "n", c)
				}()
				synctest.Wait()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				waited := make(chan error, 1)
				go func() { waited <- r.Unregister(ctx, "n", c) }()
				if synctest.Wait(); len(waited) > 0 {
					t.Errorf("it did not wait, and got %v", <-waited)
				}
				if test.cancel {
					go func() {
						if err := r.Register(ctx, "n", open()); fmt.Sprint(err) != `registry: register "n": enough` || !errors.Is(err, enough) {
							t.Errorf("Register returned %v, want the cause of its context", err)
						}
					}()
					synctest.Wait()
					cancel(enough)
					synctest.Wait()
				}
				close(release)
				err := <-waited
				if got := fmt.Sprint(err); err == nil && test.want != "" || err != nil && got != test.want || test.is != nil && !errors.Is(err, test.is) {
					t.Errorf("got %v, want %s", err, test.want)
				}
				if synctest.Wait(); name != "it panics" { // the Store still has the name
					register(t, r, "n", open())
				}
			})
		})
	}
}
