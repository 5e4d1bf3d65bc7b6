package clustertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// in runs a test in a bubble, with two Engines and a bucket. Times are exact there.
func in(t *testing.T, o Options, test func(t *testing.T, s *Service, a, b *Engine, ofA, ofB cluster.Bucket)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := New(o)
		a, b := s.Engine(), s.Engine()
		defer a.Close()
		defer b.Close()
		settings := cluster.BucketOptions{Name: "lease", TTL: 20 * time.Second}
		ofA, err := a.Bucket(t.Context(), settings)
		if err != nil {
			t.Fatal(err)
		}
		ofB, err := b.Bucket(t.Context(), settings)
		if err != nil {
			t.Fatal(err)
		}
		test(t, s, a, b, ofA, ofB)
	})
}

func wantErr(t *testing.T, what string, err error, sentinels ...error) {
	t.Helper()
	for _, sentinel := range sentinels {
		if !errors.Is(err, sentinel) {
			t.Errorf("%s got %v, want %v", what, err, sentinel)
		}
	}
}

// took checks how long something took.
func took(t *testing.T, what string, since time.Time, want time.Duration) {
	t.Helper()
	if d := time.Since(since); d != want {
		t.Errorf("%s took %v, want %v", what, d, want)
	}
}

// pass lets time pass.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	if err := wait.Sleep(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// get returns the value of a key, or why there is none.
func get(t *testing.T, b cluster.Bucket, key string) string {
	t.Helper()
	entry, err := b.Get(t.Context(), key)
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return "none"
	case err != nil:
		return err.Error()
	}
	return string(entry.Value)
}

func TestDelayIsThatOfEachWay(t *testing.T) {
	in(t, Options{}, func(t *testing.T, _ *Service, a, _ *Engine, ofA, ofB cluster.Bucket) {
		a.Faults(func(op Operation) Fault {
			if op.Key == "slow" {
				return Fault{Delay: 3 * time.Second, DelayResult: 4 * time.Second}
			}
			return Fault{}
		})
		began := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := ofA.Create(t.Context(), "slow", []byte("x"), 0)
			wantErr(t, "create", err, nil)
			took(t, "create", began, 7*time.Second)
		}()
		synctest.Wait()
		if _, err := ofA.Create(t.Context(), "behind", nil, 0); err != nil {
			t.Error(err)
		}
		took(t, "what was sent after it, and is answered after it,", began, 7*time.Second)
		<-done
		if get(t, ofB, "slow") != "x" {
			t.Error("it was not written")
		}
		// It was written after three seconds, so it expires after 23.
		for entry := range ofB.Watch(t.Context(), "") {
			if entry.Deleted && entry.Key == "slow" {
				break
			}
		}
		took(t, "expiry", began, 23*time.Second)
	})
}

func TestAWriteMayHappenAfterItsCallerHasLeft(t *testing.T) {
	in(t, Options{}, func(t *testing.T, _ *Service, a, _ *Engine, ofA, ofB cluster.Bucket) {
		a.Faults(func(Operation) Fault { return Fault{Delay: 2 * time.Second} })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := ofA.Create(ctx, "k", []byte("late"), 0)
		wantErr(t, "create", err, cluster.ErrUnavailable, context.DeadlineExceeded)
		if v := get(t, ofB, "k"); v != "none" {
			t.Errorf("after a second the value is %s", v)
		}
		pass(t, time.Second)
		synctest.Wait()
		if v := get(t, ofB, "k"); v != "late" {
			t.Errorf("after two seconds the value is %s", v)
		}
	})
}

func TestLostDoubledAndUnanswered(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault Fault
		want  error  // of a create
		value string // that there is then
		cut   bool
	}{
		{"lost", Fault{Lose: true}, cluster.ErrUnavailable, "none", false},
		{"lost with the connection", Fault{Lose: true, Cut: true}, cluster.ErrUnavailable, "none", true},
		{"written, without an answer", Fault{LoseResult: true}, cluster.ErrUnavailable, "x", false},
		{"written, and then cut", Fault{LoseResult: true, Cut: true}, cluster.ErrUnavailable, "x", true},
		{"answered, and then cut", Fault{Cut: true}, nil, "x", true},
		{"doubled", Fault{Double: true}, nil, "x", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, Options{}, func(t *testing.T, _ *Service, a, _ *Engine, ofA, ofB cluster.Bucket) {
				a.Faults(func(op Operation) Fault {
					if op != (Operation{Name: "create", Subject: "lease", Key: "k"}) {
						t.Errorf("op is %+v", op)
					}
					return c.fault
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := ofA.Create(ctx, "k", []byte("x"), 0)
				wantErr(t, "create", err, c.want)
				if v := get(t, ofB, "k"); v != c.value {
					t.Errorf("the value is %s, want %s", v, c.value)
				}
				if connected, _ := a.Connected(); connected == c.cut {
					t.Errorf("connected is %v", connected)
				}
			})
		})
	}
}

func TestACutIsNoticedLater(t *testing.T) {
	in(t, Options{Silence: 4 * time.Second}, func(t *testing.T, _ *Service, a, _ *Engine, ofA, ofB cluster.Bucket) {
		a.Cut()
		began := time.Now()
		if err := a.Publish("s", nil); err != nil {
			t.Errorf("publish got %v before the cut was noticed", err)
		}
		_, changed := a.Connected()
		_, err := ofA.Put(t.Context(), "k", nil)
		wantErr(t, "put", err, cluster.ErrUnavailable)
		took(t, "put", began, 4*time.Second)
		<-changed
		_, err = ofA.Put(t.Context(), "k", nil)
		wantErr(t, "put", err, cluster.ErrUnavailable)
		took(t, "the next one", began, 4*time.Second)
		a.Heal()
		if _, err := ofA.Put(t.Context(), "k", []byte("back")); err != nil || get(t, ofB, "k") != "back" {
			t.Errorf("after the cut put got %v", err)
		}
		a.Cut()
		a.Heal() // before it was noticed
		pass(t, 10*time.Second)
		if connected, _ := a.Connected(); !connected {
			t.Error("a cut was noticed after it was healed")
		}
	})
}

func TestStaleReads(t *testing.T) {
	in(t, Options{}, func(t *testing.T, _ *Service, a, _ *Engine, ofA, ofB cluster.Bucket) {
		v := map[string]string{}
		current := 0
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for entry := range ofA.Watch(ctx, "") {
				switch {
				case entry.Current:
					current++
				case entry.Deleted:
					delete(v, entry.Key)
				default:
					v[entry.Key] = string(entry.Value)
				}
			}
		}()
		if _, err := ofB.Create(t.Context(), "expires", []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		a.Freeze()
		pass(t, 20*time.Second)
		revision, err := ofA.Create(t.Context(), "expires", []byte("2"), 0) // decided by the latest
		if err != nil {
			t.Fatal(err)
		}
		if stale, latest := get(t, ofA, "expires"), get(t, ofB, "expires"); stale != "1" || latest != "2" {
			t.Errorf("reads show %s and %s, want 1 and 2", stale, latest)
		}
		if err := ofB.Delete(t.Context(), "expires", revision); err != nil {
			t.Fatal(err)
		}
		if _, err := ofB.Create(t.Context(), "new", []byte("3"), 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if v["expires"] != "1" || len(v) != 1 || current != 1 {
			t.Errorf("a watch shows %v, and was current %d times", v, current)
		}
		for key := range ofA.Keys(t.Context(), "") {
			if key != "expires" {
				t.Errorf("there is a key %s", key)
			}
		}
		a.Thaw()
		synctest.Wait()
		if v["new"] != "3" || len(v) != 1 || current != 2 || get(t, ofA, "new") != "3" {
			t.Errorf("after Thaw a watch shows %v, and was current %d times", v, current)
		}
		cancel()
		<-ended
	})
}

func TestAWatchThatLosesAChangeYieldsItAgain(t *testing.T) {
	in(t, Options{}, func(t *testing.T, _ *Service, a, _ *Engine, ofA, ofB cluster.Bucket) {
		changes := 0
		a.Faults(func(op Operation) Fault {
			if op.Name == "change" {
				changes++
			}
			return Fault{Lose: op.Name == "change" && changes == 1, Delay: time.Second}
		})
		current, saw := 0, false
		for entry := range ofA.Watch(t.Context(), "") {
			saw = saw || entry.Key == "k"
			if entry.Current {
				if current++; current == 2 {
					break
				}
				if _, err := ofB.Put(t.Context(), "k", nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !saw || changes != 1 {
			t.Errorf("the change was seen: %v, of %d", saw, changes)
		}
	})
}

func TestDeniedAndFull(t *testing.T) {
	in(t, Options{}, func(t *testing.T, s *Service, a, _ *Engine, ofA, ofB cluster.Bucket) {
		a.Deny(true)
		_, err := ofA.Put(t.Context(), "k", nil)
		wantErr(t, "put", err, cluster.ErrUnavailable, cluster.ErrDenied)
		wantErr(t, "publish", a.Publish("s", nil), cluster.ErrDenied)
		a.Deny(false)
		revision, err := ofA.Put(t.Context(), "k", nil)
		wantErr(t, "put", err, nil)
		s.Full(true)
		for _, b := range []cluster.Bucket{ofA, ofB} {
			_, err = b.Put(t.Context(), "k", nil)
			wantErr(t, "put", err, cluster.ErrFull)
			wantErr(t, "delete", b.Delete(t.Context(), "k", revision), cluster.ErrFull)
		}
		s.Full(false)
		wantErr(t, "delete", ofA.Delete(t.Context(), "k", revision), nil)
	})
}

func TestRestartLosesMemoryAndWipeLosesAll(t *testing.T) {
	in(t, Options{}, func(t *testing.T, s *Service, a, b *Engine, onFile, _ cluster.Bucket) {
		inMemory, err := a.Bucket(t.Context(), cluster.BucketOptions{Name: "memory", Memory: true})
		if err != nil {
			t.Fatal(err)
		}
		var missed []string
		stop, err := b.Subscribe(t.Context(), "s", func(m cluster.Message) {
			missed = append(missed, fmt.Sprintf("%s %v", m.Body, m.Missed))
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		for _, bucket := range []cluster.Bucket{onFile, inMemory} {
			for range 3 {
				if _, err := bucket.Put(t.Context(), "k", []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
		}
		_, changed := a.Connected()
		s.Restart()
		<-changed
		if file, memory := get(t, onFile, "k"), get(t, inMemory, "k"); file != "x" || memory != "none" {
			t.Errorf("after a restart the values are %s and %s", file, memory)
		}
		if revision, err := inMemory.Create(t.Context(), "k", nil, 0); revision != 1 || err != nil {
			t.Errorf("a bucket that was lost begins with revision %d (%v)", revision, err)
		}
		if err := a.Publish("s", []byte("hello")); err != nil {
			t.Error(err)
		}
		s.Wipe()
		if file, memory := get(t, onFile, "k"), get(t, inMemory, "k"); file != "none" || memory != "none" {
			t.Errorf("after a wipe the values are %s and %s", file, memory)
		}
		synctest.Wait()
		if want := []string{" true", "hello false", " true"}; !slices.Equal(missed, want) {
			t.Errorf("a subscriber got %q, want %q", missed, want)
		}
	})
}

func TestMessagesAreLostDoubledAndDelayed(t *testing.T) {
	in(t, Options{Queue: 2}, func(t *testing.T, _ *Service, a, b *Engine, _, _ cluster.Bucket) {
		b.Faults(func(op Operation) Fault {
			switch {
			case op.Name != "message":
				return Fault{}
			case op.Subject == "lose":
				return Fault{Lose: true}
			}
			return Fault{Double: op.Subject == "double", Delay: time.Second}
		})
		began := time.Now()
		var got []string
		hold := make(chan struct{})
		record := func(m cluster.Message) {
			if string(m.Body) == "hold" {
				<-hold
			}
			got = append(got, fmt.Sprintf("%s %v %v", m.Body, m.Missed, time.Since(began)))
		}
		for _, subject := range []string{"double", "lose", "many"} {
			stop, err := b.Subscribe(t.Context(), subject, record)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
		}
		publish := func(subject string, bodies ...string) {
			for _, body := range bodies {
				if err := a.Publish(subject, []byte(body)); err != nil {
					t.Error(err)
				}
			}
			pass(t, time.Second)
			synctest.Wait()
		}
		publish("lose", "1")
		publish("double", "2")
		publish("many", "hold")
		publish("many", "3", "4", "5", "6")
		close(hold)
		synctest.Wait()
		want := []string{"2 false 2s", "2 false 2s", "hold false 4s", "3 false 4s", "4 false 4s", " true 4s"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestRequestsAreLostAndDoubled(t *testing.T) {
	in(t, Options{}, func(t *testing.T, _ *Service, a, b *Engine, _, _ cluster.Bucket) {
		var asked atomic.Int64
		stop, err := b.Answer(t.Context(), "s", func(context.Context, []byte) []byte {
			asked.Add(1)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		for _, c := range []struct {
			name  string
			fault Fault
			times int64
			want  error
		}{
			{"request", Fault{Lose: true}, 0, cluster.ErrUnavailable},
			{"request", Fault{Double: true}, 2, nil},
			{"request", Fault{LoseResult: true}, 1, cluster.ErrUnavailable},
			{"question", Fault{Lose: true}, 0, cluster.ErrUnavailable},
			{"question", Fault{Double: true}, 2, nil},
			{"response", Fault{Lose: true}, 1, cluster.ErrUnavailable},
			{"response", Fault{Double: true}, 1, nil},
		} {
			asked.Store(0)
			for _, e := range []*Engine{a, b} {
				e.Faults(func(op Operation) Fault {
					if op.Name == c.name {
						return c.fault
					}
					return Fault{}
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := a.Request(ctx, "s", nil)
			cancel()
			synctest.Wait()
			wantErr(t, c.name, err, c.want)
			if n := asked.Load(); n != c.times {
				t.Errorf("%s with %+v asked %d times, want %d", c.name, c.fault, n, c.times)
			}
		}
		a.Faults(nil)
		b.Cut()
		_, err = a.Request(t.Context(), "s", nil)
		wantErr(t, "a request to who is cut off", err, cluster.ErrNoResponder)
	})
}
