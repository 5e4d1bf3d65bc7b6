package command

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/auth/tokens"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/certificate"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/doors"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/member"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/spf13/cobra"
)

// The ways in which clients show who they are.
const (
	authNone   = "none"
	authTokens = "tokens"
	authOAuth  = "oauth"
)

// An access is how clients get in over HTTP.
type access struct {
	auth      string // one of the ways; "": what the file says
	cert, key string // files; "": no TLS

	guarding    resource.Options // of OAuth
	options     streamable.HandlerOptions
	metadata    http.Handler // of OAuth; nil: there is none
	certificate *certificate.Files
	inClear     network.Proxies                    // who may send requests without TLS; nil: everybody
	public      string                             // the URL that clients use; "": where it listens
	endpoint    atomic.Pointer[streamable.Handler] // nil until it is served
	pages       atomic.Int64                       // how many requests at the pages for logins were refused since they came in clear
}

// addFlags names the flags. What a file says holds without them.
func (a *access) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&a.auth, "auth", "", "`HOW` clients show who they are: none, tokens (see bowline token) or oauth; default: what the file says")
	flags.StringVar(&a.cert, "tls-cert", "", "serve HTTPS with the certificate in this `FILE`, which may change")
	flags.StringVar(&a.key, "tls-key", "", "the `FILE` of its key")
}

// take reads what the file and the flags say, and everything that both name, so that a mistake is found before anything is started.
func (a *access) take(top *mcpjson.Gateway, say func(string)) (err error) {
	a.public, a.options.TrustedProxies = top.URL, top.TrustedProxies
	if (a.cert == "") != (a.key == "") {
		return process.Usage(errors.New("--tls-cert and --tls-key need each other"))
	}
	if a.cert != "" {
		if a.certificate, err = certificate.Load(a.cert, a.key, say); err != nil {
			return err
		}
	}
	switch a.auth = cmp.Or(a.auth, authOf(top.Login)); a.auth {
	case authNone:
	case authTokens:
		err = a.takeTokens(top.Login.Tokens)
	case authOAuth:
		err = a.takeIssuers(top)
	default:
		return process.Usage(fmt.Errorf("--auth %s: there are only none, tokens and oauth", a.auth))
	}
	return errors.Join(err, a.takeURL())
}

// authOf returns the way that the file has chosen: a block that names neither is a mistake of it.
func authOf(l mcpjson.Login) string {
	switch {
	case l.Tokens != "":
		return authTokens
	case len(l.Issuers) > 0:
		return authOAuth
	default:
		return authNone
	}
}

// takeTokens opens the file of tokens. That of the user's settings is the one that bowline token changes unless it is told another one.
func (a *access) takeTokens(path string) error {
	option := ""
	if path != "" {
		option = " --file " + render.InQuotes(path)
	} else {
		var err error
		if path, err = doors.TokensOfUsers(); err != nil {
			return err
		}
	}
	file, err := tokens.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no file of tokens, %s: bowline token add NAME%s makes it", path, option)
	} else if err != nil {
		return err
	}
	a.options.Check = file.Check
	return nil
}

// takeIssuers makes what checks tokens of OAuth. It reaches no issuer yet: a gateway starts while one is away.
func (a *access) takeIssuers(top *mcpjson.Gateway) error {
	if len(top.Login.Issuers) == 0 || top.URL == "" {
		return errors.New(`--auth oauth needs auth.issuers and url in the block "bowline" of the file: whose tokens are accepted, and what they must name as their audience`)
	}
	a.guarding = guardBy(top)
	return a.protect()
}

// join lets the nodes of a cluster share what they know of proofs: else one that was seen could be used at each of the others.
func (a *access) join(node *member.Node) error {
	if a.auth != authOAuth {
		return nil
	}
	node.Protect(&a.guarding)
	return a.protect()
}

func (a *access) protect() error {
	guard, err := resource.New(a.guarding)
	if err != nil {
		return err
	}
	a.options.Check, a.metadata = guard.Check, guard.Metadata()
	return nil
}

// guardBy configures what checks tokens as the file says.
func guardBy(top *mcpjson.Gateway) resource.Options {
	var issuers []resource.Issuer
	for _, i := range top.Login.Issuers {
		of := resource.Issuer{URL: i.URL}
		if ask := i.Introspect; ask != nil {
			of.Introspect = &resource.Introspection{URL: ask.URL, ClientID: ask.ClientID, ClientSecret: ask.ClientSecret}
		}
		issuers = append(issuers, of)
	}
	o := guardOf(top.URL, issuers, top.Login.Scopes)
	switch modes := mcpjson.DPoPModes(); top.Login.DPoP {
	case modes[1]:
		o.DPoP = resource.DPoPAllowed
	case modes[2]:
		o.DPoP = resource.DPoPRequired
	}
	return o
}

// takeURL lets clients use the name under which they know the gateway.
func (a *access) takeURL() error {
	if a.public == "" {
		return nil
	}
	public, err := url.Parse(a.public)
	if err != nil || public.Host == "" || public.Scheme != "https" && public.Scheme != "http" {
		return fmt.Errorf(`url in the block "bowline" of the file is no URL such as https://tools.example.com/mcp`)
	}
	allowPublic(&a.options, public)
	return nil
}

// listen listens for clients. Beyond this machine they need a login, and tokens must not be sent in clear.
func (a *access) listen(address string, insecure bool) (net.Listener, error) {
	why := "there are no logins: whoever reaches it may call every tool (see --auth)"
	if a.auth != authNone {
		why = "tokens would be sent in clear: give it --tls-cert and --tls-key, or name the proxy that ends TLS as trustedProxies in the file"
		if !insecure {
			a.inClear = append(network.Proxies{netip.PrefixFrom(netip.IPv6Loopback(), 128), netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)}, a.options.TrustedProxies...)
		}
		insecure = insecure || a.certificate != nil || len(a.options.TrustedProxies) > 0
	}
	listener, _, err := process.ListenHere("--http", address, insecure, why)
	return listener, err
}

// isExposed reports whether a request has come without TLS from an address that is no proxy. Its token may have been read on the way. Of a request that another
// node has forwarded, this is how it has come to that node.
func (a *access) isExposed(r *http.Request) bool {
	return a.inClear != nil && r.TLS == nil && !a.inClear.Trust(r.RemoteAddr)
}

const exposed = "a login must not be sent in clear: use https. Who runs this gateway gives it --tls-cert and --tls-key, or names the proxy that ends TLS as trustedProxies in the file"

// guarded returns the options of the endpoint. A request that is exposed is refused before anybody looks at its token: a client that works in clear goes on to.
func (a *access) guarded() streamable.HandlerOptions {
	o := a.options
	if check := o.Check; check != nil {
		o.Check = func(r *http.Request) (streamable.Caller, *streamable.Denial) {
			if a.isExposed(r) {
				return nil, &streamable.Denial{Status: http.StatusForbidden, Text: exposed}
			}
			return check(r)
		}
	}
	return o
}

// guardPages refuses browsers that come in clear, as guarded does programs. Each has a record, in which the link is not; trail may be nil.
func (a *access) guardPages(pages http.Handler, trail func(context.Context, audit.Record)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.isExposed(r) {
			a.pages.Add(1)
			if trail != nil {
				trail(r.Context(), audit.Record{
					Time: time.Now(), Event: "login page", Address: r.RemoteAddr, Outcome: string(server.OutcomeDenied), Status: http.StatusForbidden, Reason: "the request came in clear",
				})
			}
			http.Error(w, exposed, http.StatusForbidden)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// serve serves the endpoint until ctx ends.
func (a *access) serve(ctx context.Context, endpoint *streamable.Handler, mux *http.ServeMux, listener net.Listener, log slog.Handler) error {
	if a.metadata != nil {
		mux.Handle("/.well-known/", a.metadata)
	}
	s := &http.Server{Handler: mux, ErrorLog: slog.NewLogLogger(ofServer{log}, slog.LevelError)}
	if a.certificate != nil {
		s.TLSConfig = a.certificate.Config()
		listener = tls.NewListener(listener, s.TLSConfig)
	}
	return endpoint.Serve(ctx, s, listener)
}

// ofServer logs what net/http says. What any client can make it say, as often as it likes, has the level debug, such as that a TLS handshake has failed.
type ofServer struct{ slog.Handler }

// Handle implements slog.Handler. A text begins with what net/http says, and may go on with what a client has sent.
func (o ofServer) Handle(ctx context.Context, r slog.Record) error {
	isOwn := func(fault string) bool { return strings.HasPrefix(r.Message, fault) }
	if !slices.ContainsFunc([]string{"http: panic serving ", "http2: panic serving ", "http: Accept error: "}, isOwn) {
		if r.Level = slog.LevelDebug; !o.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return o.Handler.Handle(ctx, r)
}

// denied counts the requests of clients whose sender may not make them, by status. Hosts on this machine are never denied.
func (a *access) denied() map[int]uint64 {
	endpoint := a.endpoint.Load()
	if endpoint == nil {
		return nil
	}
	all := make(map[int]uint64)
	for _, d := range endpoint.Stats().Denied {
		all[d.Status] = d.Count
	}
	return all
}

// withToken returns a request whose token may be exchanged at its issuer. One of bowline token is known to nobody but this gateway, and goes nowhere.
func (a *access) withToken(r *http.Request) *http.Request {
	if a.auth != authOAuth {
		return r
	}
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return r.WithContext(gateway.WithSubjectToken(r.Context(), token))
}

// urlOf returns where the endpoint is found.
func (a *access) urlOf(listener net.Listener) string {
	if a.certificate != nil {
		return "https" + urlOf(listener)[len("http"):]
	}
	return urlOf(listener)
}

// share returns who shares a connection with a server unless its entry says that: where there are users, each has one.
func (a *access) share() string {
	if a.auth == authNone {
		return ""
	}
	return mcpjson.Shares()[1]
}

// loginsPath is where users log in at servers.
const loginsPath = "/login/"

// loginsAt returns where browsers reach the pages for logins, beside the endpoint. "": the file does not say it, and to listen everywhere is no address.
func (a *access) loginsAt(listener net.Listener) string {
	at := a.public
	if at == "" {
		if host, _, err := net.SplitHostPort(listener.Addr().String()); err != nil || !isThisMachine(host) || net.ParseIP(host).IsUnspecified() {
			return ""
		}
		at = a.urlOf(listener)
	}
	endpoint, err := url.Parse(at)
	if err != nil {
		return ""
	}
	return endpoint.JoinPath("..", "login").String()
}
