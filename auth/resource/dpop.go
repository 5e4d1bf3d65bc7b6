package resource

import (
	"crypto"
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

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/go-jose/go-jose/v4"
)

const (
	// proofAge is how far the time of a proof may be from now.
	proofAge = 5 * time.Minute

	// mostProofs is how many proofs are remembered, so that none is taken twice. Beyond,
	// clients need a nonce, whose proofs are remembered for a shorter time.
	mostProofs = 100_000

	// nonceLife is how long a nonce is the newest; the one before it is taken too.
	nonceLife = 30 * time.Second

	largestID = 256 // bytes of a jti
)

// proofs checks DPoP proofs (RFC 9449 §4.3), each of which is taken once.
type proofs struct {
	url    string // canonical
	nonces bool   // are always wanted
	secret [32]byte

	mu    sync.Mutex
	taken map[int64]map[[sha256.Size]byte]struct{} // by the minute in which they are out of date
	count int
}

func newProofs(url string, nonces bool) *proofs {
	p := &proofs{url: url, nonces: nonces, taken: make(map[int64]map[[sha256.Size]byte]struct{})}
	rand.Read(p.secret[:]) // never fails
	return p
}

// proof are the claims of a proof.
type proof struct {
	ID       string `json:"jti"`
	Method   string `json:"htm"`
	URL      string `json:"htu"`
	IssuedAt date   `json:"iat"`
	Token    string `json:"ath"`
	Nonce    string `json:"nonce"`
}

func invalidProof(text string) fault { return fault{code: "invalid_dpop_proof", text: text} }

// check checks that a request comes with a proof for it, its token, and the key of the token.
// The error is a fault.
func (s *proofs) check(r *http.Request, token, thumbprint string) error {
	values := r.Header["Dpop"]
	if len(values) != 1 || len(values[0]) > largestToken {
		return invalidProof("one proof is needed")
	}
	key, claims, err := readProof(values[0])
	if err != nil {
		return err
	}
	sum, err := key.Thumbprint(crypto.SHA256)
	hash := sha256.Sum256([]byte(token))
	now := time.Now()
	at := claims.IssuedAt.Time
	switch {
	case err != nil || base64.RawURLEncoding.EncodeToString(sum) != thumbprint:
		return invalidProof("the proof is of another key than the token")
	case claims.Method != r.Method || !s.isHere(claims.URL):
		return invalidProof("the proof is for another request")
	case claims.Token != base64.RawURLEncoding.EncodeToString(hash[:]):
		return invalidProof("the proof is for another token")
	case claims.ID == "" || len(claims.ID) > largestID:
		return invalidProof("the proof has no id, or one that is too long")
	case at.IsZero() || at.Before(now.Add(-proofAge)) || at.After(now.Add(proofAge)):
		return invalidProof("the proof is too old, or from the future")
	}
	return s.take(now, thumbprint, claims)
}

// readProof checks the signature of a proof with the key that it brings.
func readProof(text string) (*jose.JSONWebKey, *proof, error) {
	header, err := readHeader(text)
	key := new(jose.JSONWebKey)
	switch {
	case err != nil:
		return nil, nil, invalidProof("the header of the proof is not accepted")
	case header.Type != "dpop+jwt":
		return nil, nil, invalidProof("the proof is of another type")
	case len(header.Public) == 0 || key.UnmarshalJSON(header.Public) != nil || !key.IsPublic() || !fits(*key, header.Algorithm):
		return nil, nil, invalidProof("the proof has no public key that fits its algorithm")
	}
	signed, err := jose.ParseSignedCompact(text, algorithms())
	if err != nil {
		return nil, nil, invalidProof("the proof is malformed")
	}
	payload, err := signed.Verify(key)
	if err != nil {
		return nil, nil, invalidProof("the signature of the proof is wrong")
	}
	claims := new(proof)
	if protocol.Unmarshal(payload, claims) != nil {
		return nil, nil, invalidProof("the claims of the proof cannot be read")
	}
	return key, claims, nil
}

// isHere compares the URL of a proof without query and fragment.
func (s *proofs) isHere(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	u.RawQuery, u.Fragment, u.ForceQuery = "", "", false
	return canonical(u.String()) == s.url
}

// take remembers a proof, unless it was taken before or lacks a nonce.
func (s *proofs) take(now time.Time, thumbprint string, p *proof) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	if s.nonces || s.count >= mostProofs || p.Nonce != "" {
		if !s.isNonce(p.Nonce, now) {
			return fault{code: "use_dpop_nonce", text: "the proof needs a nonce of this server", nonce: s.nonce(now, 0)}
		}
	}
	id := sha256.Sum256([]byte(thumbprint + " " + p.ID))
	for _, taken := range s.taken {
		if _, before := taken[id]; before {
			return invalidProof("the proof was used before")
		}
	}
	outdated := p.IssuedAt.Add(proofAge)
	if p.Nonce != "" {
		outdated = now.Add(2 * nonceLife)
	}
	if s.count >= 2*mostProofs {
		return unavailable("too many proofs are remembered")
	}
	minute := outdated.Unix()/60 + 1
	if s.taken[minute] == nil {
		s.taken[minute] = make(map[[sha256.Size]byte]struct{})
	}
	s.taken[minute][id] = struct{}{}
	s.count++
	return nil
}

func (s *proofs) forget(now time.Time) {
	for minute, taken := range s.taken {
		if minute*60 < now.Unix() {
			s.count -= len(taken)
			delete(s.taken, minute)
		}
	}
}

// nonce returns the nonce of a time, so many lives before it.
func (s *proofs) nonce(now time.Time, before int64) string {
	sum := hmac.New(sha256.New, s.secret[:])
	sum.Write(binary.BigEndian.AppendUint64(nil, uint64(now.Unix()/int64(nonceLife/time.Second)-before)))
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:16])
}

func (s *proofs) isNonce(text string, now time.Time) bool {
	for before := range int64(2) {
		if subtle.ConstantTimeCompare([]byte(text), []byte(s.nonce(now, before))) == 1 {
			return true
		}
	}
	return false
}

func pathOf(address string) string {
	_, rest, _ := strings.Cut(address, "://")
	_, path, _ := strings.Cut(rest, "/")
	return "/" + path
}
