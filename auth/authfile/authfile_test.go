package authfile_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authfile"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/mcpjson/sessions"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var info = protocol.Implementation{Name: "test", Version: "1"}

// vault is a server with a tool that needs a token.
func vault(t *testing.T, o authtest.Options) (as *authtest.Server, url string) {
	t.Helper()
	s := server.New(info, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "open"}, func(context.Context, struct{}) (string, error) { return "opened", nil })
	listening := httptest.NewUnstartedServer(nil)
	url = "http://" + listening.Listener.Addr().String() + "/mcp"
	o.Resource = url
	as = authtest.Start(t, o)
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{})
	listening.Config.Handler = as.Protect(endpoint)
	listening.Start()
	t.Cleanup(func() {
		endpoint.Close(time.Second)
		listening.Close()
	})
	return as, url
}

func apply(t *testing.T, o sessions.Options, entry string) (*sessions.Set, error) {
	t.Helper()
	file, err := mcpjson.Parse("mcp.json", []byte(`{"mcpServers": {"vault": `+entry+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	set := sessions.New(info, o)
	t.Cleanup(func() {
		if err := set.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	_, err = set.Apply(t.Context(), file)
	return set, err
}

func opened(t *testing.T, set *sessions.Set) {
	t.Helper()
	s, found := set.Session("vault")
	if !found {
		t.Fatal("there is no session")
	}
	got, err := client.Call[string](t.Context(), s.With(client.CallOptions{WaitForReady: true}), "open", nil)
	if err != nil || got != "opened" {
		t.Errorf("%q, %v", got, err)
	}
}

func consent(ctx context.Context, i auth.Interaction) (*url.URL, error) {
	return authtest.Consent(ctx, i.Start)
}

// A session logs in as its entry says.
//
// Guarantees: G-0041.6
func TestASessionLogsInAsItsEntrySays(t *testing.T) {
	as, url := vault(t, authtest.Options{Clients: []authtest.Client{{ID: "known", Secret: "S3CRET", Auth: "client_secret_basic"}}})
	set, err := apply(t, sessions.Options{Login: authfile.Logins(authfile.Options{})}, `{"url": "`+url+`", "bowline": {"auth": {
		"grant": "client_credentials", "clientId": "known", "clientSecret": "S3CRET", "scopes": ["read"], "offline": false}}}`)
	if err != nil {
		t.Fatal(err)
	}
	opened(t, set)
	if asked := as.Sink.Requests(authtest.Token); len(asked) != 1 || asked[0].Form.Get("scope") != "read" {
		t.Errorf("%d token requests: %v", len(asked), asked[0].Form["scope"])
	}
}

// A session that waits for a login continues after the login.
//
// Guarantees: G-0041.6
func TestALoginWakesTheSessionOfAFile(t *testing.T) {
	_, url := vault(t, authtest.Options{})
	store := auth.NewMemory()
	logins := make(chan *auth.Authorizer, 1)
	set, err := apply(t, sessions.Options{Login: func(s *mcpjson.Server) (sessions.Login, error) {
		o, err := authfile.Options{Defaults: auth.Options{Store: store, Interact: consent}}.For(s)
		if err != nil {
			return nil, err
		}
		login := auth.New(o)
		logins <- login
		return login, nil
	}}, `{"url": "`+url+`"}`)
	if err != nil {
		t.Fatal(err)
	}
	if err := (<-logins).Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	opened(t, set)
}

// An entry with an Authorization header needs no login. An entry that cannot log in is not started.
//
// Guarantees: G-0041.6
func TestServersWithoutALogin(t *testing.T) {
	never := func(*mcpjson.Server) (sessions.Login, error) { return nil, errors.New("asked for a login") }
	if _, err := apply(t, sessions.Options{Login: never}, `{"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer x"}}`); err != nil {
		t.Error(err)
	}
	if _, err := apply(t, sessions.Options{Login: never}, `{"url": "http://127.0.0.1:1/mcp"}`); err == nil || !strings.Contains(err.Error(), `"vault": asked`) {
		t.Error(err)
	}
	if _, err := apply(t, sessions.Options{}, `{"url": "http://127.0.0.1:1/mcp", "bowline": {"auth": {"port": 1}}}`); err == nil || !strings.Contains(err.Error(), "Options.Login is not set") {
		t.Error(err)
	}
}

// The settings of an entry take precedence over those of the program, which stay as they are.
func TestOptionsOfAnEntry(t *testing.T) {
	off := false
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	program := authfile.Options{
		Defaults: auth.Options{ClientName: "program", DPoP: true, Interact: consent, MetadataURL: "https://program.test/client",
			Registered: []auth.Registered{{ID: "program"}}},
		ShowCode: func(context.Context, auth.DeviceCode) error { return nil },
	}
	mute, granting, local := program, program, program
	mute.ShowCode, granting.Defaults.Grant, local.Loopback = nil, auth.Device{}, new(auth.LoopbackOptions)
	for name, c := range map[string]struct {
		program  authfile.Options
		settings *mcpjson.Auth
		check    func(auth.Options) bool
	}{
		"nothing": {program, nil, func(o auth.Options) bool {
			return o.DPoP && o.Offline && o.Interact != nil && o.Grant == nil && o.MetadataURL == "https://program.test/client" && o.Registered == nil &&
				o.Scopes == nil && o.Guard.Check("https://10.0.0.1/") != nil
		}},
		"another choice": {program, &mcpjson.Auth{DPoP: &off, Offline: &off, MetadataURL: "https://entry.test/client"}, func(o auth.Options) bool {
			return !o.DPoP && !o.Offline && o.MetadataURL == "https://entry.test/client"
		}},
		"a client": {program, &mcpjson.Auth{Grant: "client_credentials", Issuer: "https://as.test", ClientID: "c", ClientSecret: "s"}, func(o auth.Options) bool {
			return o.Grant == auth.ClientCredentials{} && len(o.Registered) == 1 && o.Registered[0].Secret.Reveal() == "s" && o.Registered[0].ID == "c" && o.Registered[0].Issuer == "https://as.test"
		}},
		"a client in place of a person": {granting, &mcpjson.Auth{Grant: "client_credentials"}, func(o auth.Options) bool { return o.Grant == auth.ClientCredentials{} }},
		"a person":                      {granting, &mcpjson.Auth{Grant: "authorization_code"}, func(o auth.Options) bool { return o.Grant == nil && o.Interact != nil }},
		"a device": {program, &mcpjson.Auth{Grant: "device"}, func(o auth.Options) bool {
			device, ok := o.Grant.(auth.Device)
			return ok && device.Show != nil && o.Interact == nil
		}},
		"a device that shows nothing": {mute, &mcpjson.Auth{Grant: "device"}, func(o auth.Options) bool { return o.Grant == nil && o.Interact == nil }},
		"scopes": {program, &mcpjson.Auth{Scopes: []string{"read"}}, func(o auth.Options) bool {
			got := o.Scopes([]string{"read", "write"})
			return len(got) == 1 && got[0] == "read"
		}},
		"no scopes": {program, &mcpjson.Auth{Scopes: []string{}}, func(o auth.Options) bool { return len(o.Scopes([]string{"read"})) == 0 }},
		"hosts":     {program, &mcpjson.Auth{AllowHosts: []string{"10.0.0.1"}}, func(o auth.Options) bool { return o.Guard.Check("https://10.0.0.1/") == nil }},
		"a port": {local, &mcpjson.Auth{Port: port}, func(o auth.Options) bool {
			_, err := o.Interact(t.Context(), auth.Interaction{}) // the port is not free
			return err != nil && strings.Contains(err.Error(), taken.Addr().String())
		}},
	} {
		o, err := c.program.For(&mcpjson.Server{Name: "s", Transport: &streamable.Client{URL: "https://mcp.test"}, Settings: mcpjson.Settings{Auth: c.settings}})
		if err != nil || o.Resource != "https://mcp.test" || o.Guard == nil || o.ClientName != "program" || !c.check(o) {
			t.Errorf("%s: %v, %+v", name, err, o)
		}
	}
	if local.Loopback.Port != 0 {
		t.Errorf("the port of an entry has become that of the program: %d", local.Loopback.Port)
	}
	if o, err := program.For(&mcpjson.Server{Name: "s", Transport: new(stdio.Command)}); err == nil || err.Error() != `authfile: server "s" is not reached over HTTP` {
		t.Errorf("a program on this machine has the options %+v, %v", o, err)
	}
	if login, err := authfile.Logins(program)(&mcpjson.Server{Name: "s", Transport: new(stdio.Command)}); login != nil || err == nil {
		t.Errorf("a program on this machine has the login %v, %v", login, err)
	}
}

// A program that accepts any certificate of a server checks that of its authorization
// server nevertheless. The authorities that it trusts are those for both.
//
// Guarantees: G-0045.8
func TestAnAuthorizationServerIsCheckedEvenIfItsServerIsNot(t *testing.T) {
	start := func() *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	server, other := start(), start()
	carrier := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	own := &http.Client{Transport: carrier}
	trusting := server.Client() // it has the authority of both
	for to, others := range map[transport.Transport]bool{
		&streamable.Client{URL: server.URL, HTTP: own}: false, &sse.Client{URL: server.URL, HTTP: own}: false,
		&streamable.Client{URL: server.URL, HTTP: trusting}: true, &sse.Client{URL: server.URL, HTTP: trusting}: true,
	} {
		o, err := authfile.Options{}.For(&mcpjson.Server{Name: "s", Transport: to})
		if err != nil {
			t.Fatal(err)
		}
		defer o.Guard.Close()
		for address, fetched := range map[string]bool{server.URL: true, other.URL: others} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := o.Guard.Do(r); (err == nil) != fetched {
				t.Errorf("%T, %s: %v, want that it is fetched: %v", to, address, err, fetched)
			}
		}
	}
}

// A program keeps logins on disk, and lets its user log in with a browser.
func ExampleLogins() {
	dir, err := os.MkdirTemp("", "logins")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	set := sessions.New(protocol.Implementation{Name: "example", Version: "1"}, sessions.Options{
		Login: authfile.Logins(authfile.Options{
			Defaults: auth.Options{Store: auth.NewFiles(filepath.Join(dir, "auth"), nil), ClientName: "Example"},
			Loopback: new(auth.LoopbackOptions),
		}),
	})
	file, err := mcpjson.Parse("mcp.json", []byte(`{"mcpServers": {"issues": {"url": "http://127.0.0.1:1/mcp",
		"bowline": {"auth": {"issuer": "https://login.example.com", "clientId": "example", "scopes": ["issues:read"]}}}}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	changes, err := set.Apply(context.Background(), file)
	fmt.Println(changes.Started, err)
	fmt.Println(set.Close(context.Background()))
	// Output:
	// [issues] <nil>
	// <nil>
}
