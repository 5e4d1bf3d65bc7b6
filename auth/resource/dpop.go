package resource

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/auth/internal/dpop"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/go-jose/go-jose/v4"
)

const (
	// proofAge is the maximum difference between the time of a proof and now.
	proofAge = 5 * time.Minute

	// maxProofs is how many proofs are remembered, so that none is accepted twice.
	// Beyond nonceProofs, clients need a nonce, because proofs with a nonce need to be
	// remembered for a shorter time.
	maxProofs   = 250_000
	nonceProofs = 50_000

	// maxKeyProofs and nonceKeyProofs are the same for the proofs of one key.
	maxKeyProofs   = maxProofs / 10
	nonceKeyProofs = nonceProofs / 10

	// proofStep is the precision of the time when a proof can be forgotten.
	proofStep = 5 // seconds

	// nonceLife is how long a nonce is the newest. The one before it is also accepted.
	nonceLife = 30 * time.Second

	maxID = 256 // the maximum length of a jti, in bytes
)

// proofs checks DPoP proofs (RFC 9449 §4.3), and accepts each of them once.
type proofs struct {
	url     string          // the URL of the server in canonical form
	nonces  bool            // whether a nonce is always required
	shared  Proofs          // Options.DPoPProofs; nil if this node shares no proofs
	secrets func() [][]byte // what nonces are derived from: new ones from the first

	mu      sync.Mutex
	used    map[int64]map[ProofID]*prover // proofs by the step in which they expire
	provers map[string]*prover            // keys by thumbprint
	count   int
}

// A prover is a key with remembered proofs.
type prover struct {
	thumbprint string
	count      int
}

// newProofs derives nonces from secrets, or from a random one if secrets is nil.
func newProofs(url string, nonces bool, secrets func() [][]byte) *proofs {
	if secrets == nil {
		own := make([]byte, minSecret)
		_, _ = rand.Read(own) // which never fails
		secrets = func() [][]byte { return [][]byte{own} }
	}
	return &proofs{url: url, nonces: nonces, secrets: secrets, used: make(map[int64]map[ProofID]*prover), provers: make(map[string]*prover)}
}

// A proof contains the claims of a proof.
type proof struct {
	ID       string `json:"jti"`
	Method   string `json:"htm"`
	URL      string `json:"htu"`
	IssuedAt date   `json:"iat"`
	Token    string `json:"ath"`
	Nonce    string `json:"nonce"`
}

func invalidProof(text string) denial { return denial{code: "invalid_dpop_proof", text: text} }

// check checks that a request has a valid proof for this request, its token, and the key
// of the token. The error is a fault.
func (s *proofs) check(r *http.Request, token, thumbprint string) error {
	values := r.Header["Dpop"]
	if len(values) != 1 || len(values[0]) > maxToken {
		return invalidProof("one proof is needed")
	}
	claims, err := readProof(values[0], thumbprint)
	if err != nil {
		return err
	}
	now := time.Now()
	if err := s.fits(claims, r, token, now); err != nil {
		return err
	}
	if s.shared != nil && streamable.CheckedBefore(r) { // then this request has used it
		return nil
	}
	id, expires, err := s.use(now, thumbprint, claims)
	if err != nil || s.shared == nil {
		return err
	}
	return s.useShared(r.Context(), id, expires)
}

// fits checks that a proof is for this request and token, and was made just now.
func (s *proofs) fits(claims *proof, r *http.Request, token string, now time.Time) error {
	at := claims.IssuedAt.Time
	switch {
	case claims.Method != r.Method || !s.isServerURL(claims.URL):
		return invalidProof("the proof is for another request")
	case claims.Token != dpop.TokenHash(token):
		return invalidProof("the proof is for another token")
	case claims.ID == "" || len(claims.ID) > maxID:
		return invalidProof("the proof has no id, or one that is too long")
	case at.IsZero() || at.Before(now.Add(-proofAge)) || at.After(now.Add(proofAge)):
		return invalidProof("the proof is too old, or from the future")
	}
	return nil
}

// useShared remembers a proof for all nodes, unless one of them has accepted it
// already.
func (s *proofs) useShared(ctx context.Context, id ProofID, until time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	fresh, err := s.shared.Take(ctx, id, until)
	switch {
	case err != nil:
		return unavailable("it cannot be found out now whether the proof was used before")
	case !fresh:
		return errUsedBefore
	}
	return nil
}

var errUsedBefore = invalidProof("the proof was used before")

// readProof checks the signature of a proof with the key in the proof, if that key has
// the thumbprint. Signatures by other keys are not checked, because that may be
// expensive.
func readProof(text, thumbprint string) (*proof, error) {
	key, err := keyOf(text, thumbprint)
	if err != nil {
		return nil, err
	}
	signed, err := jose.ParseSignedCompact(text, algorithms())
	if err != nil {
		return nil, invalidProof("the proof is malformed")
	}
	payload, err := signed.Verify(key)
	if err != nil {
		return nil, invalidProof("the signature of the proof is wrong")
	}
	claims := new(proof)
	if protocol.Unmarshal(payload, claims) != nil {
		return nil, invalidProof("the claims of the proof cannot be read")
	}
	return claims, nil
}

// keyOf returns the key in the header of a proof.
func keyOf(text, thumbprint string) (*jose.JSONWebKey, error) {
	header, err := readHeader(text)
	key := new(jose.JSONWebKey)
	switch {
	case err != nil:
		return nil, invalidProof("the header of the proof is not accepted")
	case header.Type != dpop.Type:
		return nil, invalidProof("the proof is of another type")
	case len(header.Public) == 0 || key.UnmarshalJSON(header.Public) != nil || !isUsable(*key, header.Algorithm):
		return nil, invalidProof("the proof has no public key that fits its algorithm")
	}
	if of, err := dpop.Thumbprint(key); err != nil || of != thumbprint {
		return nil, invalidProof("the proof is of another key than the token")
	}
	return key, nil
}

// isServerURL compares the URL of a proof, without query and fragment, with the server's.
func (s *proofs) isServerURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	u.RawQuery, u.Fragment, u.ForceQuery = "", "", false
	return canonical(u.String()) == s.url
}

// use remembers a proof. It fails if the proof was used before or lacks a nonce. It
// returns when the proof can be forgotten.
func (s *proofs) use(now time.Time, thumbprint string, p *proof) (id ProofID, expires time.Time, err error) {
	secrets := s.secrets() // a function of the program, so not with the mutex held
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeExpired(now)
	by := s.provers[thumbprint]
	if by == nil {
		by = &prover{thumbprint: thumbprint}
	}
	expires = p.IssuedAt.Add(proofAge)
	if s.nonces || s.count >= nonceProofs || by.count >= nonceKeyProofs || p.Nonce != "" {
		known := false
		if expires, known = s.nonceExpiry(secrets, p.Nonce, now); !known {
			return id, expires, s.needsNonce(secrets, now)
		}
	}
	id = s.idOf(thumbprint, p)
	if s.wasUsed(id) {
		return id, expires, errUsedBefore
	}
	return id, expires, s.remember(id, by, expires)
}

// wasUsed reports whether a proof is remembered. The caller holds the mutex.
func (s *proofs) wasUsed(id ProofID) bool {
	for _, taken := range s.used {
		if _, before := taken[id]; before {
			return true
		}
	}
	return false
}

func (s *proofs) idOf(thumbprint string, p *proof) ProofID {
	hash := sha256.Sum256([]byte(s.url + " " + thumbprint + " " + p.ID))
	return ProofID(hash[:])
}

// remember keeps a proof until it has expired, if there is room for it. The caller holds the mutex.
func (s *proofs) remember(id ProofID, by *prover, expires time.Time) error {
	switch {
	case by.count >= maxKeyProofs:
		return denial{text: "the client sends more proofs than can be remembered", tooMany: true}
	case s.count >= maxProofs:
		return unavailable("too many proofs are remembered")
	}
	step := expires.Unix()/proofStep + 1
	if s.used[step] == nil {
		s.used[step] = make(map[ProofID]*prover)
	}
	s.used[step][id] = by
	s.provers[by.thumbprint] = by
	by.count++
	s.count++
	return nil
}

func (s *proofs) removeExpired(now time.Time) {
	for step, taken := range s.used {
		if step*proofStep >= now.Unix() {
			continue
		}
		for _, by := range taken {
			if by.count--; by.count == 0 {
				delete(s.provers, by.thumbprint)
			}
		}
		s.count -= len(taken)
		delete(s.used, step)
	}
}

// needsNonce returns the denial of a proof without a valid nonce, with one to use.
func (s *proofs) needsNonce(secrets [][]byte, now time.Time) denial {
	if len(secrets) == 0 || len(secrets[0]) < minSecret {
		return unavailable("there is no secret for nonces")
	}
	return denial{code: "use_dpop_nonce", text: "the proof needs a nonce of this server", nonce: s.nonce(secrets[0], now, 0)}
}

// nonce returns the nonce of a secret for a time, or the one so many lives before it.
func (s *proofs) nonce(secret []byte, now time.Time, before int64) string {
	key := hmac.New(sha256.New, secret)
	key.Write([]byte("nonces of DPoP at " + s.url)) // another server may use the same secret
	sum := hmac.New(sha256.New, key.Sum(nil))
	sum.Write(binary.BigEndian.AppendUint64(nil, uint64(now.Unix()/int64(nonceLife/time.Second)-before)))
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:16])
}

// nonceExpiry returns when proofs with a nonce expire. It reports false if the nonce is not
// valid now.
func (s *proofs) nonceExpiry(secrets [][]byte, nonce string, now time.Time) (time.Time, bool) {
	for _, secret := range secrets {
		if len(secret) < minSecret {
			continue // anybody could guess its nonces
		}
		for before := range int64(2) {
			if subtle.ConstantTimeCompare([]byte(nonce), []byte(s.nonce(secret, now, before))) == 1 {
				return now.Truncate(nonceLife).Add(time.Duration(2-before) * nonceLife), true
			}
		}
	}
	return time.Time{}, false
}

func pathOf(address string) string {
	_, rest, _ := strings.Cut(address, "://")
	_, path, _ := strings.Cut(rest, "/")
	return "/" + path
}
