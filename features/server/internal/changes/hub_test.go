package changes

import (
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A change of a task is reported only to the listeners of that task, so its cost
// depends on their number alone.
func TestATaskKnowsItsListeners(t *testing.T) {
	l := NewHub(nil)
	all := []*Listener{{}, {}, {}}
	for _, c := range all {
		l.Add(c)
	}
	listeners := func(c Change) int { return len(slices.Collect(l.who(c))) }
	l.Watch(all[0], "a")
	l.Watch(all[1], "a")
	l.Watch(all[1], "b")
	if a, b, c, lists := listeners(Task("a")), listeners(Task("b")), listeners(Task("c")), listeners(Tools()); a != 2 || b != 1 || c != 0 || lists != 3 {
		t.Errorf("got %d listeners of task a, %d of b, %d of c and %d of a list; want 2, 1, 0 and 3", a, b, c, lists)
	}
	l.SetOwner(all[1], Owner{Identity: "a"})
	l.Unwatch(all[0], "a")
	l.Remove(all[1])
	l.Watch(all[1], "a") // after it has left
	l.SetOwner(all[1], Owner{Identity: "a"})
	if len(l.ofTask) != 0 || len(l.all) != 2 || len(l.all[all[0]]) != 0 {
		t.Errorf("left: %v, %v, want len(l.ofTask) == 0, len(l.all) == 2 and len(l.all[all[0]]) == 0", l.ofTask, l.all)
	}
	if len(l.owners) != 0 {
		t.Errorf("left: %v, want no owner of a listener that has left", l.owners)
	}
}
