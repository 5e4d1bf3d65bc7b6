package gateway

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
)

// announcing runs a test with an announcer, and with a function that passes time and returns what was announced in it.
func announcing(t *testing.T, test func(t *testing.T, a *announcer, pass func(time.Duration) string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		began := time.Now()
		a := &announcer{announce: func(kinds []catalogue.Kind) { told = append(told, fmt.Sprint(time.Since(began), kinds)) }}
		test(t, a, func(d time.Duration) string {
			<-time.NewTimer(d).C
			synctest.Wait()
			defer func() { told = nil }()
			return fmt.Sprint(told)
		})
		a.close()
	})
}

// Lists that change together are announced once, when they have been quiet for a while, and a second after the last time.
//
// Guarantees: G-0088.7
func TestWhatIsAnnouncedTogether(t *testing.T) {
	announcing(t, func(t *testing.T, a *announcer, pass func(time.Duration) string) {
		a.add()
		if got := pass(10 * time.Second); got != "[]" {
			t.Errorf("nothing has changed, and %s is announced", got)
		}
		for i, c := range []struct {
			add  []catalogue.Kind
			then time.Duration
			want string
		}{
			{[]catalogue.Kind{catalogue.Resources}, 50 * time.Millisecond, "[]"},
			{[]catalogue.Kind{catalogue.Tools, ofRoots}, 100 * time.Millisecond, "[10.15s [tools resources roots]]"},
			{nil, 50 * time.Millisecond, "[]"},
			{[]catalogue.Kind{catalogue.Prompts}, 949 * time.Millisecond, "[]"},
			{nil, time.Millisecond, "[11.15s [prompts]]"},
			{nil, time.Minute, "[]"},
		} {
			a.add(c.add...)
			if got := pass(c.then); got != c.want {
				t.Errorf("%d: %s is announced, want %s", i, got, c.want)
			}
		}
	})
}

// Lists that change more often than they are quiet are announced after a second.
//
// Guarantees: G-0088.7
func TestListsThatAreNeverQuietAreAnnounced(t *testing.T) {
	announcing(t, func(t *testing.T, a *announcer, pass func(time.Duration) string) {
		var got string
		for range 25 {
			a.add(catalogue.Tools)
			if now := pass(60 * time.Millisecond); now != "[]" {
				got += now
			}
		}
		if want := "[1s [tools]]"; got != want {
			t.Errorf("in a second and a half %s is announced, want %s", got, want)
		}
	})
}

// What an announcer has not told when it closes is forgotten, and so is what changes later.
//
// Guarantees: G-0088.7
func TestAnAnnouncerThatIsClosed(t *testing.T) {
	announcing(t, func(t *testing.T, a *announcer, pass func(time.Duration) string) {
		a.add(catalogue.Tools)
		a.close()
		a.add(catalogue.Tools)
		if got := pass(time.Minute); got != "[]" {
			t.Errorf("after close %s is announced", got)
		}
	})
}

// Lists that change are read eight times without a wait, and then once a second, which the report says for as long as it is so. Who has not changed any for a while begins anew.
//
// Guarantees: G-0088.7
func TestHowOftenListsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e excess
		read := func(n int, want ...time.Duration) {
			t.Helper()
			for i := range n {
				began := time.Now()
				if !e.pace(t.Context()) {
					t.Fatal("it has ended")
				}
				if took, wanted := time.Since(began), want[min(i, len(want)-1)]; took != wanted {
					t.Errorf("reading %d waited %v, want %v", i+1, took, wanted)
				}
			}
		}
		slowed := func(want int) {
			t.Helper()
			if all := e.notices(nil); len(all) != want {
				t.Errorf("the notices are %q, want %d", all, want)
			}
		}
		read(8, 0)
		slowed(0)
		read(3, time.Second)
		slowed(1)
		<-time.NewTimer(time.Hour).C
		read(8, 0)
		slowed(0)
		read(1, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if e.pace(ctx) {
			t.Error("a session that has ended is read")
		}
		e.setEndless(catalogue.Tools, true)
		e.setEndless(catalogue.Prompts, true)
		if all, want := e.notices(nil), []string{"prompts: only the first 100 pages are read", "tools: only the first 100 pages are read", "its lists change all the time: they are read every 1s"}; !slices.Equal(all, want) {
			t.Errorf("the notices are %q, want %q", all, want)
		}
		e.setEndless(catalogue.Tools, false)
		slowed(2)
	})
}
