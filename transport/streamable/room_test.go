package streamable

import "testing"

// What one client had of the room goes to another once it has no body there, and to one
// alone.
//
// Guarantees: G-0022.13
func TestClientsShareNoRoom(t *testing.T) {
	m := newRoom(1000, 1000, nil)
	a, b, c := client{identity: "a"}, client{identity: "b"}, client{identity: "c"}
	first, again := m.enter(a), m.enter(a)
	if first != again {
		t.Error("a client has two rooms at a time")
	}
	m.leave(a)
	if m.enter(b) == first {
		t.Error("what one client still uses went to another")
	}
	m.leave(b)
	m.leave(a)
	if m.enter(b) == m.enter(c) {
		t.Error("two clients share what each may have")
	}
}
