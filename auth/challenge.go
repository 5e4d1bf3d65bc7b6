package auth

import (
	"strings"

	"github.com/bowline-mcp/bowline/internal/header"
)

// A challenge is the content of a WWW-Authenticate header for one scheme. The zero value
// means that there is none.
type challenge struct {
	scheme   string // lower case
	err      string // the parameter error
	scopes   []string
	metadata string // resource_metadata: the address of the protected resource metadata
}

// maxChallenge is how many bytes of a header are read.
const maxChallenge = 8 << 10

// parseChallenge returns the first challenge for a token, Bearer or DPoP, in a header
// that may contain several. It ignores parameters that it cannot parse (RFC 9110,
// section 11.6.1).
func parseChallenge(text string) challenge {
	text = text[:min(len(text), maxChallenge)]
	var found challenge
	for text = skip(text); text != ""; text = skip(text) {
		word, rest := cutToken(text)
		if word == "" {
			break // not a list of challenges
		}
		if found.scheme != "" && !isParameter(rest) {
			break // the next challenge
		}
		if !isParameter(rest) { // a scheme
			if scheme := strings.ToLower(word); scheme == "bearer" || scheme == "dpop" {
				found.scheme = scheme
			}
			text = skipToken68(rest)
			continue
		}
		value, after, ok := cutValue(strings.TrimLeft(rest, " \t")[1:])
		if !ok {
			break
		}
		if text = after; found.scheme != "" {
			found.set(strings.ToLower(word), value)
		}
	}
	return found
}

// set keeps the first value of a parameter.
func (c *challenge) set(name, value string) {
	switch {
	case name == "error" && c.err == "":
		c.err = value
	case name == "scope" && c.scopes == nil:
		c.scopes = scopesOf(value)
	case name == "resource_metadata" && c.metadata == "":
		c.metadata = value
	}
}

// skip skips separators between the elements of a list.
func skip(text string) string { return strings.TrimLeft(text, " \t,") }

// isParameter reports whether the text after a token shows that the token is the name of
// a parameter.
func isParameter(rest string) bool {
	rest = strings.TrimLeft(rest, " \t")
	return strings.HasPrefix(rest, "=")
}

// skipToken68 skips the credentials that some schemes have instead of parameters.
func skipToken68(rest string) string {
	word, _, _ := strings.Cut(strings.TrimLeft(rest, " \t"), ",")
	if trimmed := strings.TrimRight(word, " \t="); !strings.ContainsAny(trimmed, "= \t\"") {
		_, after, _ := strings.Cut(rest, ",")
		return after
	}
	return rest
}

func cutToken(text string) (token, rest string) {
	end := 0
	for end < len(text) && header.IsName(text[end:end+1]) {
		end++
	}
	return text[:end], text[end:]
}

// cutValue cuts off a quoted string. Some servers do not quote URLs, so without quotes
// it cuts at the next comma or space.
func cutValue(text string) (value, rest string, ok bool) {
	text = strings.TrimLeft(text, " \t")
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexAny(text+",", ", \t")
		return text[:end], text[end:], end > 0
	}
	var unquoted strings.Builder
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return unquoted.String(), text[i+1:], true
		case '\\':
			if i++; i == len(text) {
				return "", "", false
			}
		}
		unquoted.WriteByte(text[i])
	}
	return "", "", false
}

const (
	maxScopes     = 256     // how many scopes of one list are read
	maxScopesText = 8 << 10 // the maximum size of all scopes, in bytes, because a browser opens an address that contains them
)

// scopesOf splits a scope parameter. It leaves out invalid scopes (RFC 6749, section
// 3.3) and repetitions.
func scopesOf(text string) []string {
	return cleanScopes(strings.Fields(text))
}

func cleanScopes(given []string) []string {
	scopes, size := []string{}, 0
	seen := make(map[string]bool)
	for _, scope := range given {
		if len(scopes) < maxScopes && size+len(scope) < maxScopesText && isScope(scope) && !seen[scope] {
			seen[scope] = true
			size += len(scope) + 1
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

func isScope(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < 0x21 || c > 0x7e || c == '"' || c == '\\' {
			return false
		}
	}
	return text != ""
}
