package asking

import (
	"bytes"
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/go-json-experiment/json/jsontext"
)

// Between rounds, the client stores the state of a call. The state is sealed with
// AES-256-GCM, so that the client can neither read nor change it. The following data is
// authenticated but not stored: the server's name, the method, the name of the feature,
// its arguments, and the identity of the client. So no check can be forgotten, and no
// check makes the state longer (ADR-0031). The state of a call that goes on in one process begins with the
// name of its node, in clear and authenticated, so that every node can forward it there
// (ADR-0075).
// A sealed state is: a version and the name of the node, in clear; then, in base64, the id of the key, a random
// nonce, and what was encrypted. All of this counts for largestState, in both directions.
const (
	largestState = 64 << 10 // the maximum size of a sealed state, in bytes
	keyIDSize    = 4
)

// A Subject is the call that a state belongs to.
type Subject struct {
	Method    string
	Name      string // the name of the tool or prompt, or the URI of the resource
	Arguments any    // a json.RawMessage or a map[string]string; nil: there are none
	Identity  string // of the client
}

// A State is the content of a sealed state.
type State struct {
	ID      []byte                  `json:"i"`           // a random id; the state can be used once
	Call    string                  `json:"c"`           // Request.CallID
	Round   int                     `json:"r"`           // the number of rounds so far
	Until   int64                   `json:"u"`           // seconds since 1970, when the question expires
	End     int64                   `json:"e"`           // seconds since 1970, when the call expires
	Asked   map[string]Digest       `json:"a,omitzero"`  // digests of the questions, by key
	Answers protocol.InputResponses `json:"s,omitempty"` // for Reruns: the answers so far
	Own     json.RawMessage         `json:"o,omitzero"`  // for a handler that returns InputRequired: its own state
	Process string                  `json:"n,omitempty"` // the process in which the call goes on; "": any
	Again   bool                    `json:"g,omitempty"` // in Process the handler runs anew; else it waits there

	// Node is the name of the node that sealed it, in clear; only with a Process, and "" if nodes have no names.
	Node string `json:"-"`
}

// A Sealer seals with the first key of its keyring, and opens with all keys.
type Sealer struct {
	Audience string
	Node     string // the name of this node, or ""
	Keyring  *Keyring
}

// A Keyring derives keys from secrets that may change. It derives them again only when the
// secrets are not the same, byte for byte.
type Keyring struct {
	Secrets func() [][]byte
	Report  func(error) // is called when the secrets cannot be used, once until they change; nil: nobody is told
	latest  atomic.Pointer[derivedKeys]
}

// derivedKeys are the keys of some secrets, or the reason why there are none.
type derivedKeys struct {
	secrets [][]byte // copies
	keys    []sealKey
	err     error
}

type sealKey struct {
	id   [keyIDSize]byte
	aead cipher.AEAD
}

// Check fails if there are no valid secrets now.
func (k *Keyring) Check() error {
	_, err := k.now()
	return err
}

// now returns the keys of the present secrets, at least one.
// It may be called by any goroutine. If several find that the secrets have changed, each derives its own keys, which
// are equal, and the one whose keys are kept reports what is wrong with them.
func (k *Keyring) now() ([]sealKey, error) {
	secrets, latest := k.Secrets(), k.latest.Load()
	if latest == nil || !slices.EqualFunc(latest.secrets, secrets, bytes.Equal) {
		next := deriveKeys(secrets)
		if k.latest.CompareAndSwap(latest, next) && next.err != nil && k.Report != nil {
			k.Report(next.err)
		}
		latest = next
	}
	return latest.keys, latest.err
}

// deriveKeys does not go on with the secrets that are good if one is bad: the mistake would stay unseen until that one
// is the only one. The secrets are copied, since the program may overwrite its own, and a change would not be seen then.
func deriveKeys(secrets [][]byte) *derivedKeys {
	d := new(derivedKeys)
	for _, secret := range secrets {
		key, err := deriveKey(secret)
		d.err = cmp.Or(d.err, err)
		d.keys, d.secrets = append(d.keys, key), append(d.secrets, bytes.Clone(secret))
	}
	if len(secrets) == 0 {
		d.err = errors.New("there is no secret")
	}
	return d
}

func deriveKey(secret []byte) (key sealKey, err error) {
	if len(secret) < 32 {
		return key, fmt.Errorf("a secret has %d bytes, which is less than 32", len(secret))
	}
	// The label keeps these keys apart from whatever else a program derives from the same secret. The id comes from
	// it, too, and tells nothing about the key.
	derived, err := hkdf.Key(sha256.New, secret, nil, "bowline requestState", 32+keyIDSize)
	if err != nil {
		return key, err
	}
	block, err := aes.NewCipher(derived[:32])
	if err != nil {
		return key, err
	}
	key.id = [keyIDSize]byte(derived[32:])
	key.aead, err = cipher.NewGCMWithRandomNonce(block)
	return key, err
}

// noSecret returns the answer to a call whose state cannot be sealed or opened. The client
// learns no more; the log does.
func noSecret() *jsonrpc.Error {
	return refusal.New(jsonrpc.CodeInternalError, "the server has no valid secret for the state of the call")
}

// bound returns the authenticated data for a state of this call that names a node, or "".
// Two calls have the same data only if they are the same in all parts: each part stands behind its length.
func (s *Sealer) bound(about Subject, node string, key [keyIDSize]byte) ([]byte, error) {
	arguments := jsontext.Value("{}")
	if about.Arguments != nil {
		raw, err := protocol.Marshal(about.Arguments)
		if err != nil {
			return nil, err
		}
		arguments = jsontext.Value(raw)
		if len(raw) == 0 || raw[0] == 'n' { // no arguments and an empty object are the same
			arguments = jsontext.Value("{}")
		}
		// A client may write the members in another order in the next round, or numbers in another form.
		if err := arguments.Canonicalize(); err != nil {
			return nil, err
		}
	}
	sum := sha256.New()
	for _, part := range []string{s.Audience, about.Method, about.Name, string(arguments), about.Identity} {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return sum.Sum(append([]byte(nodename.StateVersion+nodename.Join(node, "")), key[:]...)), nil
}

// Seal returns the sealed form of a state, and sets its Node.
func (s *Sealer) Seal(about Subject, st *State) (string, error) {
	plain, err := protocol.Marshal(st)
	if err != nil {
		return "", err
	}
	// Only a handler that waits, or says so, ties the call to this node. The next round of any other call may go to
	// every node, and must not be sent here.
	if st.Node = ""; st.Process != "" {
		st.Node = s.Node
	}
	keys, err := s.Keyring.now()
	if err != nil {
		return "", noSecret()
	}
	key := keys[0]
	bound, err := s.bound(about, st.Node, key.id)
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString(key.aead.Seal(key.id[:], nil, plain, bound))
	sealed := nodename.StateVersion + nodename.Join(st.Node, text)
	// Open would refuse it. So the call fails now, with a reason, and not when its user has answered.
	if len(sealed) > largestState {
		return "", fmt.Errorf("server: the state of the call has %d bytes, which is more than %d", len(sealed), largestState)
	}
	return sealed, nil
}

// Open opens a state, if it was sealed for this call and has not expired.
// It has no effect: MayGoOn uses the state up. Each reason has the same answer, apart from a server without secrets,
// so whoever tries out states does not learn how far they get.
func (s *Sealer) Open(about Subject, sealed string) (*State, error) {
	node := nodename.OfState(sealed)
	text, ok := strings.CutPrefix(sealed, nodename.StateVersion+nodename.Join(node, ""))
	if !ok || len(sealed) > largestState {
		return nil, Refuse("invalid or expired requestState")
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) < keyIDSize {
		return nil, Refuse("invalid or expired requestState")
	}
	keys, err := s.Keyring.now()
	if err != nil {
		return nil, noSecret()
	}
	for _, key := range keys {
		// The secret of an older state may have moved down in the list, so all keys are looked at; only the one with
		// the id decrypts.
		if [keyIDSize]byte(raw[:keyIDSize]) != key.id {
			continue
		}
		bound, err := s.bound(about, node, key.id)
		if err != nil {
			return nil, err
		}
		plain, err := key.aead.Open(nil, nil, raw[keyIDSize:], bound)
		if err != nil {
			break
		}
		st := &State{Node: node}
		// The times are in what is encrypted, so a client cannot extend them. The earlier one holds: that of the
		// question, or that of the call.
		if protocol.Unmarshal(plain, st) != nil || time.Now().Unix() >= min(st.Until, st.End) {
			break
		}
		return st, nil
	}
	return nil, Refuse("invalid or expired requestState")
}

// A StateError is the answer to a state that cannot be used. Other servers give such answers, too, and who passes those on must not
// take them for its own.
type StateError struct{ fault *jsonrpc.Error }

// Refuse returns the answer to a state that cannot be used. No text of a peer may be in it: it goes into records.
func Refuse(why string) *StateError {
	return &StateError{protocol.InvalidParams(protocol.ReasonRequestState, why)}
}

func (e *StateError) Error() string { return e.fault.Error() }

func (e *StateError) Unwrap() error { return e.fault }

// StateRefused returns why the state cannot be used. A gateway finds it in the error of a request by this method.
func (e *StateError) StateRefused() string { return e.fault.Message }
