package resource

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A proofModel is what a server must know of the proofs that it has accepted.
type proofModel struct {
	s        *proofs
	now      time.Time
	sent     int
	accepted []acceptedProof
}

type acceptedProof struct {
	key, id string
	until   time.Time // when it can be forgotten
}

// No proof is accepted twice as long as it is valid, whatever nonce it comes with the second time. Each
// proof that is new is accepted, with a nonce if its key has sent many, and none is remembered for longer
// than it is valid.
//
// Guarantees: G-0046.7, G-0046.11
func TestProofsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &proofModel{s: newProofs("https://mcp.example/mcp", rapid.Bool().Draw(t, "nonces"), nil), now: time.Unix(1e9, 0)}
		t.Repeat(map[string]func(*rapid.T){
			"new":   func(t *rapid.T) { m.send(t, m.next()) },
			"burst": m.burst,
			"again": func(t *rapid.T) {
				if len(m.accepted) == 0 {
					t.Skip("none was accepted")
				}
				m.send(t, m.accepted[rapid.IntRange(max(0, len(m.accepted)-3), len(m.accepted)-1).Draw(t, "proof")])
			},
			"pass": func(t *rapid.T) {
				m.now = m.now.Add(rapid.SampledFrom([]time.Duration{time.Second, 29 * time.Second, 30 * time.Second, 4 * time.Minute, 11 * time.Minute}).Draw(t, "time"))
			},
		})
	})
}

func (m *proofModel) next() acceptedProof {
	m.sent++
	return acceptedProof{key: "key", id: fmt.Sprint(m.sent)}
}

// remembered returns how many proofs are valid, and how many may still be remembered.
func (m *proofModel) remembered() (valid, most int) {
	for _, p := range m.accepted {
		if p.until.After(m.now) {
			valid++
		}
		if p.until.After(m.now.Add(-2 * proofStep * time.Second)) {
			most++
		}
	}
	return valid, most
}

// send sends a proof of any age, with a nonce or without.
func (m *proofModel) send(t *rapid.T, p acceptedProof) {
	at := m.now.Add(time.Duration(rapid.IntRange(-290, 290).Draw(t, "age")) * time.Second)
	nonce, slot := "", m.now.Truncate(nonceLife)
	which := rapid.IntRange(-1, 2).Draw(t, "nonce before") // -1: none
	if which >= 0 {
		nonce = m.s.nonce(m.s.secrets()[0], m.now, int64(which))
	}
	valid, most := m.remembered()
	before := false
	for _, old := range m.accepted {
		before = before || old.id == p.id && old.until.After(m.now)
	}
	err := take(m.s, m.now, p.key, &proof{ID: p.id, IssuedAt: date{at}, Nonce: nonce})
	var f denial
	asksNonce := errors.As(err, &f) && f.code == "use_dpop_nonce"
	goodNonce := which == 0 || which == 1
	needed := m.s.nonces || valid >= nonceKeyProofs || which == 2
	mayNeed := needed || most >= nonceKeyProofs
	switch {
	case err == nil && before:
		t.Fatal("a proof is accepted twice")
	case err == nil && needed && !goodNonce:
		t.Fatal("a proof is accepted without a nonce")
	case asksNonce && (goodNonce || !mayNeed):
		t.Fatalf("another nonce is required of a proof with nonce %d, while %d proofs are remembered", which, most)
	case err != nil && !asksNonce && !before && valid < maxKeyProofs && most == valid:
		t.Fatalf("a new proof gets %v", err)
	}
	if m.s.count > most+1 {
		t.Fatalf("%d proofs are remembered, want at most %d", m.s.count, most+1)
	}
	if err == nil {
		p.until = at.Add(proofAge)
		if goodNonce {
			p.until = slot.Add(time.Duration(2-which) * nonceLife)
		}
		m.accepted = append(m.accepted, p)
	}
}

// burst sends many proofs of now with the newest nonce.
func (m *proofModel) burst(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "rare") > 0 {
		t.Skip("it takes long")
	}
	nonce := m.s.nonce(m.s.secrets()[0], m.now, 0)
	for range 2600 {
		p := m.next()
		if err := take(m.s, m.now, p.key, &proof{ID: p.id, IssuedAt: date{m.now}, Nonce: nonce}); err != nil {
			if valid, _ := m.remembered(); valid < maxKeyProofs-2600 {
				t.Fatalf("a new proof gets %v", err)
			}
			return
		}
		p.until = m.now.Truncate(nonceLife).Add(2 * nonceLife)
		m.accepted = append(m.accepted, p)
	}
}
