package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
	"time"
)

// keysKept is how long a replaced key of Node.Keys is accepted: longer than anything lasts that was made with it. The default of
// server.AskingOptions.CallExpiry is an hour.
const keysKept = 2 * time.Hour

// A keysRecord says from what the keys of Node.Keys are derived, besides the key of the cluster: from nothing at first, and then from a salt for each rotation.
type keysRecord struct {
	Version int          `json:"v"`
	Number  uint64       `json:"n"` // of the changes; 0: there is no record
	Current string       `json:"current,omitempty"`
	Next    string       `json:"next,omitempty"` // accepted, and not used yet
	Retired []retiredKey `json:"retired,omitempty"`
	Rotated time.Time    `json:"rotated,omitzero"`
	By      string       `json:"by,omitempty"` // who has rotated them, as he says
}

// A retiredKey was used until another one was.
type retiredKey struct {
	Salt string    `json:"salt,omitempty"`
	At   time.Time `json:"at"`
}

// promoted returns the record after the second step of a rotation.
func (r keysRecord) promoted(now time.Time, by string) keysRecord {
	r.Retired = append(slices.Clone(r.Retired), retiredKey{r.Current, now.Round(0)})
	r.Current, r.Next, r.Rotated, r.By, r.Number = r.Next, "", now.Round(0), by, r.Number+1
	return r
}

// A KeysStatus says how the shared keys are, and not what they are.
type KeysStatus struct {
	Rotated    time.Time `json:"rotated,omitzero"`    // when they were rotated last, by the clock of who did it; zero: never
	By         string    `json:"by,omitempty"`        // who has done that, as he says
	IsRotating bool      `json:"isRotating,omitzero"` // a rotation has begun and not ended
}

// status returns what is said of the keys.
func (r keysRecord) status() KeysStatus { return KeysStatus{r.Rotated, r.By, r.Next != ""} }

// pruned returns the record without keys that no node accepts any more. Clocks of nodes may differ by as long as a key is kept.
func (r keysRecord) pruned(now time.Time) keysRecord {
	r.Retired = slices.DeleteFunc(slices.Clone(r.Retired), func(k retiredKey) bool { return now.Sub(k.At) > 2*keysKept })
	return r
}

// generations are the keys of Node.Keys as this node knows them: the record, and since when it has seen each key retired.
type generations struct {
	begin sync.Once

	mu      sync.Mutex
	rotated func(KeysStatus) // hears of rotations; nil: nobody does
	record  keysRecord
	retired map[string]time.Time
	derived map[string][]byte // by salt and purpose
}

// set applies a record if it is newer than the known one, which it returns.
func (g *generations) set(r keysRecord, now time.Time) (before keysRecord, newer bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before = g.record
	if r.Number <= before.Number {
		return before, false
	}
	retired := make(map[string]time.Time, len(r.Retired))
	for _, k := range r.pruned(now).Retired {
		seen, known := g.retired[k.Salt]
		if !known {
			seen = now
		}
		retired[k.Salt] = seen
	}
	g.record, g.retired, g.derived = r, retired, nil
	return before, true
}

// tell tells of a rotation.
func (g *generations) tell(s KeysStatus) {
	g.mu.Lock()
	rotated := g.rotated
	g.mu.Unlock()
	if rotated != nil {
		rotated(s)
	}
}

// known returns the record that this node goes by; its Number is 0 before the first rotation.
func (g *generations) known() keysRecord {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.record
}

// salts returns the salts of the keys that are accepted, that of the key in use first. The caller holds g.mu.
func (g *generations) salts(now time.Time) []string {
	all := []string{g.record.Current}
	if g.record.Next != "" {
		all = append(all, g.record.Next)
	}
	for _, k := range g.record.Retired {
		if seen, kept := g.retired[k.Salt]; kept && now.Sub(seen) < keysKept {
			all = append(all, k.Salt)
		}
	}
	return all
}

// ids returns what a Report says of the keys that are accepted.
func (g *generations) ids(now time.Time) (all []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, salt := range g.salts(now) {
		all = append(all, generationID(salt))
	}
	return all
}

// generationID names a key in a Report, which people and programs read: it tells nothing of the key.
func generationID(salt string) string {
	sum := sha256.Sum256([]byte("bowline generation " + salt))
	return hex.EncodeToString(sum[:8])
}

// secrets returns the keys for one purpose, the one in use first. It is asked for each request, so derive is called once for each key and record. Before the first
// rotation the key is the one that versions without rotation derive, so nodes of both understand each other until then.
func (g *generations) secrets(derive func(purpose string) []byte, purpose string, now time.Time) (all [][]byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, salt := range g.salts(now) {
		whole := purpose
		if salt != "" {
			whole += " rotated " + salt
		}
		key := g.derived[whole]
		if key == nil {
			key = derive(whole)
			if g.derived == nil {
				g.derived = map[string][]byte{}
			}
			g.derived[whole] = key
		}
		all = append(all, key)
	}
	return all
}
