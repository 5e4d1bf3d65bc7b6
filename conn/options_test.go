package conn

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// The defaults are those that the specification demands (docs/design/SEED_003.md §2.1, §2.2).
func TestDefaultsAreThoseOfTheSpecification(t *testing.T) {
	o := Tuning{}.withDefaults()
	for name, c := range map[string]struct{ got, want time.Duration }{
		"request timeout":    {o.RequestTimeout, 30 * time.Second},
		"init timeout":       {o.InitTimeout, 10 * time.Second},
		"first backoff":      {o.BackoffMin, time.Second},
		"longest backoff":    {o.BackoffMax, 30 * time.Second},
		"tombstone sweep":    {o.TombstoneSweep, time.Minute},
		"life of tombstones": {o.tombstoneLife(), 75 * time.Second},
		"shortest retry":     {busyWait(0), 5 * time.Millisecond},
		"retry":              {busyWait(0.5), 10 * time.Millisecond},
		"longest retry":      {busyWait(1), 15 * time.Millisecond},
		"stop":               {o.StopGrace, 100 * time.Millisecond},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %v, want %v", name, c.got, c.want)
		}
	}
	if o.BackoffJitter != 0.2 || busyRetries != 3 {
		t.Errorf("got a backoff jitter of %v and %d busy retries, want 0.2 and 3", o.BackoffJitter, busyRetries)
	}
	if o.setsInit || !(Tuning{InitTimeout: 1}).withDefaults().setsInit {
		t.Error("the time for the handshake is not that of the program only if the program has set it")
	}
	for want, o := range map[time.Duration]Tuning{time.Hour: {BackoffMin: time.Hour}, time.Second: {BackoffMax: time.Millisecond}} {
		if longest := o.withDefaults().BackoffMax; longest != want {
			t.Errorf("the longest backoff is %v, want that of the first, %v", longest, want)
		}
	}
}

// A negative number means the default, as zero does, except for Liveness and Patience, which it turns off.
func TestNegativeOptionsAreTheDefaults(t *testing.T) {
	given := Tuning{}
	for _, number := range numbers(&given) {
		setNegative(number)
	}
	got, want := given.withDefaults(), Tuning{}.withDefaults()
	wanted := numbers(&want)
	for name, number := range numbers(&got) {
		if name != "Liveness" && name != "Patience" && !number.Equal(wanted[name]) {
			t.Errorf("%s: got %v, want %v", name, number, wanted[name])
		}
	}
	if got.Liveness != -1 || got.Patience != -1 {
		t.Errorf("Liveness, Patience: got %v, %v, want -1, -1", got.Liveness, got.Patience)
	}
}

// A Conn with negative options reconnects, makes calls and stops.
//
// Guarantees: G-0001.4
func TestConnWithNegativeOptions(t *testing.T) {
	all := Tuning{}
	for name, number := range numbers(&all) {
		one := Tuning{}
		setNegative(numbers(&one)[name])
		t.Run(name, func(t *testing.T) { runNegative(t, one) })
		setNegative(number)
	}
	t.Run("all", func(t *testing.T) { runNegative(t, all) })
}

// runNegative lets a Conn open a second link, make a call, and stop.
func runNegative(t *testing.T, o Tuning) {
	synctest.Test(t, func(t *testing.T) {
		began, opens := time.Now(), 0
		c := New(openingWith(func(context.Context) (transport.Link, error) {
			if opens++; opens == 1 {
				return nil, errors.New("not yet")
			}
			return &answerer{}, nil
		}), Options{Tuning: o})
		ended := make(chan error, 1)
		go func() { ended <- c.Run(context.Background()) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.AwaitReady(ctx); err != nil || time.Since(began) < time.Second {
			t.Errorf("ready after %v: %v; want no error after 1s at least", time.Since(began), err)
		}
		if _, err := c.Call(ctx, Request{Method: "m"}); err != nil {
			t.Error(err)
		}
		c.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// numbers returns the fields of options that are numbers.
func numbers(o *Tuning) map[string]reflect.Value {
	found, all := make(map[string]reflect.Value), reflect.ValueOf(o).Elem()
	for i := range all.NumField() {
		if field := all.Field(i); field.CanInt() || field.CanFloat() {
			found[all.Type().Field(i).Name] = field
		}
	}
	return found
}

func setNegative(number reflect.Value) {
	if number.CanInt() {
		number.SetInt(-1)
		return
	}
	number.SetFloat(-1)
}

type openingWith func(context.Context) (transport.Link, error)

func (o openingWith) Open(ctx context.Context) (transport.Link, error) { return o(ctx) }

// An answerer is a link that answers each request as if it had the id 1.
type answerer struct {
	deadLink
	receiver transport.Receiver
	granted  int
}

func (a *answerer) Bind(r transport.Receiver)            { a.receiver = r }
func (a *answerer) Grant(_ transport.Stream, frames int) { a.granted += frames }

func (a *answerer) Send(transport.Outbound) error {
	if a.granted > 0 {
		a.receiver.Receive(transport.Inbound{Frame: []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)})
	}
	return nil
}

// Owner returns Options.Owner.
func TestOwner(t *testing.T) {
	owner := new(int)
	if c := New(deadTransport{}, Options{Owner: owner}); c.Control().Owner() != owner {
		t.Errorf("the owner is %v, want %v", c.Control().Owner(), owner)
	}
	if c := Accept(deadLink{}, Options{}); c.Control().Owner() != nil {
		t.Errorf("the owner is %v, want none", c.Control().Owner())
	}
}
