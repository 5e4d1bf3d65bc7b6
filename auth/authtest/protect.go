package authtest

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Protect returns a minimal resource server. It passes a request on to next if s issued
// its token for the resource of s, and challenges all other requests; see also
// Options.CallsOnly. To rewrite the challenges, use Lie with the endpoint Challenge.
func (s *Server) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.options.CallsOnly && isOpen(r) {
			next.ServeHTTP(w, r)
			return
		}
		refused := s.admit(r)
		if refused == nil {
			next.ServeHTTP(w, r)
			return
		}
		s.mu.Lock()
		lie := s.lies[Challenge]
		s.mu.Unlock()
		if lie != nil {
			lie(refused)
		}
		refused.write(w, r)
	})
}

// isOpen reports whether a request has a message that is no call of a tool. It leaves the body as it was.
func isOpen(r *http.Request) bool {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return err == nil && len(body) > 0 && !bytes.Contains(body, []byte("tools/call"))
}

// RotateNonce makes the server require another nonce in proofs from now on.
func (s *Server) RotateNonce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nonce = random()
}

// challenge asks for a token. The code says what is wrong with the one that came.
func (s *Server) challenge(request *Request, code string) *Answer {
	a := succeed(map[string]any{"error": code})
	a.Status, a.Request = http.StatusUnauthorized, request
	challenge := `Bearer resource_metadata="` + s.URL(ResourceMetadata) + `"`
	if code != "" {
		challenge += `, error="` + code + `"`
	}
	a.Header.Set("WWW-Authenticate", challenge)
	return a
}

func (s *Server) admit(r *http.Request) *Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	request := &Request{Host: s.base, Endpoint: Challenge, Method: r.Method, URL: r.URL, Header: r.Header.Clone()}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token == "" {
		return s.challenge(request, "")
	}
	known := s.lookUp(token)
	if known == nil || known.grant.resource != s.options.Resource || (known.jkt != "") != strings.EqualFold(scheme, "DPoP") {
		return s.challenge(request, "invalid_token")
	}
	if known.jkt == "" {
		return nil
	}
	jkt, refused := s.proof(request, r.Method, s.options.Resource, token)
	switch {
	case refused != nil:
		refused.Status, refused.Request = http.StatusUnauthorized, request
		refused.Header.Set("WWW-Authenticate", `DPoP error="`+refused.Object["error"].(string)+`"`)
		return refused
	case jkt != known.jkt:
		return s.challenge(request, "invalid_token")
	}
	return nil
}

// proofClaims are the claims of a proof.
type proofClaims struct {
	jwt.Claims
	Method string `json:"htm"`
	URL    string `json:"htu"`
	Hash   string `json:"ath"`
	Nonce  string `json:"nonce"`
}

// readProof returns the claims of a proof, and the key that is in it and has signed them; nil if it is none.
func readProof(text string) (claims proofClaims, key *jose.JSONWebKey) {
	proof, err := jwt.ParseSigned(text, asymmetric())
	if err != nil {
		return claims, nil
	}
	header := proof.Headers[0]
	key = header.JSONWebKey
	if header.ExtraHeaders[jose.HeaderType] != "dpop+jwt" || key == nil || !key.IsPublic() || proof.Claims(key.Key, &claims) != nil {
		return claims, nil
	}
	return claims, key
}

// prove reports whether the claims are those of a request that is made now.
func (c *proofClaims) prove(method, target, token string) bool {
	asked, err := url.Parse(c.URL)
	if err != nil || c.IssuedAt == nil {
		return false
	}
	asked.RawQuery, asked.Fragment = "", ""
	hash := sha256.Sum256([]byte(token))
	return c.Method == method && asked.String() == target && c.ID != "" && time.Since(c.IssuedAt.Time()).Abs() <= 5*time.Minute &&
		(token == "" || c.Hash == base64.RawURLEncoding.EncodeToString(hash[:]))
}

// proof checks the DPoP proof of a request (RFC 9449 §4.3) and returns the thumbprint of
// its key; "" if there is no proof.
func (s *Server) proof(r *Request, method, target, token string) (jkt string, refused *Answer) {
	values := r.Header.Values("DPoP")
	if len(values) == 0 {
		return "", nil
	}
	refused = refuse(http.StatusBadRequest, "invalid_dpop_proof", "the proof is not valid")
	claims, key := readProof(values[0])
	if key == nil || len(values) > 1 || !claims.prove(method, target, token) || s.proofs[claims.ID] {
		return "", refused
	}
	if s.options.DPoPNonces && claims.Nonce != s.nonce {
		refused = refuse(http.StatusBadRequest, "use_dpop_nonce", "the proof needs a nonce of this server")
		refused.Header.Set("DPoP-Nonce", s.nonce)
		return "", refused
	}
	s.proofs[claims.ID] = true
	thumbprint, err := key.Thumbprint(crypto.SHA256)
	if err != nil {
		return "", refused
	}
	return base64.RawURLEncoding.EncodeToString(thumbprint), nil
}
