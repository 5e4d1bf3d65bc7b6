package mcpjson

import (
	"net/http"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Auth says how a program logs in to a server over HTTP. Each field sets a field of
// auth.Options; package auth/authfile converts them. The zero value of a field means that
// the file does not set it.
type Auth struct {
	Grant        string // one of Grants
	Issuer       string // the authorization server that the client is registered with
	ClientID     string
	ClientSecret string
	MetadataURL  string   // the address of the Client ID Metadata Document
	Scopes       []string // exactly these scopes are requested, whatever the server asks for; offline_access is added, see Offline
	Port         int      // the local port that the browser is redirected to
	Offline      *bool    // whether to ask for a refresh token
	DPoP         *bool    // whether tokens are bound to a key
	AllowHosts   []string // the hosts that may have private addresses
}

// Grants returns the values that grant may have in a file, the default first.
func Grants() []string { return []string{"authorization_code", "client_credentials", "device"} }

// authNames are the keys of the auth block.
var authNames = [...]string{
	"grant", "issuer", "clientId", "clientSecret", "clientMetadataUrl", "scopes", "port", "offline", "dpop", "allowHosts",
}

// readAuth reads the auth block of the bowline block.
func readAuth(v *values, n node) *Auth {
	if n.absent() {
		return nil
	}
	own := v.settings(n, v.unknown(authNames[:]), authNames[:]...)
	text := v.textsOf(own)
	a := &Auth{
		Grant: text("grant"), Issuer: text("issuer"), ClientID: text("clientId"), ClientSecret: text("clientSecret"), MetadataURL: text("clientMetadataUrl"),
		Scopes: v.strings(own["scopes"]), AllowHosts: v.strings(own["allowHosts"]),
		Offline: v.choice(own["offline"]), DPoP: v.choice(own["dpop"]),
	}
	if port := own["port"]; !port.absent() {
		if number := v.count(port, 0, maxPort); number != nil {
			a.Port = *number
		}
	}
	switch {
	case a.Grant != "" && !slices.Contains(Grants(), a.Grant):
		v.wrong(own["grant"], "expected one of %s", strings.Join(Grants(), ", "))
	case a.Issuer != "" && !isIssuer(a.Issuer):
		v.wrong(own["issuer"], issuerExpected)
	case a.Issuer != "" && a.ClientID == "":
		v.wrong(own["issuer"], "it has no effect without a clientId: add the one of this issuer, or remove the issuer")
	case a.MetadataURL != "" && !strings.HasPrefix(a.MetadataURL, "https://"):
		v.wrong(own["clientMetadataUrl"], "expected a URL of https, with a path")
	case a.ClientID == "" && (a.ClientSecret != "" || a.Grant == "client_credentials"):
		v.wrong(n, "a clientId is missing")
	}
	return a
}

// An Exchange says where a gateway gets a token for a server in exchange for the one that a user has for the gateway (RFC 8693). It has
// an effect only where users have tokens of an issuer.
type Exchange struct {
	Issuer       string // the server's authorization server: no other gives tokens for it
	ClientID     string // of the gateway, which must be registered there
	ClientSecret string
	Audience     string    // what the issuer calls the server; "": its URL
	Scopes       []string  // that are asked for; nil: those that the server asks for
	Provider     *Provider // who gets the token of a user, and asserts to the issuer who he is (ID-JAG); nil: the issuer gets it
}

// A Provider is an identity provider of the users of a gateway.
type Provider struct {
	TokenEndpoint string // its URL: nobody else gets the token of a user
	ClientID      string // of the gateway, which must be registered there, too
	ClientSecret  string
	Subject       string // one of Subjects; "": the first
}

// Subjects returns what the token of a user may be for a provider, the default first.
func Subjects() []string { return []string{"access_token", "id_token"} }

// readPerUser reads how users log in. Unlike share, it counts for Server.Same: a connection that is open has the login of somebody else, and
// must not go on with it.
func readPerUser(v *values, n node) (perUser bool, how *Exchange) {
	if n.absent() || n.value.Kind() != '{' {
		return readOneOf(v, n, []string{"user"}) == "user", nil
	}
	kinds := []string{"exchange", "idjag"}
	given := v.settings(n, v.unknown(kinds), kinds...)
	if given["idjag"].absent() {
		return true, readExchange(v, n, "exchange", given["exchange"])
	}
	if !given["exchange"].absent() {
		v.wrong(n, "there is an exchange as well as an idjag: remove one of the two")
	}
	return true, readExchange(v, n, "idjag", given["idjag"], "provider")
}

// readExchange reads one of a kind, which may have more names. What is missing is wrong at the login.
func readExchange(v *values, login node, kind string, n node, more ...string) *Exchange {
	names := append([]string{"issuer", "clientId", "clientSecret", "audience", "scopes"}, more...)
	own := v.settings(n, v.unknown(names), names...)
	text := v.textsOf(own)
	x := &Exchange{text("issuer"), text("clientId"), text("clientSecret"), text("audience"), v.strings(own["scopes"]), nil}
	if len(more) > 0 {
		x.Provider = readProvider(v, own["provider"])
	}
	switch p := x.Provider; {
	case x.ClientID == "":
		v.wrong(login, "%s has no clientId: the gateway must be registered at the issuer", kind)
	case !isIssuer(x.Issuer):
		v.wrong(login, "%s has no issuer, which is a URL of https, with a host; http is for loopback hosts only", kind)
	case p != nil && p.ClientID == "":
		v.wrong(login, "provider has no clientId: the gateway must be registered there, too")
	case p != nil && !isIssuer(p.TokenEndpoint):
		v.wrong(login, "provider has no tokenEndpoint, which is a URL of https, with a host; http is for loopback hosts only")
	}
	return x
}

// textsOf returns what reads strings by their names. One that is not there is "".
func (v *values) textsOf(own map[string]node) func(name string) string {
	return func(name string) string {
		_, value, _ := v.string(own[name])
		return value
	}
}

func readProvider(v *values, n node) *Provider {
	names := []string{"tokenEndpoint", "clientId", "clientSecret", "subject"}
	own := v.settings(n, v.unknown(names), names...)
	text := v.textsOf(own)
	return &Provider{text("tokenEndpoint"), text("clientId"), text("clientSecret"), readOneOf(v, own["subject"], Subjects())}
}

// checkPerUser reports what would let users act with the login of somebody else, or log in in vain. Whoever writes both into one
// entry expects something, and it is not clear what: a header of the entry would win, and a shared connection would have the login of
// the user who came first. So each is a mistake, and nothing is guessed.
func (s *Server) checkPerUser(v *values, own, set map[string]node) {
	var header http.Header
	switch to := s.Transport.(type) {
	case *streamable.Client:
		header = to.Header
	case *sse.Client:
		header = to.Header
	}
	switch how := s.Settings.Auth; {
	case !set["command"].absent():
		v.wrong(own["login"], "only a server that is reached over HTTP has logins")
	case header.Get("Authorization") != "":
		v.wrong(own["login"], "all users have the header Authorization of this entry: remove one of the two")
	case s.Hosting.Share == Shares()[0]:
		v.wrong(own["login"], "users with logins of their own share no connection: remove share, or make it user or client")
	case s.Settings.Exchange == nil && how != nil && how.Grant != "" && how.Grant != Grants()[0]:
		v.wrong(own["login"], "users log in with a browser: remove grant from auth, or make it %s", Grants()[0])
	}
}

const issuerExpected = "expected a URL of https, with a host; http is for loopback hosts only"

// readLogin reads who may use the gateway. Two ways at once would leave open which of two users of one name is meant.
func readLogin(v *values, n node) Login {
	names := []string{"tokens", "issuers", "scopes", "groups", "name", "dpop"}
	own := v.settings(n, v.unknown(names), names...)
	l := Login{Tokens: v.path(own["tokens"]), Issuers: readIssuers(v, own["issuers"]), Scopes: v.strings(own["scopes"]), DPoP: readOneOf(v, own["dpop"], DPoPModes())}
	_, l.Groups, _ = v.string(own["groups"])
	_, l.Name, _ = v.string(own["name"])
	switch {
	case l.Tokens != "" && len(l.Issuers) > 0:
		v.wrong(own["issuers"], "there is a file of tokens as well: choose one")
	case !n.absent() && l.Tokens == "" && len(l.Issuers) == 0:
		v.wrong(n, "it names neither tokens nor issuers: whoever reaches the address could call every tool")
	}
	for _, name := range names[2:] {
		if at := own[name]; !at.absent() && len(l.Issuers) == 0 {
			v.wrong(at, "only tokens of issuers have that: remove it, or write issuers in place of tokens")
		}
	}
	return l
}

// readIssuers reads URLs, and objects with one. Only one issuer may introspect: it is asked about every token that does not say whose it is, and would see those of the others.
func readIssuers(v *values, n node) (all []Issuer) {
	introspects, given := false, map[string]bool{}
	for _, one := range v.elements(n, "an array of URLs, or of objects with a url") {
		i, at, ask := readIssuer(v, one)
		if !isIssuer(i.URL) {
			v.wrong(at, issuerExpected)
		} else if given[i.URL] {
			v.wrong(at, "the issuer is given twice: remove one of the two")
		}
		if introspects && !ask.absent() {
			v.wrong(ask, "another issuer is asked about tokens already, and each would see those of the other: only one can be")
		}
		given[i.URL], introspects = true, introspects || !ask.absent()
		all = append(all, i)
	}
	return all
}

// readIssuer also returns where its URL is, and how it is asked about tokens.
func readIssuer(v *values, n node) (i Issuer, at, ask node) {
	if n.value.Kind() == '"' {
		_, i.URL, _ = v.string(n)
		return i, n, ask
	}
	names := []string{"url", "introspect"}
	own := v.settings(n, v.unknown(names), names...)
	_, i.URL, _ = v.string(own["url"])
	if at, ask = own["url"], own["introspect"]; at.absent() {
		at = n
	}
	if !ask.absent() {
		i.Introspect = readIntrospect(v, ask)
	}
	return i, at, ask
}

func readIntrospect(v *values, n node) *Introspect {
	names := []string{"clientId", "clientSecret", "url"}
	own := v.settings(n, v.unknown(names), names...)
	text := v.textsOf(own)
	ask := &Introspect{text("clientId"), text("clientSecret"), text("url")}
	switch {
	case ask.ClientID == "" || ask.ClientSecret == "":
		v.wrong(n, "a clientId and a clientSecret are needed: the gateway must be registered at the issuer, which else answers everybody who has found a token")
	case ask.URL != "" && !isIssuer(ask.URL):
		v.wrong(own["url"], issuerExpected)
	}
	return ask
}

// isIssuer reports whether package auth can fetch from the address at all.
func isIssuer(address string) bool {
	parsed := parseHTTP(address)
	return parsed != nil && network.KeepsSecrets(parsed)
}

const maxPort = 1<<16 - 1
