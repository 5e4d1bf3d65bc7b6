package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/internal/header"
	"github.com/bowline-mcp/bowline/internal/redact"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/spf13/cobra"
)

// remote completes a server that is reached over HTTP. Headers from flags take
// precedence over those from a file.
func (t *Target) remote(cmd *cobra.Command, server *streamable.Client) (*Endpoint, error) {
	if len(t.env) > 0 || t.dir != "" {
		return nil, errors.New("--env and --cwd are only for a server that this command starts, not for one over HTTP")
	}
	if server.Header == nil {
		server.Header = make(http.Header)
	}
	for _, given := range t.headers {
		name, value, err := readHeader(given)
		if err != nil {
			return nil, err
		}
		server.Header.Set(name, value)
	}
	if err := t.secure(cmd.Context(), server); err != nil {
		return nil, err
	}
	if err := server.Check(); err != nil {
		var wrong *transport.URLError
		errors.As(err, &wrong)
		return nil, fmt.Errorf("the URL is not like http://127.0.0.1:8080/mcp: %w", wrong.Err)
	}
	t.secrets = append(t.secrets, credentialsOf(server)...)
	t.ShownURL = withoutSecrets(server.URL)
	to := &Endpoint{Transport: server, Name: t.ShownURL + shownQuery(server.URL), Remote: true, authenticated: server.Header.Get("Authorization") != ""}
	if to.authenticated {
		return to, nil
	}
	authorizer, err := t.login.authorizer(cmd, t.User, server, t.auth)
	if err != nil {
		return nil, err
	}
	server.Authorizer, to.login = authorizer, authorizer
	to.personal = t.auth == nil || t.auth.Grant == "" || t.auth.Grant == "authorization_code"
	return to, nil
}

// remoteSSE completes a server that is reached over HTTP+SSE, as remote does.
func (t *Target) remoteSSE(cmd *cobra.Command, server *sse.Client) (*Endpoint, error) {
	complete := &streamable.Client{URL: server.URL, Header: server.Header}
	to, err := t.remote(cmd, complete)
	if err != nil {
		return nil, err
	}
	server.HTTP, server.Header, server.Authorizer = complete.HTTP, complete.Header, complete.Authorizer
	to.Transport = server
	return to, nil
}

// secure makes the server's certificate be checked as --cacert and --insecure
// say.
func (f *Flags) secure(ctx context.Context, server *streamable.Client) error {
	if f.authorities == "" && !f.insecure {
		return nil
	}
	trusted, err := f.trusted(ctx)
	if err != nil {
		return err
	}
	carrier := http.DefaultTransport.(*http.Transport).Clone()
	carrier.TLSClientConfig = &tls.Config{RootCAs: trusted, InsecureSkipVerify: f.insecure}
	// A Transport of one's own needs what the default pool has; see streamable.Client.HTTP.
	carrier.HTTP2 = &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second, MaxReceiveBufferPerStream: 64 << 10}
	server.HTTP = &http.Client{Transport: carrier}
	return nil
}

// trusted returns the certificate authorities of the system, and those of --cacert.
func (f *Flags) trusted(ctx context.Context) (*x509.CertPool, error) {
	trusted, err := x509.SystemCertPool()
	if err != nil {
		trusted = x509.NewCertPool() // the system has no certificate authorities
	}
	if f.authorities == "" {
		return trusted, nil
	}
	raw, err := process.Await(ctx, func() ([]byte, error) { return os.ReadFile(f.authorities) })
	if err != nil {
		return nil, fmt.Errorf("--cacert: %w", err)
	}
	if !trusted.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("--cacert %s contains no certificate in PEM format", f.authorities)
	}
	return trusted, nil
}

// readHeader reads a header as curl does. Its errors do not show the value, which
// may be a secret.
func readHeader(given string) (name, value string, err error) {
	name, value, found := strings.Cut(given, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	switch {
	case !found || !header.IsName(name):
		return "", "", errors.New("--header is not 'Name: value'")
	case !header.IsValue(value):
		return "", "", fmt.Errorf("--header %s: the value contains a line break or control character", name)
	}
	return name, value, nil
}

// credentialsOf returns the credentials that go to a server.
func credentialsOf(server *streamable.Client) redact.Secrets {
	address, err := url.Parse(server.URL)
	if err != nil {
		address = nil
	}
	return redact.Of(server.Header, address)
}

// withoutSecrets returns an address without user and query, which may contain
// secrets.
func withoutSecrets(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return "the server"
	}
	return (&url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path}).String()
}

// shownQuery shows that a URL has a query, which may contain credentials.
func shownQuery(address string) string {
	if parsed, err := url.Parse(address); err != nil || parsed.RawQuery == "" {
		return ""
	}
	return "?..."
}
