package streamable

import (
	"math/rand/v2"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// Streams are found whatever the order in which they end, and an empty table keeps no
// memory.
func TestRequestStreams(t *testing.T) {
	var all exchanges
	known := make(map[transport.Stream]*exchange)
	chance := rand.New(rand.NewPCG(1, 2))
	last := transport.Stream(0)
	for step := range 5000 {
		if grows := step < 4000; grows && chance.IntN(100) < 55 || len(known) == 0 {
			last++
			s := &exchange{number: last}
			known[last] = s
			all.add(s)
		} else {
			number := all[chance.IntN(len(all))].number
			all.remove(known[number])
			all.remove(&exchange{number: number}) // already removed
			delete(known, number)
		}
		if len(all) != len(known) {
			t.Fatalf("got %d streams, want %d", len(all), len(known))
		}
		if number := 1 + transport.Stream(chance.Uint64N(uint64(last)+1)); all.find(number) != known[number] {
			t.Fatalf("got another stream for number %d, want %v", number, known[number])
		}
	}
	for len(all) > 0 {
		all.remove(all[len(all)/2])
	}
	if cap(all) > keptStreams {
		t.Errorf("an empty table has the capacity %d, want 0", cap(all))
	}
	one := &exchange{number: last + 1}
	all.add(one)
	if all.remove(one); cap(all) != keptStreams {
		t.Errorf("a table that had one stream has the capacity %d, want less", cap(all))
	}
}

// An idle session uses no more memory than the documentation of Handler says, without
// its receiver.
//
// Guarantees: G-0022.12
func TestIdleSessionIsSmall(t *testing.T) {
	const first, sessions, most = 500, 2000, 700
	least := most + 1
	for range 3 { // other tests may leave memory that is freed meanwhile
		h := NewHandler(accepting(func(link transport.Link) { link.Bind(&mute{link: link}) }), HandlerOptions{})
		begin := func(n int) {
			for range n {
				fuzzed(h, "POST", "Content-Type: application/json", initializeBody("2025-06-18"))
			}
		}
		begin(first)
		_, before := resources()
		begin(sessions)
		_, after := resources()
		least = min(least, (int(after)-int(before))/sessions)
		h.Close(0)
	}
	if least > most {
		t.Errorf("an idle session uses more than %d bytes", most)
	}
}
