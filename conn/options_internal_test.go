package conn

import "testing"

// Conns with Shared options have one copy of them. Each has its own Name, Owner and Final.
func TestSharedOptionsAreHeldOnce(t *testing.T) {
	shared := Tuning{Name: "none", SendSlots: 3, Final: func(Reason) bool { return true }}.Shared()
	shared.SendSlots = 5 // has no effect, because the options are already shared
	first, second := Options{Tuning: shared}, Options{Tuning: shared}
	first.Name, first.Owner = "first", 1
	second.Name, second.Final = "second", func(Reason) bool { return false }
	a, b := New(dead{}, first), New(dead{}, second)
	if a.options != b.options || cap(a.sendSlots()) != 3 || cap(b.sendSlots()) != 3 {
		t.Errorf("same options %v, slots %d and %d; want true, 3 and 3",
			a.options == b.options, cap(a.sendSlots()), cap(b.sendSlots()))
	}
	if a.Name() != "first" || a.Control().Owner() != 1 || b.Name() != "second" || b.Control().Owner() != nil {
		t.Errorf("got %s, %v and %s, %v; want first, 1 and second, nil", a.Name(), a.Control().Owner(), b.Name(), b.Control().Owner())
	}
	if !a.own.final(Reason{}) || b.own.final(Reason{}) || a.options.Name != "" || a.options.Final != nil {
		t.Error("a Conn has the Name, Owner or Final of the other")
	}
}
