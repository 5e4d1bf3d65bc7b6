package shared

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/names"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// A memory is a Store of which reads may be old.
type memory struct {
	mu       sync.Mutex
	values   map[string][]byte
	numbers  map[string]uint64
	old      map[string][]byte // what Load shows while it is late; nil: it is not
	away     bool
	watchers []chan []byte
	saves    int
}

var errAway = errors.New("away")

func newMemory() *memory {
	return &memory{values: make(map[string][]byte), numbers: make(map[string]uint64)}
}

func (m *memory) Load(_ context.Context, key string) ([]byte, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.away:
		return nil, 0, errAway
	case m.old[key] != nil:
		return m.old[key], m.numbers[key] - 1, nil
	}
	return m.values[key], m.numbers[key], nil
}

func (m *memory) Save(_ context.Context, key string, value []byte, number uint64) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.away:
		return false, errAway
	case m.numbers[key] != number:
		m.old = nil // the view is newer by the next attempt
		return false, nil
	}
	m.values[key], m.numbers[key], m.saves = value, number+1, m.saves+1
	for _, w := range m.watchers {
		w <- value
	}
	return true, nil
}

func (m *memory) counts() (values, saves int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.values), m.saves
}

func (m *memory) Watch(ctx context.Context, f func([]byte)) error {
	heard := make(chan []byte, 1000)
	m.mu.Lock()
	if m.away {
		m.mu.Unlock()
		return errAway
	}
	for _, value := range m.values {
		heard <- value
	}
	heard <- nil
	m.watchers = append(m.watchers, heard)
	m.mu.Unlock()
	for {
		select {
		case value := <-heard:
			f(value)
		case <-ctx.Done():
			return nil
		}
	}
}

var server = catalogue.Server{Name: "s", Identity: "i", Pins: catalogue.Block, Shared: true}

// of returns what one gateway has, with the store.
func of(t *testing.T, store Store) *Shared {
	t.Helper()
	plan, _ := names.Make(0, []names.Server{{Name: "s"}})
	known := catalogue.New()
	known.Apply(plan, []catalogue.Server{server})
	s := New(store, known, slog.New(slog.DiscardHandler))
	s.Learned, s.IsAway = func(catalogue.Kind) {}, func(string) bool { return true }
	t.Cleanup(s.Close)
	return s
}

// left returns of how many servers something is to be done.
func (s *Shared) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.work)
}

func tools(texts map[string]string) (list catalogue.List) {
	for name, text := range texts {
		list.Entries = append(list.Entries, json.RawMessage(fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, name, text)))
	}
	return list
}

func (s *Shared) lists(t *testing.T, texts map[string]string) {
	t.Helper()
	list := tools(texts)
	s.Pin(t.Context(), server, list)
	s.known.Learn(server, catalogue.Tools, list)
}

// A view of the store that is late does not bring back pins that were replaced.
func TestAnOldViewOfThePins(t *testing.T) {
	store := newMemory()
	a, b := of(t, store), of(t, store)
	a.lists(t, map[string]string{"t": "reads"})
	old := map[string][]byte{}
	for key, value := range store.values {
		old[key] = bytes.Clone(value)
	}
	b.lists(t, map[string]string{"t": "obeys"})
	if err := b.Approve(t.Context(), server, b.known.Snapshot().Approval("s", "t")); err != nil {
		t.Fatal(err)
	}
	store.old = old
	b.lists(t, map[string]string{"t": "obeys"})
	if changed := b.known.Snapshot().Changed("s"); len(changed) > 0 {
		t.Errorf("by an old view, %v", changed)
	}
	store.old = old
	b.lists(t, map[string]string{"t": "obeys", "new": "reads"})
	a.lists(t, map[string]string{"t": "reads", "new": "obeys"})
	if changed := a.known.Snapshot().Changed("s"); len(changed) != 2 {
		t.Errorf("what another has approved, and seen first, is taken for nothing: %v", changed)
	}
}

// A store that has lost its pins gets those that a gateway knows, and not what the tools are by now.
func TestAStoreThatHasLostItsPins(t *testing.T) {
	a := of(t, newMemory())
	a.lists(t, map[string]string{"t": "reads"})
	a.store = newMemory()
	a.lists(t, map[string]string{"t": "obeys"})
	if changed := a.known.Snapshot().Changed("s"); len(changed) != 1 {
		t.Errorf("what the tool is now counts as approved: %v", changed)
	}
}

// What is pinned in a store that has lost its pins is newer than what other gateways know from before.
func TestPinsAfterALossAreNewer(t *testing.T) {
	store := newMemory()
	a, b := of(t, store), of(t, store)
	a.lists(t, map[string]string{"t": "reads"})
	a.lists(t, map[string]string{"t": "reads", "u": "reads"})
	if err := b.learn(server); err != nil {
		t.Fatal(err)
	}
	clear(store.values)
	clear(store.numbers)
	a.lists(t, map[string]string{"t": "reads", "u": "reads", "v": "reads"})
	for _, value := range store.values {
		b.heard(value)
	}
	if sums := b.known.Snapshot().Sums(server); len(sums) != 3 {
		t.Errorf("another gateway knows the pins of %d tools, want 3", len(sums))
	}
}

// A list of a gateway whose connection is away is not told over a newer one. When it is back, it is.
func TestAnOldListIsToldWhenItsServerIsBack(t *testing.T) {
	store := newMemory()
	a, b := of(t, store), of(t, store)
	has := func() (entries int) {
		d, _, err := a.load(t.Context(), document{Server: server.Name, Identity: server.Identity, Kind: catalogue.Resources})
		if err != nil {
			t.Fatal(err)
		}
		return len(d.Entries)
	}
	tell := func(s *Shared, at time.Time, entries ...json.RawMessage) {
		s.known.Learn(server, catalogue.Resources, catalogue.List{At: at, Entries: entries})
		if err := s.tell(server, catalogue.Resources); err != nil {
			t.Fatal(err)
		}
	}
	one, two := json.RawMessage(`{"name":"n","uri":"file:///n"}`), json.RawMessage(`{"name":"m","uri":"file:///m"}`)
	now := time.Now()
	tell(b, now, one, two)
	tell(a, now.Add(-time.Hour), one)
	if has() != 2 {
		t.Error("an older list replaces a newer one")
	}
	a.IsAway = func(string) bool { return false }
	tell(a, now.Add(-time.Hour), one)
	if has() != 1 {
		t.Error("the list of a gateway that has a connection is not told")
	}
}

// A store that does not answer keeps nobody for longer than two seconds.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for about, act := range map[string]func() error{
			"an approval": func() error {
				return of(t, silent{newMemory()}).Approve(t.Context(), server, map[string]string{"t": "x"})
			},
			"a look for a list": func() error { return of(t, listless{newMemory()}).learn(server) },
		} {
			began := time.Now()
			if err := act(); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != patience {
				t.Errorf("%s has ended after %v with %v", about, time.Since(began), err)
			}
		}
	})
}

// A listless is a memory that has pins, and does not answer who asks for lists.
type listless struct{ *memory }

func (l listless) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	if key == (&document{Server: server.Name, Identity: server.Identity}).key() {
		return l.memory.Load(ctx, key)
	}
	<-ctx.Done()
	return nil, 0, ctx.Err()
}

// A silent is a memory that does not answer what is saved.
type silent struct{ *memory }

func (silent) Save(ctx context.Context, _ string, _ []byte, _ uint64) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

// A store that has lost a list gets it again from who has it, as soon as it has shown all that it has.
func TestAStoreThatHasLostAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		a := of(t, store)
		a.Begin()
		a.lists(t, map[string]string{"t": "reads"})
		a.Tell(server, catalogue.Tools)
		_ = wait.Sleep(t.Context(), time.Second)
		values, _ := store.counts()
		store.mu.Lock()
		clear(store.values)
		clear(store.numbers)
		store.mu.Unlock()
		a.heard(nil)
		_ = wait.Sleep(t.Context(), time.Second)
		if now, _ := store.counts(); values != 2 || now != values {
			t.Errorf("it had %d values, and gets %d again", values, now)
		}
		a.Close()
	})
}

// A gateway that knows one list of a server takes the others over from the store.
func TestTheOtherListsAreLearned(t *testing.T) {
	store := newMemory()
	a, b := of(t, store), of(t, store)
	list := catalogue.List{At: time.Now(), Entries: []json.RawMessage{json.RawMessage(`{"name":"n","uri":"file:///n"}`)}}
	a.known.Learn(server, catalogue.Resources, list)
	if err := a.tell(server, catalogue.Resources); err != nil {
		t.Fatal(err)
	}
	b.lists(t, map[string]string{"t": "reads"})
	if err := b.learn(server); err != nil {
		t.Fatal(err)
	}
	if _, known := b.known.Snapshot().ListOf(server, catalogue.Resources); !known {
		t.Error("it does not know the resources")
	}
}

// What is to be done about a server is about what the file says that it runs now, and what comes while something fails is not forgotten.
func TestWorkIsOfTheServerOfNow(t *testing.T) {
	store := newMemory()
	s := of(t, store)
	s.Tell(server, catalogue.Prompts)
	store.away = true
	s.Learn(server)
	s.lists(t, map[string]string{"t": "reads"})
	if done := s.do(&work{of: server, tell: map[catalogue.Kind]bool{catalogue.Tools: true}}); done || !s.work["s"].learn || !s.work["s"].tell[catalogue.Tools] {
		t.Errorf("done: %t, and to be done: %+v", done, s.work["s"])
	}
	other := server
	other.Identity = "another"
	if s.Learn(other); s.work["s"].of.Identity != other.Identity {
		t.Errorf("what it runs now has no work, but %s has", s.work["s"].of.Identity)
	}
}

// Many gateways pin and approve at the same time, and all agree in the end.
func TestManyPinAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		var all []*Shared
		for range 4 {
			s := of(t, store)
			s.Begin()
			all = append(all, s)
		}
		var group sync.WaitGroup
		for i, s := range all {
			group.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(i)))
				for range 20 {
					s.lists(t, map[string]string{"t": fmt.Sprint(r.IntN(3)), fmt.Sprint("t", r.IntN(9)): "reads"})
					if sums := s.known.Snapshot().Approval("s"); sums != nil {
						if err := s.Approve(t.Context(), server, sums); err != nil {
							t.Error(err)
						}
					}
					_ = wait.Sleep(t.Context(), time.Duration(r.IntN(10))*time.Millisecond)
				}
			})
		}
		group.Wait()
		synctest.Wait()
		for _, s := range all {
			s.lists(t, map[string]string{"t": "1"})
		}
		for _, s := range all[1:] {
			one, other := all[0].known.Snapshot().Sums(server), s.known.Snapshot().Sums(server)
			if fmt.Sprint(one) != fmt.Sprint(other) {
				t.Errorf("two disagree: %v and %v", one, other)
			}
		}
		for _, s := range all {
			s.Close()
		}
	})
}

// What could not be written is written later, and a list that the store has is not written again. One that is too long is left out.
func TestListsAreToldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		store.away = true
		a := of(t, store)
		a.Begin()
		list := tools(map[string]string{"t": "reads"})
		list.At = time.Now()
		a.Pin(t.Context(), server, list)
		a.known.Learn(server, catalogue.Tools, list)
		a.Tell(server, catalogue.Tools)
		_ = wait.Sleep(t.Context(), 2*retryEvery)
		if len(a.known.Snapshot().Items(catalogue.Tools)) != 0 {
			t.Error("a tool that the cluster has not pinned is offered")
		}
		store.mu.Lock()
		store.away = false
		store.mu.Unlock()
		_ = wait.Sleep(t.Context(), 2*retryEvery)
		values, saves := store.counts()
		if len(a.known.Snapshot().Items(catalogue.Tools)) != 1 || values != 2 {
			t.Errorf("when it is back, the store has %d values", values)
		}
		a.Tell(server, catalogue.Tools)
		_ = wait.Sleep(t.Context(), 2*retryEvery)
		if _, now := store.counts(); now != saves {
			t.Error("a list is written again")
		}
		for about, change := range map[string]func(){
			"that is for one user only from now on": func() { list.Private = true },
			"with another lifetime":                 func() { list.TTL = time.Hour },
		} {
			change()
			a.known.Learn(server, catalogue.Tools, list)
			a.Tell(server, catalogue.Tools)
			_ = wait.Sleep(t.Context(), time.Second)
			if _, now := store.counts(); now != saves+1 {
				t.Errorf("a list %s is not written again", about)
			}
			saves++
		}
		long := catalogue.List{At: time.Now()}
		for i := range 1000 {
			random := make([]byte, 1000)
			for j := range random {
				random[j] = byte('a' + rand.IntN(26))
			}
			long.Entries = append(long.Entries, json.RawMessage(fmt.Sprintf(`{"name":"n%d","uri":"file:///%d","description":%q}`, i, i, random)))
		}
		a.known.Learn(server, catalogue.Resources, long)
		a.Tell(server, catalogue.Resources)
		_ = wait.Sleep(t.Context(), 3*retryEvery+time.Second) // no attempt is just under way
		if _, now := store.counts(); now != saves {
			t.Error("a list that is too long is written")
		}
		if left := a.left(); left != 0 {
			t.Errorf("a list that is too long is tried again: %d servers are left", left)
		}
		b := of(t, store)
		b.Begin()
		_ = wait.Sleep(t.Context(), time.Second)
		if len(b.known.Snapshot().Items(catalogue.Tools)) != 1 {
			t.Error("another gateway does not know the list")
		}
		a.Close()
		b.Close()
	})
}

// A full is a memory that tells nobody of what it saves, and saves nothing of some servers.
type full struct {
	*memory
	of   map[string]bool
	hold chan struct{} // closed: s0 is saved at once
}

var errFull = errors.New("full")

func (f *full) Save(ctx context.Context, key string, value []byte, number uint64) (bool, error) {
	d, err := decode(value)
	if err != nil {
		return false, err
	}
	if d.Server == "s0" {
		<-f.hold
	}
	f.mu.Lock()
	refuses := f.of[d.Server]
	f.mu.Unlock()
	if refuses {
		return false, errFull
	}
	return f.memory.Save(ctx, key, value, number)
}

func (f *full) Watch(ctx context.Context, _ func([]byte)) error {
	<-ctx.Done()
	return nil
}

func (f *full) setOf(of map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of = of
}

// What fails of one server is done again, as often as it takes, and no server waits for another one's.
func TestOneOfManyServersFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []catalogue.Server
		var named []names.Server
		for i := range 8 {
			all = append(all, catalogue.Server{Name: fmt.Sprint("s", i), Identity: "i", Pins: catalogue.Block, Shared: true})
			named = append(named, names.Server{Name: all[i].Name})
		}
		store := &full{newMemory(), map[string]bool{"s3": true}, make(chan struct{})}
		s := of(t, store)
		plan, _ := names.Make(0, named)
		s.known.Apply(plan, all)
		s.Begin()
		_ = wait.Sleep(t.Context(), 2*retryEvery) // nothing is due any more
		has := func() (lists int) {
			store.mu.Lock()
			defer store.mu.Unlock()
			for _, value := range store.values {
				if d, err := decode(value); err == nil && d.Kind == catalogue.Tools {
					lists++
				}
			}
			return lists
		}
		for _, of := range all {
			list := tools(map[string]string{"t": "reads"})
			list.At = time.Now()
			s.known.Learn(of, catalogue.Tools, list)
			s.Tell(of, catalogue.Tools)
			synctest.Wait() // while the first is saved, the others come together
		}
		close(store.hold)
		_ = wait.Sleep(t.Context(), time.Second)
		if has() != 7 {
			t.Errorf("at once, the store has the lists of %d servers, want all but one", has())
		}
		_ = wait.Sleep(t.Context(), 4*retryEvery)
		store.setOf(nil)
		_ = wait.Sleep(t.Context(), retryEvery)
		if has() != 8 {
			t.Errorf("when it takes all, the store has the lists of %d servers", has())
		}
		s.Close()
	})
}

// What cannot be read changes nothing, however large it says it is.
func TestValuesThatCannotBeRead(t *testing.T) {
	future, err := (&document{Version: 2, Server: "s", Identity: "i", Pins: map[string]string{}}).encode()
	if err != nil {
		t.Fatal(err)
	}
	huge, err := (&document{Version: 1, Server: strings.Repeat(" ", maxDecoded)}).encode()
	if err != nil {
		t.Fatal(err)
	}
	s := of(t, newMemory())
	s.lists(t, map[string]string{"t": "reads"})
	before := s.known.Snapshot()
	for _, value := range [][]byte{{}, []byte("x"), future, huge} {
		if _, err := decode(value); err == nil {
			t.Errorf("%.20q is read", value)
		}
		s.heard(value)
	}
	if s.known.Snapshot() != before {
		t.Error("something has changed")
	}
}

// A list of another gateway waits for the pins: until they are known each of its tools would count as changed.
func TestListsWaitForPins(t *testing.T) {
	s := of(t, newMemory())
	list := document{Version: version, Server: "s", Identity: "i", Kind: catalogue.Tools, At: time.Now(), Entries: tools(map[string]string{"t": "reads"}).Entries}
	hear := func(d document) {
		value, err := d.encode()
		if err != nil {
			t.Fatal(err)
		}
		s.heard(value)
	}
	hear(list)
	if _, isKnown := s.known.Snapshot().ListOf(server, catalogue.Tools); isKnown {
		t.Error("the list is taken over before the pins")
	}
	if s.work["s"] == nil || !s.work["s"].learn {
		t.Error("it is not asked for later")
	}
	hear(document{Version: version, Server: "s", Identity: "i", Number: 1, Pins: catalogue.Seen(catalogue.List{Entries: list.Entries})})
	list.TTL = -time.Second // as no gateway says
	hear(list)
	if known, isKnown := s.known.Snapshot().ListOf(server, catalogue.Tools); !isKnown || known.TTL != 0 || known.Private {
		t.Errorf("after the pins the list is taken over: %t, with a lifetime of %v, private: %t", isKnown, known.TTL, known.Private)
	}
	list.Private, list.At = true, list.At.Add(time.Second)
	hear(list)
	if known, _ := s.known.Snapshot().ListOf(server, catalogue.Tools); !known.Private {
		t.Error("a list that is for one user only is for all")
	}
	list.Entries, list.At = nil, list.At.Add(-time.Hour)
	hear(list)
	if known, _ := s.known.Snapshot().ListOf(server, catalogue.Tools); len(known.Entries) != 1 {
		t.Error("an older list is taken over")
	}
}
