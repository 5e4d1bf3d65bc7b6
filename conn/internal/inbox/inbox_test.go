package inbox

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A notification is an item whose name is that of a test.
type notification struct {
	name, key string
	droppable bool
	size      int
}

func (n notification) Name() string    { return n.name }
func (n notification) Key() string     { return n.key }
func (n notification) Droppable() bool { return n.droppable }
func (n notification) Size() int       { return n.size }

// newQueue returns an empty inbox whose goroutine handles none until the test ends. The test takes
// them instead.
func newQueue(t interface{ Cleanup(func()) }, bound, bytes int) *Inbox[notification] {
	n, done := New[notification](bound, bytes, nil), make(chan struct{})
	n.worker.Start(func() (more bool) { <-done; return false })
	t.Cleanup(func() { close(done) })
	return n
}

// newNotification returns a notification with the given name.
func newNotification(name, key string, droppable bool, size int) notification {
	return notification{name, key, droppable, size}
}

// names returns the names of the notifications that wait, oldest first.
func (n *Inbox[T]) names() string { return namesOf(n.waiting()) }

func namesOf[T Item](of []T) string {
	var names []string
	for _, in := range of {
		names = append(names, in.Name())
	}
	return strings.Join(names, " ")
}

// If there is no room, first a notification is dropped that a newer one with its key replaces, then
// the oldest droppable one, and last the one that comes in.
//
// Guarantees: G-0006.2
func TestSheddingOrder(t *testing.T) {
	plain := func(name string) notification { return newNotification(name, "", false, 1) }
	log := func(name string) notification { return newNotification(name, "", true, 1) }
	keyed := func(key, name string) notification { return newNotification(name, key, false, 1) }
	for name, c := range map[string]struct {
		given      []notification
		shed, left string
	}{
		"there is room":                        {[]notification{plain("a"), log("b"), keyed("k", "c")}, "", "a b c"},
		"newer takes the place of the older":   {[]notification{keyed("k", "a"), plain("b"), log("c"), keyed("k", "d")}, "a", "d b c"},
		"superseded ones go before logs":       {[]notification{log("a"), keyed("k", "b"), keyed("k", "c"), plain("d")}, "b", "a c d"},
		"the oldest log goes":                  {[]notification{plain("a"), log("b"), log("c"), plain("d")}, "b", "a c d"},
		"a new log goes if there is no other":  {[]notification{plain("a"), plain("b"), plain("c"), log("d")}, "d", "a b c"},
		"the new one goes if no other may":     {[]notification{plain("a"), plain("b"), plain("c"), plain("d")}, "d", "a b c"},
		"other keys are independent":           {[]notification{keyed("k", "a"), keyed("l", "b"), keyed("m", "c"), keyed("k", "d")}, "a", "d b c"},
		"a key is replaced twice":              {[]notification{keyed("k", "a"), plain("b"), plain("c"), keyed("k", "d"), keyed("k", "e")}, "a d", "e b c"},
		"both older ones go before the newest": {[]notification{keyed("k", "a"), keyed("k", "b"), keyed("k", "c"), plain("d"), plain("e")}, "a b", "c d e"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newQueue(t, 3, 100)
			var shed []notification
			for _, in := range c.given {
				gone, _ := n.Add(in)
				shed = append(shed, gone...)
			}
			if got := namesOf(shed); got != c.shed || n.names() != c.left {
				t.Errorf("shed %q, left %q; want %q, %q", got, n.names(), c.shed, c.left)
			}
		})
	}
}

// The notifications that wait have at most boundSize bytes together, but a single one may have more.
//
// Guarantees: G-0004.6
func TestBytesOfNotificationsAreBounded(t *testing.T) {
	n := newQueue(t, 10, 10)
	n.Add(newNotification("a", "", false, 100)) // a single one may have any size
	if shed, _ := n.Add(newNotification("b", "", false, 1)); namesOf(shed) != "b" {
		t.Fatalf("shed %q, want \"b\"", namesOf(shed))
	}
	n.next()
	n.Add(newNotification("c", "", true, 6))
	n.Add(newNotification("d", "", true, 4))
	if shed, _ := n.Add(newNotification("e", "", false, 9)); namesOf(shed) != "c d" || n.names() != "e" {
		t.Fatalf("shed %q, left %q; want \"c d\", \"e\"", namesOf(shed), n.names())
	}
}

// A queue reports that it is crowded when half of its count or bytes wait, and that this has eased
// when a quarter does. It reports each change once.
//
// Guarantees: G-0004.7
func TestCrowdedQueueReportsOnce(t *testing.T) {
	n := newQueue(t, 8, 100)
	for i := range 4 {
		if _, crowded := n.Add(newNotification("a", "", false, 1)); crowded != (i == 3) {
			t.Fatalf("with %d: crowded %v, want %v", i+1, crowded, i == 3)
		}
	}
	if _, crowded := n.Add(newNotification("a", "", false, 1)); crowded {
		t.Fatal("crowded was reported twice")
	}
	for left := 4; left > 2; left-- {
		if _, _, eased := n.next(); eased {
			t.Fatalf("eased with %d left, want at 2", left)
		}
	}
	n.next()
	if _, _, eased := n.next(); !eased {
		t.Fatal("not eased with 2 left")
	}
	if _, crowded := n.Add(newNotification("b", "", false, 60)); !crowded {
		t.Fatal("not crowded with 60 bytes of 100")
	}
	n.next()
	if _, _, eased := n.next(); eased {
		t.Fatal("eased with 60 bytes of 100 left")
	}
	if _, _, eased := n.next(); !eased {
		t.Fatal("not eased with nothing left")
	}
}

// When the notifications that still wait are dropped at the end, the counters begin again at zero.
//
// Guarantees: G-0006.4
func TestRemainingNotificationsAreShedAtTheEnd(t *testing.T) {
	n := newQueue(t, 4, 100)
	for range 3 {
		n.Add(newNotification("a", "k", false, 1))
	}
	if shed, _ := n.Settle(0); len(shed) != 3 {
		t.Fatalf("%d were shed, want 3", len(shed))
	}
	for range 6 {
		n.Add(newNotification("b", "k", false, 1))
	}
	if n.names() != "b b b b" || n.size != 4 || n.superfluous != 3 || !n.Many() {
		t.Fatalf("got %q of %d bytes, %d superfluous, crowded %v; want four of 4 bytes, 3, true",
			n.names(), n.size, n.superfluous, n.Many())
	}
}

// A notification with more than boundSize bytes is dropped itself if others wait, and no other is.
//
// Guarantees: G-0004.6
func TestTooLargeNotificationIsShedItself(t *testing.T) {
	n := newQueue(t, 10, 10)
	n.Add(newNotification("log", "", true, 1))
	if shed, _ := n.Add(newNotification("huge", "", false, 11)); namesOf(shed) != "huge" || n.names() != "log" {
		t.Fatalf("shed %q, left %q; want \"huge\", \"log\"", namesOf(shed), n.names())
	}
}

// A recorder handles a notification when the test lets it, and counts what it is told.
type recorder struct {
	proceed      chan struct{}
	eased, quiet int
}

func (r *recorder) Handle(notification) { <-r.proceed }
func (r *recorder) Eased()              { r.eased++ }
func (r *recorder) Quiet()              { r.quiet++ }

// The owner is told once for each time that it awaits quiet, and not before the last handler has returned.
func TestOwnerIsToldOfQuietOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{proceed: make(chan struct{})}
		n := New[notification](4, 100, r)
		if !n.AwaitQuiet() {
			t.Error("an empty inbox is not quiet")
		}
		handle := func(want int) {
			t.Helper()
			r.proceed <- struct{}{}
			synctest.Wait()
			if r.quiet != want {
				t.Errorf("the owner was told of quiet %d times, want %d", r.quiet, want)
			}
		}
		n.Add(newNotification("a", "", false, 1))
		n.Add(newNotification("b", "", false, 1))
		synctest.Wait()
		if n.AwaitQuiet() {
			t.Error("an inbox is quiet while a handler runs")
		}
		handle(0)
		handle(1)
		n.Add(newNotification("c", "", false, 1))
		synctest.Wait()
		handle(1)
		if !n.Idle() || r.eased != 1 {
			t.Errorf("idle: %v, told %d times that few wait; want true, once", n.Idle(), r.eased)
		}
	})
}

// For any arrivals: the bounds hold, nothing is dropped while there is room, those without a key are
// handled in the order of arrival, and the newest of a key is not dropped while a log waits.
//
// Guarantees: G-0004.5, G-0006.2, G-0006.3
func TestNotificationsAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := newQueue(rt, rapid.IntRange(1, 6).Draw(rt, "bound"), rapid.IntRange(1, 20).Draw(rt, "bytes"))
		newest, place := map[string]string{}, map[string]int{}
		var handled, shed []string
		arrivals := 0
		keyOf := map[string]string{}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				name := fmt.Sprint(arrivals)
				key := rapid.SampledFrom([]string{"", "k", "l"}).Draw(rt, "key")
				in := newNotification(name, key, key == "" && rapid.Bool().Draw(rt, "droppable"), rapid.IntRange(0, 8).Draw(rt, "size"))
				place[name], keyOf[name], arrivals = arrivals, key, arrivals+1
				newest[key] = name
				full := len(n.waiting()) >= n.bound || n.size+in.Size() > n.boundSize && len(n.waiting()) > 0
				others := slices.Clone(n.waiting())
				gone, _ := n.Add(in)
				if len(gone) > 0 != full {
					rt.Fatalf("shed %q, queue full: %v; want some exactly if it is full", namesOf(gone), full)
				}
				for _, g := range gone {
					shed = append(shed, g.name)
					if g.Size() <= n.boundSize && newest[g.key] == g.name && g.key != "" && slices.ContainsFunc(n.waiting(), func(o notification) bool { return o.droppable }) {
						rt.Fatalf("the newest of %q was shed before a log; %q waited when %q came",
							g.key, namesOf(others), name)
					}
				}
			},
			"next": func(rt *rapid.T) {
				if len(n.waiting()) > 0 {
					in, _, _ := n.next()
					handled = append(handled, in.name)
				}
			},
			"": func(rt *rapid.T) {
				if len(n.waiting()) > n.bound || n.size > n.boundSize && len(n.waiting()) > 1 {
					rt.Fatalf("%d wait with %d bytes, want %d with %d at most",
						len(n.waiting()), n.size, n.bound, n.boundSize)
				}
				size := 0
				for _, in := range n.waiting() {
					size += in.Size()
				}
				if size != n.size {
					rt.Fatalf("the counter has %d bytes, the notifications have %d; want the same", n.size, size)
				}
			},
		})
		for len(n.waiting()) > 0 {
			in, _, _ := n.next()
			handled = append(handled, in.name)
		}
		if len(handled)+len(shed) != arrivals {
			rt.Fatalf("%d came, %d were handled and %d shed; want each once", arrivals, len(handled), len(shed))
		}
		last := -1
		for _, name := range handled {
			if keyOf[name] == "" && place[name] < last {
				rt.Fatalf("handled %v, want the order of arrival", handled)
			} else if keyOf[name] == "" {
				last = place[name]
			}
		}
		if n.size != 0 || n.superfluous != 0 || n.droppable != 0 || len(n.keys) != 0 {
			rt.Fatalf("nothing waits, and the counters are %d, %d, %d, %v; want zero",
				n.size, n.superfluous, n.droppable, n.keys)
		}
	})
}

// Who waits for what has come so far waits neither for less nor for what comes later, whatever is dropped meanwhile.
//
// Guarantees: G-0006.5
func TestWaitingForWhatHasCome(t *testing.T) {
	n := newQueue(t, 4, 100)
	isOver := func(gone <-chan struct{}) bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	}
	if n.Gone() != nil {
		t.Error("an empty inbox makes wait")
	}
	n.Add(newNotification("a", "", false, 1))
	n.Add(newNotification("log", "", true, 1))
	n.Add(newNotification("b", "k", false, 1))
	before := n.Gone()
	n.Add(newNotification("c", "k", false, 1))
	n.Add(newNotification("d", "", false, 1)) // c takes the place of b
	n.Add(newNotification("e", "", false, 1)) // the log is dropped
	if n.names() != "a c d e" {
		t.Fatalf("%q wait", n.names())
	}
	for _, handled := range []string{"a", "c", "d"} {
		n.returned() // the one before has been handled
		n.next()
		if isOver(before) != (handled == "d") {
			t.Errorf("while %s is being handled: over %v", handled, isOver(before))
		}
	}
	if behind := n.Gone(); isOver(behind) {
		t.Error("nobody waits for the one that is being handled")
	} else if n.Settle(0); !isOver(behind) {
		t.Error("somebody waits for what was dropped at the end")
	}
}
