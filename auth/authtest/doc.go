// Package authtest is an authorization server for tests of OAuth clients and resource
// servers. It approves at once, and it is honest until a test tells it to lie.
//
//	as := authtest.Start(t, authtest.Options{})
//	as.Lie(authtest.Token, func(a *authtest.Answer) { a.Object["token_type"] = "mac" })
//
// It offers discovery (RFC 8414, OpenID Connect), registration (RFC 7591, client id
// metadata documents), the authorization code grant with PKCE S256 and iss (RFC 9207),
// refresh tokens that rotate, client credentials, token exchange for an ID-JAG, JWT
// bearer assertions, the device grant, DPoP with nonces, revocation (RFC 7009),
// introspection (RFC 7662), keys that rotate, and the metadata of one protected resource
// (RFC 9728). Every request is recorded, so that a test can say where secrets went.
//
// Only tests import this package: it asks nobody for a password and keeps no secret.
package authtest
