// Package redact keeps credentials of a program out of texts that others send back.
package redact

import (
	"cmp"
	"encoding/base64"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// shortest is the minimum length of a secret, in bytes. Shorter texts are part
// of many ordinary words.
const shortest = 4

// Mark stands for a credential.
const Mark = "[redacted]"

// Secrets are texts that no message may show.
type Secrets []string

// Of returns the credentials of a request: the values of headers that the protocol
// does not set by itself, and the user and the query of the URL.
func Of(header http.Header, u *url.URL) Secrets {
	var s Secrets
	for name, values := range header {
		if IsOrdinary(name) {
			continue
		}
		for _, value := range values {
			s = append(s, value)
			if _, token, ok := strings.Cut(value, " "); ok {
				s = append(s, token) // after the scheme, such as Bearer
			}
		}
	}
	if u == nil {
		return s
	}
	if user := u.User; user != nil {
		password, _ := user.Password()
		s = append(s, password, user.Username(), base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	s = append(s, u.RawQuery)
	for _, values := range u.Query() {
		s = append(s, values...)
	}
	return s
}

// IsOrdinary reports whether a header contains no credentials of the caller.
func IsOrdinary(name string) bool {
	switch name = http.CanonicalHeaderKey(name); name {
	case "Accept", "Accept-Encoding", "Cache-Control", "Connection", "Content-Length", "Content-Type", "Last-Event-Id", "User-Agent":
		return true
	default:
		return strings.HasPrefix(name, "Mcp-")
	}
}

// Redact returns the text with a Mark in place of every secret, however it was
// escaped.
func (s Secrets) Redact(text string) string {
	hidden := slices.DeleteFunc(slices.Clone(s), func(secret string) bool { return len(secret) < shortest })
	slices.SortFunc(hidden, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, secret := range hidden {
		for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), html.EscapeString(secret)} {
			text = strings.ReplaceAll(text, form, Mark)
		}
	}
	return text
}
