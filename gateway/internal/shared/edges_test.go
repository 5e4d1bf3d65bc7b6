package shared

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/names"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// A gateway that knows newer pins than a store that was set back agrees with all others on what the store has.
func TestPinsOfAStoreThatWasSetBack(t *testing.T) {
	store := newMemory()
	a := of(t, store)
	a.lists(t, map[string]string{"t": "reads"})
	before := maps.Clone(store.values)
	a.lists(t, map[string]string{"t": "obeys"})
	if err := a.Approve(t.Context(), server, a.known.Snapshot().Approval("s", "t")); err != nil {
		t.Fatal(err)
	}
	store.values = before
	a.lists(t, map[string]string{"t": "obeys"})
	if changed := a.known.Snapshot().Changed("s"); len(changed) != 1 {
		t.Errorf("it goes on with pins that no other gateway learns of: %v", changed)
	}
}

// What runs something else under the same name, as another file says, is another server, with pins of its own.
func TestServersWithOneNameHavePinsOfTheirOwn(t *testing.T) {
	store := newMemory()
	a, b := of(t, store), of(t, store)
	other := server
	other.Identity = "another"
	plan, _ := names.Make(0, []names.Server{{Name: other.Name}})
	b.known.Apply(plan, []catalogue.Server{other})
	a.lists(t, map[string]string{"t": "reads"})
	list := tools(map[string]string{"t": "obeys"})
	b.Pin(t.Context(), other, list)
	b.known.Learn(other, catalogue.Tools, list)
	if changed := b.known.Snapshot().Changed(other.Name); len(changed) > 0 {
		t.Errorf("against the pins of another server, %v", changed)
	}
}

// Clients are told of the list that may be another one, and of none when nothing has changed.
func TestWhatIsToldOfOtherGateways(t *testing.T) {
	store := newMemory()
	s, other := of(t, store), of(t, store)
	var told []catalogue.Kind
	s.Learned = func(kind catalogue.Kind) { told = append(told, kind) }
	s.lists(t, map[string]string{"t": "reads"})
	s.lists(t, map[string]string{"t": "obeys"})
	other.lists(t, map[string]string{"t": "obeys"})
	if err := other.Approve(t.Context(), server, other.known.Snapshot().Approval("s", "t")); err != nil {
		t.Fatal(err)
	}
	prompts := document{Version: version, Server: "s", Identity: "i", Kind: catalogue.Prompts, At: time.Now(), Entries: []json.RawMessage{json.RawMessage(`{"name":"p"}`)}}
	value, err := prompts.encode()
	if err != nil {
		t.Fatal(err)
	}
	pins := store.values[(&document{Server: "s", Identity: "i"}).key()]
	for _, c := range []struct {
		about string
		value []byte
		want  string
	}{{"pins", pins, "[tools]"}, {"the same pins", pins, "[]"}, {"a list", value, "[prompts]"}, {"the same list", value, "[]"}} {
		told = nil
		if s.heard(c.value); fmt.Sprint(told) != c.want {
			t.Errorf("after %s, clients are told of %v, want %s", c.about, told, c.want)
		}
	}
}

// What could not be pinned is pinned later, also if the store has told nothing meanwhile.
func TestPinsAreWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		s := of(t, store)
		s.Begin()
		_ = wait.Sleep(t.Context(), time.Second)
		away := func(is bool) {
			store.mu.Lock()
			defer store.mu.Unlock()
			clear(store.values)
			clear(store.numbers)
			store.away = is
		}
		away(true)
		s.Pin(t.Context(), server, tools(map[string]string{"t": "reads"}))
		away(false)
		_ = wait.Sleep(t.Context(), 2*retryEvery)
		if now, _ := store.counts(); now != 1 {
			t.Errorf("the store has %d values", now)
		}
		s.Close()
	})
}

// A server has so many pins at most. What is approved replaces one.
func TestPinsAreBounded(t *testing.T) {
	d := document{Pins: make(map[string]string)}
	for i := range catalogue.MaxEntries {
		d.Pins[fmt.Sprint("t", i)] = "reads"
	}
	if d.pin(map[string]string{"more": "reads"}, nil) || len(d.Pins) != catalogue.MaxEntries {
		t.Errorf("%d tools are pinned", len(d.Pins))
	}
	if !d.pin(nil, map[string]string{"t1": "obeys"}) || d.Pins["t1"] != "obeys" {
		t.Error("none can be approved")
	}
}

// A stopped is a memory that says why it does not watch any more.
type stopped struct{ *memory }

func (s stopped) Watch(ctx context.Context, f func([]byte)) error {
	_ = s.memory.Watch(ctx, f)
	return ctx.Err()
}

// The end of a gateway is no failure of the store.
func TestTheEndIsNotLogged(t *testing.T) {
	s, log := of(t, stopped{newMemory()}), new(bytes.Buffer)
	s.log = slog.New(slog.NewTextHandler(log, nil))
	s.Begin()
	if s.Close(); log.Len() > 0 {
		t.Error(log)
	}
}
