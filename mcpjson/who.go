package mcpjson

import (
	"regexp"
	"slices"
	"strings"
)

// meansNobody returns why a text means no user, or "". It never repeats the text, which may be
// the value of a variable.
func meansNobody(text string, of Login) string {
	kind, value, claims := strings.Cut(text, ":")
	name, claimed, has := strings.Cut(value, "=")
	switch {
	case text == "", claims && kind == "claim" && (!has || name == ""):
		return "expected *, group:NAME, claim:NAME=VALUE, or an identity such as token ada"
	case text != strings.TrimSpace(text):
		return "it begins or ends with a space, as no user does"
	case claims && (kind == "group" && value == "" || kind == "claim" && claimed == ""):
		return "it has no value: write * in its place for any"
	case claims && (kind == "group" || kind == "claim") && of.Tokens != "":
		return "users of the file of tokens have no groups and no claims: name them, such as token ada"
	case claims && kind != "group" && kind != "claim" && (strings.EqualFold(kind, "group") || strings.EqualFold(kind, "claim")):
		return "write " + strings.ToLower(kind) + ": in lower case, or nobody is meant"
	case claims && (kind == "group" || kind == "claim"):
		return ""
	}
	return isNobody(text, of)
}

// isNobody returns why no user has an identity of this form, or "". An identity is what kind of
// login it is, a space, and a name. Programs with logins of their own have others, so a kind that
// is not known is no mistake.
func isNobody(identity string, of Login) string {
	kind, name, has := strings.Cut(identity, " ")
	isOpen, isURL := strings.ContainsAny(kind, "*?"), strings.Contains(kind, "://")
	switch {
	case !has && isOpen:
		return ""
	case !has && isURL:
		return "an issuer alone is no user: add a space and the subject, or a space and * for all of its users"
	case !has:
		return "no user is called that: write token NAME, group:NAME, or an issuer, a space and a subject"
	case !isOpen && isURL && len(of.Issuers) > 0 && !slices.ContainsFunc(of.Issuers, func(i Issuer) bool { return i.URL == kind }):
		return "auth.issuers does not have this issuer: write it exactly as there"
	case kind != "token" && kind != "host" && (strings.EqualFold(kind, "token") || strings.EqualFold(kind, "host")):
		return "write " + strings.ToLower(kind) + " in lower case, or nobody is meant"
	case kind == "token" && !tokenName.MatchString(name):
		return "no token has such a name: there are only letters, digits and . _ @ - in them"
	}
	return ""
}

// tokenName is what names of tokens look like, and patterns of them: package auth/tokens makes no
// others.
var tokenName = regexp.MustCompile(`^[A-Za-z0-9._@*?-]+$`)
