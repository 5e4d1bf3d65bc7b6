package pool

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/gateway/internal/life"
)

// model is a pool whose connections are numbers. Those that run are known.
type model struct {
	*rapid.T
	Pool[int]
	runs map[*Place[int]]bool
	last int
}

func (m *model) enter(ctx context.Context, owner Owner, session any) (*Place[int], error) {
	create := func(p *Place[int]) {
		m.last++
		p.Value, m.runs[p] = m.last, true
	}
	return m.Enter(ctx, owner, session, create, m.end)
}

func (m *model) end(p *Place[int]) {
	if p.holds > 0 || !m.runs[p] {
		m.Fatalf("the connection of %v ends, held by %d", p.Owner, p.holds)
	}
	delete(m.runs, p)
}

// Whoever comes and goes in whatever order: nobody gets the connection of another owner, none ends that is in use, there are never more than
// Most, and who is refused could not have had one.
//
// Guarantees: G-0095.1, G-0095.2, G-0095.3
func TestPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{T: t, runs: make(map[*Place[int]]bool)}
		var held []*Place[int]
		owner := rapid.Custom(func(t *rapid.T) Owner {
			o := Owner{User: fmt.Sprint(rapid.IntRange(0, 30).Draw(t, "user"))}
			if rapid.Bool().Draw(t, "session") {
				o.Session = rapid.IntRange(0, 2).Draw(t, "of")
			}
			return o
		})
		for i := range rapid.IntRange(0, Most).Draw(t, "before") {
			place, err := m.enter(t.Context(), Owner{User: fmt.Sprint("before ", i)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if held = append(held, place); rapid.Bool().Draw(t, "idle") {
				m.Leave(place)
				held = held[:len(held)-1]
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				o := owner.Draw(t, "owner")
				place, err := m.enter(t.Context(), o, o.Session)
				switch {
				case err == nil && place.Owner != o:
					t.Fatalf("%v gets the connection of %v", o, place.Owner)
				case err == nil:
					held = append(held, place)
				case !errors.Is(err, ErrFull):
					t.Fatal(err)
				default:
					for place := range m.runs {
						if place.holds == 0 || place.Owner == o {
							t.Fatalf("%v is refused, and %v is there", o, place.Owner)
						}
					}
				}
			},
			"leave": func(t *rapid.T) {
				if len(held) > 0 {
					i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
					m.Leave(held[i])
					held = append(held[:i], held[i+1:]...)
				}
			},
			"left": func(t *rapid.T) { m.Left(rapid.IntRange(0, 2).Draw(t, "session")) },
			"due": func(t *rapid.T) {
				due, _ := m.Due(time.Now(), func(Owner) bool { return rapid.IntRange(0, 9).Draw(t, "kept") > 0 }, func(bool) life.Rule { return life.Rule{} })
				for _, place := range due {
					m.end(place)
					m.Ended()
				}
			},
			"": func(t *rapid.T) {
				if all, _ := m.All(); len(m.runs) > Most || len(all) != len(m.runs) {
					t.Fatalf("%d connections, of which the pool knows %d", len(m.runs), len(all))
				}
			},
		})
	})
}

// The connection that is ended for another owner is one whose client has left, or else the one that was used the longest time ago. Who comes while it
// ends waits for that.
//
// Guarantees: G-0095.2
func TestWhoMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pool[int]
		enter := func(name string, end func(*Place[int])) (*Place[int], error) {
			return p.Enter(t.Context(), Owner{User: name}, name, func(*Place[int]) {}, end)
		}
		var all []*Place[int]
		for i := range Most {
			place, _ := enter(fmt.Sprint(i), nil)
			all = append(all, place)
		}
		if _, err := enter("new", nil); !errors.Is(err, ErrFull) {
			t.Fatalf("there is no room, and the error is %v", err)
		}
		for _, i := range []int{3, 1, 2} {
			p.Leave(all[i])
			<-time.NewTimer(time.Second).C
		}
		p.Left("2")
		for _, want := range []string{"2", "3"} {
			if _, err := enter("instead of "+want, func(p *Place[int]) {
				if p.Owner.User != want {
					t.Errorf("%s ends, want %s", p.Owner.User, want)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		slow := make(chan bool)
		go enter("instead of 1", func(*Place[int]) { <-slow })
		synctest.Wait()
		waited := make(chan error)
		go func() {
			_, err := enter("another one", nil)
			waited <- err
		}()
		why := errors.New("the client has left")
		leaving, leave := context.WithCancelCause(t.Context())
		left := make(chan error)
		go func() {
			_, err := p.Enter(leaving, Owner{User: "one that leaves"}, nil, func(*Place[int]) {}, nil)
			left <- err
		}()
		synctest.Wait()
		leave(why)
		if err := <-left; !errors.Is(err, why) {
			t.Errorf("who leaves while it waits gets %v", err)
		}
		close(slow)
		if err := <-waited; !errors.Is(err, ErrFull) {
			t.Errorf("once the last idle one has ended: %v", err)
		}
	})
}

// A connection ends when its rule says so, at once if its client has left and has nobody else, and never while somebody uses it.
//
// Guarantees: G-0095.3
func TestDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pool[int]
		enter := func(o Owner, session any) *Place[int] {
			place, err := p.Enter(t.Context(), o, session, func(*Place[int]) {}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return place
		}
		due := func() (owners []string) {
			all, _ := p.Due(time.Now(), func(Owner) bool { return true }, func(left bool) life.Rule {
				if left {
					return life.Rule{Idle: time.Minute}
				}
				return life.Rule{Idle: time.Hour}
			})
			for _, place := range all {
				owners = append(owners, place.Owner.User)
				p.Ended()
			}
			return owners
		}
		is := func(want string) {
			t.Helper()
			if got := fmt.Sprint(due()); got != want {
				t.Errorf("%s end, want %s", got, want)
			}
		}
		for i, place := range []*Place[int]{enter(Owner{"stays", 1}, 1), enter(Owner{"leaves", 2}, 2), enter(Owner{"comes back", nil}, 3), enter(Owner{"modern", nil}, nil)} {
			if p.Leave(place) {
				t.Errorf("%d is over", i)
			}
		}
		busy := enter(Owner{"busy", 4}, 4)
		for _, session := range []int{5, 6} { // of which one leaves
			p.Leave(enter(Owner{"has two", nil}, session))
		}
		p.Left(5)
		is("[]")
		p.Left(2)
		p.Left(4)
		is("[leaves]")
		if !p.Leave(busy) {
			t.Error("the last request of a client that has left says nothing")
		}
		is("[busy]")
		<-time.NewTimer(time.Minute).C
		is("[modern]")
		p.Left(3)
		is("[comes back]")
		p.Left(6)
		is("[has two]")
		late := enter(Owner{"was used later", 7}, 7)
		<-time.NewTimer(time.Hour - time.Minute).C
		is("[stays]")
		p.Leave(late)
		<-time.NewTimer(time.Hour - time.Second).C
		is("[]")
		<-time.NewTimer(time.Second).C
		is("[was used later]")
	})
}

// What the file does not want any more ends at once, unless it is in use. The next look is when the first of the others may end. All are listed the oldest first, with how they are used.
//
// Guarantees: G-0095.3
func TestWhatTheFileDoesNotKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pool[int]
		began := time.Now()
		for i, o := range []Owner{{"ann", nil}, {"bob", 1}, {"cid", 2}, {"dan", nil}, {"eve", 3}} {
			place, err := p.Enter(t.Context(), o, o.Session, func(place *Place[int]) { place.Value = i }, nil)
			if err != nil {
				t.Fatal(err)
			}
			if o.User == "dan" {
				p.Hold(place)
			} else if p.Leave(place) {
				t.Errorf("%v is over", o)
			}
			<-time.NewTimer(time.Second).C
		}
		all, uses := p.All()
		for i, place := range all {
			if want := (Use{Since: began.Add(time.Duration(i) * time.Second), Left: place.Owner.Session == nil}); place.Owner.User == "dan" {
				if want.Calls = 2; uses[i] != want {
					t.Errorf("%v: %+v, want %+v", place.Owner, uses[i], want)
				}
			} else if place.Value != i || uses[i] != want {
				t.Errorf("%v is %d: %+v, want %+v", place.Owner, place.Value, uses[i], want)
			}
		}
		due, next := p.Due(time.Now(), func(o Owner) bool { return o.Session != nil }, func(bool) life.Rule { return life.Rule{Idle: time.Minute} })
		if len(all) != 5 || len(due) != 1 || due[0].Owner.User != "ann" || !next.Equal(began.Add(time.Minute+time.Second)) {
			t.Errorf("%d of %d end, the next look is at %v", len(due), len(all), next)
		}
		p.Ended()
	})
}
