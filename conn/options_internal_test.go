package conn

import "testing"

// Conns with shared options hold them once, and each has for itself what Shared
// says.
func TestSharedOptionsAreHeldOnce(t *testing.T) {
	shared := Options{Name: "none", SendSlots: 3, Final: func(Reason) bool { return true }}.Shared()
	shared.SendSlots = 5 // counts for nothing
	first, second := shared, shared
	first.Name, first.Owner = "first", 1
	second.Name, second.Final = "second", func(Reason) bool { return false }
	a, b := New(dead{}, first), New(dead{}, second)
	if a.options != b.options || cap(a.sendSlots()) != 3 || cap(b.sendSlots()) != 3 {
		t.Errorf("held twice: %v; slots: %d and %d", a.options != b.options, cap(a.sendSlots()), cap(b.sendSlots()))
	}
	if a.Name() != "first" || a.Owner() != 1 || b.Name() != "second" || b.Owner() != nil {
		t.Errorf("%s, %v; %s, %v", a.Name(), a.Owner(), b.Name(), b.Owner())
	}
	if !a.own.final(Reason{}) || b.own.final(Reason{}) || a.options.Name != "" || a.options.Final != nil {
		t.Error("what one Conn has for itself is another's")
	}
}
