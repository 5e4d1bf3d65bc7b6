package authtest

import (
	"slices"
	"strings"
)

// secretFields are the parameters of answers and requests that are secrets.
var (
	secretAnswers  = []string{"access_token", "refresh_token", "client_secret", "device_code"}
	secretRequests = []string{"code_verifier", "client_assertion", "assertion", "subject_token"}
)

// note remembers the secrets of an answer. The caller holds the lock.
func (s *Server) note(a *Answer) {
	for _, name := range secretAnswers {
		if text, ok := a.Object[name].(string); ok && text != "" {
			s.issued = append(s.issued, text)
		}
	}
	s.issued = append(s.issued, a.Query["code"]...)
}

// Secrets returns all texts that no program may print: everything secret that the server
// has issued so far, the secrets of its clients, and the credentials that clients have
// presented.
func (s *Server) Secrets() []string {
	s.mu.Lock()
	secrets := slices.Clone(s.issued)
	for _, c := range s.clients {
		if c.Secret != "" {
			secrets = append(secrets, c.Secret)
		}
	}
	s.mu.Unlock()
	for _, r := range s.Sink.Requests() {
		for _, name := range secretRequests {
			if text := r.Form.Get(name); text != "" {
				secrets = append(secrets, text)
			}
		}
		if proof := r.Header.Get("DPoP"); proof != "" {
			secrets = append(secrets, proof)
		}
	}
	slices.Sort(secrets)
	return slices.Compact(secrets)
}

// Printed returns the secrets that a text contains.
func (s *Server) Printed(text string) []string {
	return slices.DeleteFunc(s.Secrets(), func(secret string) bool { return !strings.Contains(text, secret) })
}
