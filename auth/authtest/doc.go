// Package authtest is an authorization server for tests of OAuth clients and resource servers.
// It approves every login immediately, and answers correctly unless a test changes an answer:
//
//	as := authtest.Start(t, authtest.Options{})
//	as.Lie(authtest.Token, func(a *authtest.Answer) { a.Object["token_type"] = "mac" })
//
// It supports discovery (RFC 8414, OpenID Connect), registration (RFC 7591, client id metadata
// documents), the authorization code grant with PKCE S256 and iss (RFC 9207), rotating refresh
// tokens, client credentials, token exchange for an ID-JAG, JWT bearer assertions, the device
// grant, DPoP with nonces, revocation (RFC 7009), introspection (RFC 7662), rotating keys, and
// the metadata of one protected resource (RFC 9728). It records every request, so that a test
// can check where secrets were sent.
//
// Use this package only for tests: it asks nobody for a password and keeps no secret, and it remembers
// every request.
package authtest
