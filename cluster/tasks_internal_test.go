package cluster

import (
	"testing"
	"time"
)

// A task counts until its end, also after it has grown, and leaves nothing in the counts.
func TestTheCountsOfATask(t *testing.T) {
	p, now := newTaskPlaces(100), time.Now()
	task, _ := parseIndex("o.OWNER.CLIENT-NETWORK.1.2.ID")
	other, _ := parseIndex("o.OWNER.CLIENT-NETWORK.1.2.OTHER")
	p.set(task, taskPlace{1, now.Add(time.Hour).UnixNano()})
	if _, claimed, err := p.claim(task, 3, true, now); !claimed || err != nil {
		t.Fatalf("a task that grows gets no more places: %v", err)
	}
	if _, _, err := p.claim(other, 1, false, now.Add(10*time.Minute)); err != nil || p.all != 4 {
		t.Errorf("after ten minutes %d places count, %v, want 4", p.all, err)
	}
	p.set(task, taskPlace{})
	p.expire(now.Add(2 * time.Hour))
	if p.all != 0 || len(p.tasks) != 0 || len(p.held) != 0 {
		t.Errorf("%d places, %v and %v are left of tasks that are gone", p.all, p.tasks, p.held)
	}
}
