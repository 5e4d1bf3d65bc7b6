package conn

import (
	"testing"
	"time"
)

// The numbers that the specification has locked (docs/design/SEED_003.md §2.1,
// §2.2).
func TestDefaultsAreThoseOfTheSpecification(t *testing.T) {
	o := Options{}.withDefaults()
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
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	if o.BackoffJitter != 0.2 || busyRetries != 3 {
		t.Errorf("backoff jitter %v, %d busy retries", o.BackoffJitter, busyRetries)
	}
}

// What a Conn belongs to is kept for those who find the Conn.
func TestOwner(t *testing.T) {
	owner := new(int)
	if c := New(nil, Options{Owner: owner}); c.Owner() != owner {
		t.Errorf("the owner is %v", c.Owner())
	}
	if c := Accept(nil, Options{}); c.Owner() != nil {
		t.Errorf("the owner of a Conn that has none is %v", c.Owner())
	}
}
