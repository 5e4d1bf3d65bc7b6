//bowline:pure

package asking

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"

	"github.com/bowline-mcp/bowline/protocol"
)

// ErrKeyUsed means that a call asked two different questions under one key.
var ErrKeyUsed = errors.New("server: the key belongs to another question of this call")

// Fits returns an error if an answer does not fit its question.
type Fits func(key string, q protocol.InputRequest, answer protocol.InputResponse) error

// An Exchange is what one call has asked, and what it was answered:
//
//	Ask     a question is new, open again (a round without its answer), or answered at once
//	Answer  what a courier has brought
//	Round   the courier is about to bother the client once more
//	Forget  the handler begins anew, with answers in hand
//
// A key names one question for the life of the exchange. The same question under it has the same answer, and
// is not asked twice; another question under it is an error of the program. An answer is only ever taken for a question
// that was asked: what a client says beforehand waits in early until a question has its key.
//
// The zero value has asked nothing.
type Exchange struct {
	asked    map[string]Digest
	answered protocol.InputResponses
	early    protocol.InputResponses // what the client has said before it was asked
	once     bool                    // early is for the first questions only
	rounds   int
}

// SetEarly sets what the client has said before it was asked. If once, that is for the first questions
// only: later ones may have the same key by chance.
func (x *Exchange) SetEarly(early protocol.InputResponses, once bool) { x.early, x.once = early, once }

// Resume sets what an earlier round has asked. Whoever asks something else now has changed its mind between two
// rounds, which must not be mistaken for an answer.
func (x *Exchange) Resume(asked map[string]Digest) { x.asked = asked }

// Follow makes an exchange go on where another one is, which goes on by itself, with what the client has
// said so far. Its answers have to fit once more, because here nobody has checked them.
func (x *Exchange) Follow(other *Exchange) {
	x.asked, x.early, x.once = maps.Clone(other.asked), other.early, false
}

// Forget begins anew: in the next round of a handler that keeps its own state, the same key may name another question.
func (x *Exchange) Forget() { x.asked, x.answered = nil, nil }

// Ask records questions, and returns those that a courier must bring to the client: all without an answer. It fails
// with ErrKeyUsed, or if what the client has said before does not fit. What was recorded until then stays.
func (x *Exchange) Ask(asked protocol.InputRequests, fits Fits) (open protocol.InputRequests, err error) {
	open, err = x.record(asked)
	if err != nil {
		return nil, err
	}
	for key, q := range open {
		answer, ok := x.early[key]
		if !ok {
			continue
		}
		if err := fits(key, q, answer); err != nil {
			return nil, err
		}
		x.Answer(protocol.InputResponses{key: answer})
		delete(open, key)
	}
	if x.once {
		x.early = nil
	}
	return open, nil
}

// record notes questions, and returns those without an answer, in a map of their own.
func (x *Exchange) record(asked protocol.InputRequests) (open protocol.InputRequests, err error) {
	if x.asked == nil {
		x.asked = make(map[string]Digest)
	}
	for key, q := range asked {
		d, err := digestOf(q)
		if err != nil {
			return nil, err
		}
		if before, ok := x.asked[key]; ok && before != d {
			return nil, fmt.Errorf("%w: %q", ErrKeyUsed, key)
		}
		x.asked[key] = d
		if _, answered := x.answered[key]; !answered {
			if open == nil {
				open = make(protocol.InputRequests)
			}
			open[key] = q
		}
	}
	return open, nil
}

// Answer records answers that a courier has brought. It has checked that they fit.
func (x *Exchange) Answer(answers protocol.InputResponses) {
	if x.answered == nil {
		x.answered = make(protocol.InputResponses)
	}
	maps.Copy(x.answered, answers)
}

// Answers returns the answers to some questions.
func (x *Exchange) Answers(asked protocol.InputRequests) protocol.InputResponses {
	all := make(protocol.InputResponses, len(asked))
	for key := range asked {
		all[key] = x.answered[key]
	}
	return all
}

// Asked returns what identifies each question. It is shared.
func (x *Exchange) Asked() map[string]Digest { return x.asked }

// Known returns the answers to the questions that were asked, also those that this run of the handler has not come
// to, and no other answers: what a client says without being asked is not carried along.
func (x *Exchange) Known() protocol.InputResponses {
	all := make(protocol.InputResponses)
	for key := range x.asked {
		if answer, ok := x.answered[key]; ok {
			all[key] = answer
		} else if answer, ok := x.early[key]; ok {
			all[key] = answer
		}
	}
	return all
}

// Round counts that the client is bothered once more. It reports false, and how often it was before, if that is
// more than it has to bear. A handler that asks for ever ends there.
func (x *Exchange) Round(most int) (before int, ok bool) {
	x.rounds++
	return x.rounds - 1, x.rounds <= most
}

// Questions are what is at the client now, and its answers so far. They do not change: an
// answer makes new ones. So whoever waits for the last answer and whoever takes answers need no lock between them.
type Questions struct {
	open  protocol.InputRequests
	got   protocol.InputResponses // by the keys of the handler
	names map[string]string       // the key that the handler used, for each key in open; nil: the same
}

// pose returns questions without an answer.
func pose(open protocol.InputRequests) *Questions {
	return &Questions{open: open, got: make(protocol.InputResponses)}
}

// PoseAs does what pose does, under keys that were not used before, which it adds to used. A client of a task may send
// an answer late, and it must not be taken for that to another question.
func PoseAs(open protocol.InputRequests, used map[string]bool) *Questions {
	q := pose(make(protocol.InputRequests, len(open)))
	q.names = make(map[string]string, len(open))
	for name, one := range open {
		key := name
		for n := 2; used[key]; n++ {
			key = fmt.Sprintf("%s-%d", name, n)
		}
		used[key] = true
		q.open[key], q.names[key] = one, name
	}
	return q
}

// Open returns the questions without an answer. They are shared.
func (q *Questions) Open() protocol.InputRequests { return q.open }

// Answered returns the answers, by the keys of the handler, and whether nothing is open any more. The answers are
// shared.
func (q *Questions) Answered() (answers protocol.InputResponses, all bool) {
	return q.got, len(q.open) == 0
}

// Answer takes the answers to open questions, and ignores others. It takes none if one of them does not fit: the
// client then sends all of them again, and those which fit must not have been used up. It reports
// whether it took any.
func (q *Questions) Answer(answers protocol.InputResponses, fits Fits) (next *Questions, taken bool, err error) {
	next = &Questions{open: maps.Clone(q.open), got: maps.Clone(q.got), names: q.names}
	for key, answer := range answers {
		one, open := q.open[key]
		if !open {
			continue
		}
		if err := fits(key, one, answer); err != nil {
			return q, false, err
		}
		name := key
		if q.names != nil {
			name = q.names[key]
		}
		delete(next.open, key)
		next.got[name], taken = answer, true
	}
	return next, taken, nil
}

// A Digest identifies the content of a question.
type Digest [12]byte

func digestOf(q protocol.InputRequest) (d Digest, err error) {
	raw, err := protocol.Marshal(q)
	if err != nil {
		return d, err
	}
	sum := sha256.Sum256(append(append([]byte(q.Method()), 0), raw...))
	copy(d[:], sum[:])
	return d, nil
}

// MarshalText and UnmarshalText keep a digest short in JSON.
func (d Digest) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, d[:]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(text []byte) error {
	raw, err := base64.RawURLEncoding.DecodeString(string(text))
	if err != nil || copy(d[:], raw) != len(d) {
		return fmt.Errorf("server: %q is no digest", text)
	}
	return nil
}
