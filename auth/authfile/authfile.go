// Package authfile logs in to the servers of an mcp.json file, as the auth blocks of their
// entries describe:
//
//	set := sessions.New(info, sessions.Options{Login: authfile.Logins(authfile.Options{
//		Defaults: auth.Options{Store: auth.NewFiles(dir, nil)},
//		Loopback: new(auth.LoopbackOptions),
//	})})
package authfile

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/guard"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/mcpjson/sessions"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Options configure all logins of a program. The entry of a server in the file takes
// precedence, and its list of scopes replaces the one that the server asks for. With the
// zero value no person can log in: only client_credentials and stored logins work, and
// everything else fails with an *auth.LoginError.
//
// Certificates of authorization servers are checked as those of the server: with the
// TLSClientConfig of its http.Transport. But if that accepts any certificate
// (InsecureSkipVerify), it does so only for the origin of the server itself.
type Options struct {
	// Defaults apply where the file sets nothing. Logins sets Resource, Guard and
	// Registered for each server. Offline is true unless the file says otherwise.
	Defaults auth.Options

	// Loopback lets a person log in with a browser on this machine. A port that the file
	// names replaces its Port. Nil: Defaults.Interact.
	Loopback *auth.LoopbackOptions

	// ShowCode shows a person the code for a login on another device, if the file names
	// the grant "device". Nil: such a server is not logged in to.
	ShowCode func(context.Context, auth.DeviceCode) error
}

// Logins returns a function for sessions.Options.Login. For each server over HTTP, that
// function returns an *auth.Authorizer, even if the server has no auth block, because
// only the server itself knows whether it requires a login.
func Logins(o Options) func(*mcpjson.Server) (sessions.Login, error) {
	return func(server *mcpjson.Server) (sessions.Login, error) {
		made, err := o.For(server)
		if err != nil {
			return nil, err
		}
		return auth.New(made), nil
	}
}

// For returns the options of the login to one server. It fails if the server is not
// reached over HTTP.
func (o Options) For(server *mcpjson.Server) (auth.Options, error) {
	url, client, ok := endpointOf(server)
	if !ok {
		return auth.Options{}, fmt.Errorf("authfile: server %q is not reached over HTTP", server.Name)
	}
	settings := server.Settings.Auth
	if settings == nil {
		settings = new(mcpjson.Auth)
	}
	made := o.Defaults
	made.Resource = url
	made.Guard = guard.New(guard.Options{Endpoint: url, AllowHosts: settings.AllowHosts, TLS: tlsOf(client)})
	made.Offline = settings.Offline == nil || *settings.Offline
	if settings.MetadataURL != "" {
		made.MetadataURL = settings.MetadataURL
	}
	if settings.DPoP != nil {
		made.DPoP = *settings.DPoP
	}
	made.Registered = nil
	if settings.ClientID != "" {
		made.Registered = []auth.Registered{{Issuer: settings.Issuer, ID: settings.ClientID, Secret: auth.NewSecret(settings.ClientSecret)}}
	}
	if wanted := settings.Scopes; wanted != nil {
		made.Scopes = func([]string) []string { return wanted }
	}
	o.choose(&made, settings)
	return made, nil
}

// endpointOf returns where a server is reached over HTTP, and by what client; ok is false if it is not.
func endpointOf(server *mcpjson.Server) (url string, client *http.Client, ok bool) {
	switch t := server.Transport.(type) {
	case *streamable.Client:
		return t.URL, t.HTTP, true
	case *sse.Client:
		return t.URL, t.HTTP, true
	default:
		return "", nil, false
	}
}

// choose sets how to log in: with a browser on this machine, if that is possible, or as the settings say.
func (o Options) choose(made *auth.Options, settings *mcpjson.Auth) {
	if o.Loopback != nil {
		loopback := *o.Loopback
		if settings.Port != 0 {
			loopback.Port = settings.Port
		}
		made.Interact = auth.Loopback(loopback)
	}
	switch settings.Grant {
	case "client_credentials":
		made.Grant = auth.ClientCredentials{}
	case "device":
		if made.Interact = nil; o.ShowCode != nil {
			made.Grant = auth.Device{Show: o.ShowCode}
		}
	case "authorization_code":
		made.Grant = nil
	}
}

// tlsOf returns how certificates of the server are checked, which holds for its
// authorization server too. The Guard limits InsecureSkipVerify to the server.
func tlsOf(client *http.Client) *tls.Config {
	if client == nil {
		return nil
	}
	if carrier, ok := client.Transport.(*http.Transport); ok {
		return carrier.TLSClientConfig
	}
	return nil
}
