//bowline:pure

package audit

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"strings"
	"time"
)

// Version is the version of the format. Members may be added to it: who reads a trail leaves out those that it does not know, and whether a line is as it was written depends on its text only.
const Version = 1

// A Record says what one request has come to, or what has happened to the trail or the gateway. There are no headers, tokens or results in it.
type Record struct {
	Version int       `json:"v"`
	Number  uint64    `json:"n"`
	Time    time.Time `json:"time"` // when the request came
	Node    string    `json:"node,omitempty"`

	// Event says that this is no request: one of the events, or an action of a person with Server as its object.
	Event string `json:"event,omitempty"`
	Count uint64 `json:"count,omitzero"` // of what the event is about

	Principal string `json:"principal,omitempty"` // the identity that a login has established; "": nobody has logged in
	User      string `json:"user,omitempty"`      // the name that the login gives the principal, for people: two may have the same
	Address   string `json:"address,omitempty"`
	Client    string `json:"client,omitempty"` // program and version, as it says itself
	Revision  string `json:"revision,omitempty"`
	ID        string `json:"id,omitempty"` // of the request

	// Trace and Span are what the request belongs to for OpenTelemetry, as W3C Trace Context writes their ids: the span of this program, if it makes one, or else that of the client.
	Trace string `json:"trace,omitempty"`
	Span  string `json:"span,omitempty"`

	Method   string  `json:"method,omitempty"`
	Name     string  `json:"name,omitempty"`   // what the client has called: a tool, a prompt, a URI; of a logout, whose it was
	Server   string  `json:"server,omitempty"` // that it was passed on to; "": to none
	Own      string  `json:"own,omitempty"`    // what the server calls it
	Rule     string  `json:"rule,omitempty"`   // that decided
	Outcome  string  `json:"outcome,omitempty"`
	Code     int64   `json:"code,omitzero"`      // of the error in the answer
	Status   int     `json:"status,omitzero"`    // of HTTP, if the request did not get further
	Delivery string  `json:"delivery,omitempty"` // whether the server may have executed it, if it has not answered
	Reason   string  `json:"reason,omitempty"`
	Millis   float64 `json:"ms,omitzero"`
	Bytes    int     `json:"bytes,omitzero"` // of the params
	Out      int     `json:"out,omitzero"`   // bytes of the result of the server, with what was added to it, and without what the client's revision adds

	Shown     json.RawMessage `json:"shown,omitempty"` // values of arguments that the file names, by their names
	Arguments string          `json:"args,omitempty"`  // a keyed digest of the params: equal ones have equal digests

	Previous string `json:"prev"` // SHA-256 of the line before; empty in the first one
}

// longestText is how much is kept of what others have written, in bytes.
const longestText = 512

// bound cuts texts, so that nobody fills the trail with one request.
func (r *Record) bound() {
	for _, text := range []*string{&r.Event, &r.Principal, &r.User, &r.Address, &r.Client, &r.Revision, &r.ID, &r.Trace, &r.Span, &r.Method, &r.Name, &r.Server, &r.Own, &r.Rule, &r.Reason} {
		if len(*text) > longestText {
			*text = strings.ToValidUTF8((*text)[:longestText], "") + "…"
		}
	}
}

// The events of a trail.
const (
	EventStarted = "started" // a process has opened the trail
	EventStopped = "stopped" // it has closed it; without that before the next start, up to the size of its queue is missing
	EventLost    = "lost"    // Count records were dropped, since the queue was full or the disk was
	EventDenied  = "denied"  // Count requests of somebody without a login were denied, and have no record
	EventTorn    = "torn"    // the process before was killed while it wrote: Count bytes that are no record were set aside
	EventMoved   = "moved"   // somebody has moved or emptied the file while it was written, as programs do that rotate logs: Count records are not where they were
	EventCut     = "cut"     // the trail ends before the record that was the newest: Count are missing, or it is not known how many
)

// mark begins the last member of a line, which is over everything before it.
const mark = `,"mac":"`

// A sealer writes lines. It uses its memory again for each of them, since a busy gateway writes many thousands in a second.
type sealer struct {
	mac    hash.Hash
	text   bytes.Buffer
	json   *json.Encoder
	record Record // here, since a record that is handed to an encoder is copied to the heap
	sum    [sha256.Size]byte
}

// newSealer keys the hash once: to do that for each line would cost more than the line.
func newSealer(key []byte) *sealer {
	s := &sealer{mac: hmac.New(sha256.New, key)}
	s.json = json.NewEncoder(&s.text)
	return s
}

// seal returns the line of a record, without a line break. It holds until the next one.
func (s *sealer) seal(r Record) ([]byte, error) {
	s.text.Reset()
	s.record = r
	if err := s.json.Encode(&s.record); err != nil {
		return nil, err
	}
	s.text.Truncate(s.text.Len() - len("}\n")) // the mark takes the place of what ends the object
	s.mac.Reset()
	s.mac.Write(s.text.Bytes())
	s.text.WriteString(mark)
	s.text.Write(hex.AppendEncode(s.text.AvailableBuffer(), s.mac.Sum(s.sum[:0])))
	s.text.WriteString(`"}`)
	return s.text.Bytes(), nil
}

// mac is for what is rare: lines that are read, and the note of the newest.
func mac(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)
}

// unseal reads a line, and fails if nobody with the key has written it, letter for letter: the hash in the next line is over these letters.
func unseal(key []byte, line string) (r Record, err error) {
	i := strings.LastIndex(line, mark)
	if i < 0 {
		return r, errors.New("it is no record")
	}
	if end := hex.EncodeToString(mac(key, []byte(line[:i]))) + `"}`; !hmac.Equal([]byte(line[i+len(mark):]), []byte(end)) {
		return r, errors.New("it was changed, or written by somebody without the key")
	}
	if err := json.Unmarshal([]byte(line[:i]+"}"), &r); err != nil {
		return r, err
	}
	if r.Version != Version {
		return r, fmt.Errorf("its version is %d, and this program knows %d", r.Version, Version)
	}
	return r, nil
}

// hashOf returns what the next line says of this one.
func hashOf(line []byte) string {
	sum := sha256.Sum256(line)
	var digits [2 * len(sum)]byte
	hex.Encode(digits[:], sum[:])
	return string(digits[:])
}

// A BrokenError names the first record of a trail that is wrong.
type BrokenError struct {
	Path   string
	Line   int    // of the file, from 1
	Number uint64 // of the last record that is right; 0: there is none
	Why    string
}

// Error implements error.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("%s:%d: after record %d: %s", e.Path, e.Line, e.Number, e.Why)
}
