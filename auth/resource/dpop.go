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
	"github.com/go-jose/go-jose/v4"
)

const (
	// proofAge is the maximum difference between the time of a proof and now.
	proofAge = 5 * time.Minute

	// mostProofs is how many proofs are remembered, so that none is accepted twice.
	// Beyond manyProofs, clients need a nonce, because proofs with a nonce need to be
	// remembered for a shorter time.
	mostProofs = 250_000
	manyProofs = 50_000

	// mostOfKey and manyOfKey are the same for the proofs of one key.
	mostOfKey = mostProofs / 10
	manyOfKey = manyProofs / 10

	// proofStep is the precision of the time when a proof can be forgotten.
	proofStep = 5 // seconds

	// nonceLife is how long a nonce is the newest. The one before it is also accepted.
	nonceLife = 30 * time.Second

	largestID = 256 // the maximum length of a jti, in bytes
)

// proofs checks DPoP proofs (RFC 9449 §4.3), and accepts each of them once.
type proofs struct {
	url    string // the URL of the server in canonical form
	nonces bool   // whether a nonce is always required
	shared Proofs // Options.DPoPProofs; nil if this node shares no proofs
	secret [32]byte

	mu    sync.Mutex
	taken map[int64]map[ProofID]*prover // proofs by the step in which they expire
	of    map[string]*prover            // keys by thumbprint
	count int
	swept int64 // the second in which expired proofs were last forgotten
}

// A prover is a key with remembered proofs.
type prover struct {
	thumbprint string
	count      int
}

// newProofs derives nonces from a secret, or from a random one if it is empty. It does
// not keep the slice.
func newProofs(url string, nonces bool, secret []byte) *proofs {
	p := &proofs{url: url, nonces: nonces, taken: make(map[int64]map[ProofID]*prover), of: make(map[string]*prover)}
	if len(secret) == 0 {
		rand.Read(p.secret[:]) // rand.Read never fails
		return p
	}
	sum := hmac.New(sha256.New, secret)
	sum.Write([]byte("nonces of DPoP at " + url)) // another server may use the same secret
	copy(p.secret[:], sum.Sum(nil))
	return p
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

func invalidProof(text string) fault { return fault{code: "invalid_dpop_proof", text: text} }

// check checks that a request has a valid proof for this request, its token, and the key
// of the token. The error is a fault.
func (s *proofs) check(r *http.Request, token, thumbprint string) error {
	values := r.Header["Dpop"]
	if len(values) != 1 || len(values[0]) > largestToken {
		return invalidProof("one proof is needed")
	}
	claims, err := readProof(values[0], thumbprint)
	if err != nil {
		return err
	}
	now := time.Now()
	at := claims.IssuedAt.Time
	switch {
	case claims.Method != r.Method || !s.isHere(claims.URL):
		return invalidProof("the proof is for another request")
	case claims.Token != dpop.TokenHash(token):
		return invalidProof("the proof is for another token")
	case claims.ID == "" || len(claims.ID) > largestID:
		return invalidProof("the proof has no id, or one that is too long")
	case at.IsZero() || at.Before(now.Add(-proofAge)) || at.After(now.Add(proofAge)):
		return invalidProof("the proof is too old, or from the future")
	}
	id, outdated, err := s.take(now, thumbprint, claims)
	if err != nil || s.shared == nil {
		return err
	}
	return s.takeForAll(r.Context(), id, outdated)
}

// takeForAll remembers a proof for all nodes, unless one of them has accepted it
// already.
func (s *proofs) takeForAll(ctx context.Context, id ProofID, until time.Time) error {
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
	header, err := readHeader(text)
	key := new(jose.JSONWebKey)
	switch {
	case err != nil:
		return nil, invalidProof("the header of the proof is not accepted")
	case header.Type != dpop.Type:
		return nil, invalidProof("the proof is of another type")
	case len(header.Public) == 0 || key.UnmarshalJSON(header.Public) != nil || !key.IsPublic() || !fits(*key, header.Algorithm):
		return nil, invalidProof("the proof has no public key that fits its algorithm")
	}
	if of, err := dpop.Thumbprint(key); err != nil || of != thumbprint {
		return nil, invalidProof("the proof is of another key than the token")
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

// isHere compares the URL of a proof, without query and fragment, with the server's.
func (s *proofs) isHere(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	u.RawQuery, u.Fragment, u.ForceQuery = "", "", false
	return canonical(u.String()) == s.url
}

// take remembers a proof. It fails if the proof was used before or lacks a nonce. It
// returns when the proof can be forgotten.
func (s *proofs) take(now time.Time, thumbprint string, p *proof) (id ProofID, outdated time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	by := s.of[thumbprint]
	if by == nil {
		by = &prover{thumbprint: thumbprint}
	}
	outdated = p.IssuedAt.Add(proofAge)
	if s.nonces || s.count >= manyProofs || by.count >= manyOfKey || p.Nonce != "" {
		known := false
		if outdated, known = s.outdated(p.Nonce, now); !known {
			return id, outdated, fault{code: "use_dpop_nonce", text: "the proof needs a nonce of this server", nonce: s.nonce(now, 0)}
		}
	}
	hash := sha256.Sum256([]byte(s.url + " " + thumbprint + " " + p.ID))
	id = ProofID(hash[:])
	for _, taken := range s.taken {
		if _, before := taken[id]; before {
			return id, outdated, errUsedBefore
		}
	}
	switch {
	case by.count >= mostOfKey:
		return id, outdated, fault{text: "the client sends more proofs than can be remembered", often: true}
	case s.count >= mostProofs:
		return id, outdated, unavailable("too many proofs are remembered")
	}
	step := outdated.Unix()/proofStep + 1
	if s.taken[step] == nil {
		s.taken[step] = make(map[ProofID]*prover)
	}
	s.taken[step][id] = by
	s.of[thumbprint] = by
	by.count++
	s.count++
	return id, outdated, nil
}

func (s *proofs) forget(now time.Time) {
	if s.swept == now.Unix() {
		return
	}
	s.swept = now.Unix()
	for step, taken := range s.taken {
		if step*proofStep >= now.Unix() {
			continue
		}
		for _, by := range taken {
			if by.count--; by.count == 0 {
				delete(s.of, by.thumbprint)
			}
		}
		s.count -= len(taken)
		delete(s.taken, step)
	}
}

// nonce returns the nonce for a time, or the one so many lives before it.
func (s *proofs) nonce(now time.Time, before int64) string {
	sum := hmac.New(sha256.New, s.secret[:])
	sum.Write(binary.BigEndian.AppendUint64(nil, uint64(now.Unix()/int64(nonceLife/time.Second)-before)))
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:16])
}

// outdated returns when proofs with a nonce expire. It reports false if the nonce is not
// valid now.
func (s *proofs) outdated(nonce string, now time.Time) (time.Time, bool) {
	for before := range int64(2) {
		if subtle.ConstantTimeCompare([]byte(nonce), []byte(s.nonce(now, before))) == 1 {
			return now.Truncate(nonceLife).Add(time.Duration(2-before) * nonceLife), true
		}
	}
	return time.Time{}, false
}

func pathOf(address string) string {
	_, rest, _ := strings.Cut(address, "://")
	_, path, _ := strings.Cut(rest, "/")
	return "/" + path
}
