package changes

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/bowline-mcp/bowline/internal/share"
)

// What a session has taken for subscriptions is given back whatever happens while the program decides: it refuses, it panics, or
// the session ends.
//
// Guarantees: G-0083.14
func TestRoomOfSubscriptionsIsGivenBack(t *testing.T) {
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		may          func(h *Hub, l *Listener) error
		added, ended bool
		err          error
	}{
		"allowed":  {func(*Hub, *Listener) error { return nil }, true, false, nil},
		"refused":  {func(*Hub, *Listener) error { return refused }, false, false, refused},
		"panics":   {func(*Hub, *Listener) error { panic(refused) }, false, false, refused},
		"ends":     {func(_ *Hub, l *Listener) error { l.End(); return nil }, false, true, nil},
		"is given": {func(h *Hub, l *Listener) error { l.End(); h.GiveAll(l); return nil }, false, true, nil},
	} {
		room, l := share.NewLasting(1<<20, 1<<20), new(Listener)
		h := NewHub(room)
		subscribe := func() (added, ended bool, err error) {
			defer func() {
				if recover() != nil {
					err = refused
				}
			}()
			return h.Subscribe(l, share.Client{Identity: "a"}, "x://a", func() error { return test.may(h, l) })
		}
		release, err := l.Claim(t.Context(), "x://a")
		if err != nil {
			t.Fatal(err)
		}
		added, ended, err := subscribe()
		release()
		if added != test.added || ended != test.ended || !errors.Is(err, test.err) {
			t.Errorf("%s: got %t, %t, %v, want %t, %t, %v", name, added, ended, err, test.added, test.ended, test.err)
		}
		if held := room.Held(); (held > 0) != test.added {
			t.Errorf("%s: %d bytes are held", name, held)
		}
		h.Unsubscribe(l, "x://a")
		l.End()
		h.GiveAll(l)
		if held := room.Held(); held != 0 {
			t.Errorf("%s: %d bytes are held at the end, want none", name, held)
		}
	}
}

// While the program decides on the subscriptions of a session that is continued, none of them is lost: those that are not decided
// are still subscriptions. If the request ends, the rest stays as it is, and is not decided later.
//
// Guarantees: G-0074.3
func TestSubscriptionsAreRestoredOneByOne(t *testing.T) {
	for name, end := range map[string]bool{"to the end": false, "until the request ends": true} {
		room, l := share.NewLasting(1<<20, 1<<20), new(Listener)
		h := NewHub(room)
		l.Await([]string{"a", "b", "c"})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var asked []string
		may := func(uri string) error {
			asked = append(asked, uri)
			if got, ended := l.Subscriptions(10); !slices.Contains(got, uri) || !slices.Contains(got, "c") || ended {
				t.Errorf("%s: while it decides on %s, the session has %q", name, uri, got)
			}
			if uri != "b" {
				return nil
			}
			if end {
				cancel()
			}
			return errors.New("refused")
		}
		r := h.Restore(ctx, l, share.Client{Identity: "a"}, may)
		again := h.Restore(ctx, l, share.Client{Identity: "a"}, may)
		got, _ := l.Subscriptions(10)
		slices.Sort(got)
		wantAsked, want, allowed := []string{"a", "b", "c"}, []string{"a", "c"}, 2
		if end {
			wantAsked, want, allowed = []string{"a", "b"}, []string{"a", "b", "c"}, 1
		}
		if held := room.Held(); held != allowed*(uriCost+len("a")) {
			t.Errorf("%s: %d bytes are held, want those of %d subscriptions", name, held, allowed)
		}
		if !slices.Equal(asked, wantAsked) || !slices.Equal(got, want) || r.Done == end || (r.Refused == 1) == end || again.Done {
			t.Errorf("%s: asked for %q, has %q, %+v and %+v, want %q and %q", name, asked, got, r, again, wantAsked, want)
		}
		for _, uri := range []string{"a", "b", "c"} { // nobody claims it any more
			release, err := l.Claim(t.Context(), uri)
			if err != nil {
				t.Fatal(err)
			}
			release()
		}
	}
}
