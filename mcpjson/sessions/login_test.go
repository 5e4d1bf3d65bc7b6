//go:build unix

package sessions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A recordedLogin adds nothing to requests, and calls closing when it is closed.
type recordedLogin struct{ closing func() }

func (recordedLogin) Authorize(context.Context, *http.Request) error { return nil }

func (recordedLogin) Challenged(context.Context, *http.Request, *transport.StatusError) (bool, error) {
	return false, nil
}

func (recordedLogin) OnLogin(func()) {}

func (l recordedLogin) Close() error {
	l.closing()
	return nil
}

// TestALoginIsClosedAfterItsSession removes a server from the file during a call. The call
// still needs its login when it is sent again, so the login is closed only after the session
// has ended.
//
// Guarantees: G-0041.5
func TestALoginIsClosedAfterItsSession(t *testing.T) {
	guard(t)
	working, finish := make(chan struct{}), make(chan struct{})
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "work"}, func(context.Context, struct{}) (string, error) {
		close(working)
		<-finish
		return "done", nil
	})
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{})
	site := httptest.NewServer(endpoint)
	defer site.Close()
	defer endpoint.Close(time.Second)
	var session *client.Session
	atClose := make(chan conn.State, 1)
	set := newSet(t, Options{Login: func(*mcpjson.Server) (Login, error) {
		return recordedLogin{func() { atClose <- session.Status().State }}, nil
	}})
	if err := apply(t, set, parse(t, `"a": {"url": "`+site.URL+`"}`), Changes{Started: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	session, _ = set.Session("a")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answers := make(chan error, 1)
	go func() {
		_, err := client.Call[string](ctx, session.With(client.CallOptions{WaitForReady: true}), "work", struct{}{})
		answers <- err
	}()
	select {
	case <-working:
	case <-ctx.Done():
		t.Fatal("the call did not begin")
	}
	applied := make(chan error, 1)
	go func() {
		_, err := set.Apply(ctx, parse(t, ``))
		applied <- err
	}()
	pause := time.NewTicker(20 * time.Millisecond) // if Apply hangs, the guard has time to say so
	defer pause.Stop()
	for session.Ping(ctx) == nil { // until the session is being closed
		<-pause.C
	}
	close(finish)
	if err := errors.Join(<-answers, <-applied); err != nil {
		t.Error(err)
	}
	if state := <-atClose; state != conn.Closing {
		t.Errorf("the login was closed when its session was %v", state)
	}
}

// TestAServerThatCannotBeStartedKeepsNoLogin starts a server whose name another child of the
// program's supervisor has.
//
// Guarantees: G-0041.3, G-0041.5
func TestAServerThatCannotBeStartedKeepsNoLogin(t *testing.T) {
	guard(t)
	shared := supervisor.New(supervisor.Options{})
	defer shared.Stop(context.Background())
	other := client.New(protocol.Implementation{Name: "other", Version: "1"}, client.Options{Supervisor: shared})
	defer other.Close(context.Background())
	if _, err := other.Start(t.Context(), "taken", away{}); err != nil {
		t.Fatal(err)
	}
	closed := 0
	set := newSet(t, Options{
		Client: client.Options{Supervisor: shared},
		Login:  func(*mcpjson.Server) (Login, error) { return recordedLogin{func() { closed++ }}, nil },
	})
	err := apply(t, set, parse(t, `"taken": {"url": "http://127.0.0.1:1/mcp"}`), Changes{Failed: []string{"taken"}})
	if err == nil {
		t.Error("a server was started whose name is taken")
	}
	if closed != 1 {
		t.Errorf("its login was closed %d times, want once", closed)
	}
}

// TestAFailedStartIsTriedAgain starts a server that was stopped, and whose login is refused. It is wanted again from then on, so the next
// Apply tries it. A login that cannot be closed is named, with its server, whatever others do.
//
// Guarantees: G-0041.3, G-0041.5, G-0041.8
func TestAFailedStartIsTriedAgain(t *testing.T) {
	guard(t)
	refused, unclosed := errors.New("no login today"), errors.New("it cannot be closed")
	var refuses error
	set := New(protocol.Implementation{Name: "test", Version: "1"}, Options{
		Each: func(of *mcpjson.Server, o *client.Options) {
			of.Transport.(*streamable.Client).HTTP = &http.Client{Transport: nobody{}}
			o.Conn.Log = slog.New(slog.DiscardHandler)
		},
		Login: func(*mcpjson.Server) (Login, error) { return unclosedLogin{err: unclosed}, refuses },
	})
	const file = `"a": {"url": "http://s/mcp"}, "b": {"url": "http://s/mcp"}`
	if err := apply(t, set, parse(t, file), Changes{Started: []string{"a", "b"}}); err != nil {
		t.Fatal(err)
	}
	if err := set.Stop(t.Context(), "a"); !errors.Is(err, unclosed) || err.Error() != `server "a": it cannot be closed` {
		t.Errorf("Stop returned %v, want that the login cannot be closed", err)
	}
	if err := apply(t, set, parse(t, file), Changes{}); err != nil {
		t.Error(err)
	}
	refuses = refused
	if err := set.Start(t.Context(), "a"); !errors.Is(err, refused) {
		t.Errorf("Start returned %v, want %v", err, refused)
	}
	refuses = nil
	if err := apply(t, set, parse(t, file), Changes{Started: []string{"a"}}); err != nil {
		t.Error(err)
	}
	testenv.Within(t, "Close returns", func() {
		err := set.Close(context.Background())
		for _, name := range []string{"a", "b"} {
			if want := fmt.Sprintf("server %q: %v", name, unclosed); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Close returned %v, want %s", err, want)
			}
		}
	})
}

// An unclosedLogin fails to be closed.
type unclosedLogin struct {
	recordedLogin
	err error
}

func (l unclosedLogin) Close() error { return l.err }

// TestWhichServersLogIn asks for a login for each kind of server.
//
// Guarantees: G-0041.6
func TestWhichServersLogIn(t *testing.T) {
	const block = `, "bowline": {"auth": {}}`
	own := recordedLogin{func() { t.Error("the program's own Authorizer was closed") }}
	refused := errors.New("no login today")
	for name, c := range map[string]struct {
		entry  string
		given  func(*mcpjson.Server) (Login, error) // Options.Login; nil: it is not set
		each   bool                                 // Each sets an Authorizer of its own
		asked  int
		has    bool   // the transport has a login
		failed string // the error; "": the server is started
	}{
		"a command":                         {`"command": "x"`, oneLogin, false, 0, false, ""},
		"a url":                             {`"url": "http://s/mcp"`, oneLogin, false, 1, true, ""},
		"a url of the older transport":      {`"type": "sse", "url": "http://s/sse"`, oneLogin, false, 1, true, ""},
		"an auth block":                     {`"url": "http://s/mcp"` + block, oneLogin, false, 1, true, ""},
		"a header":                          {`"url": "http://s/mcp", "headers": {"authorization": "Bearer x"}`, oneLogin, false, 0, false, ""},
		"another header":                    {`"url": "http://s/mcp", "headers": {"x": "y"}`, oneLogin, false, 1, true, ""},
		"a header of the older transport":   {`"type": "sse", "url": "http://s/sse", "headers": {"Authorization": "Bearer x"}`, oneLogin, false, 0, false, ""},
		"one of its own":                    {`"url": "http://s/mcp"`, oneLogin, true, 0, true, ""},
		"one of its own, older":             {`"type": "sse", "url": "http://s/sse"`, oneLogin, true, 0, true, ""},
		"one of its own, with an auth":      {`"url": "http://s/mcp"` + block, nil, true, 0, true, ""},
		"without logins":                    {`"url": "http://s/mcp"`, nil, false, 0, false, ""},
		"without logins, with a block":      {`"url": "http://s/mcp"` + block, nil, false, 0, false, "sessions: it has an auth block, and Options.Login is not set"},
		"without logins, with older block":  {`"type": "sse", "url": "http://s/sse"` + block, nil, false, 0, false, "sessions: it has an auth block, and Options.Login is not set"},
		"no login for this one":             {`"url": "http://s/mcp"`, func(*mcpjson.Server) (Login, error) { return nil, nil }, false, 1, false, ""},
		"no login for this one, with block": {`"url": "http://s/mcp"` + block, func(*mcpjson.Server) (Login, error) { return nil, nil }, false, 1, false, ""},
		"a refusal":                         {`"url": "http://s/mcp"`, func(*mcpjson.Server) (Login, error) { return nil, refused }, false, 1, false, refused.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			var server *mcpjson.Server
			asked := 0
			o := Options{Each: func(of *mcpjson.Server, o *client.Options) {
				server, o.Conn.Log = of, slog.New(slog.DiscardHandler)
				switch transport := of.Transport.(type) {
				case *stdio.Command:
					of.Transport = away{}
				case *streamable.Client:
					transport.HTTP = &http.Client{Transport: nobody{}}
					if c.each {
						transport.Authorizer = own
					}
				case *sse.Client:
					transport.HTTP = &http.Client{Transport: nobody{}}
					if c.each {
						transport.Authorizer = own
					}
				}
			}}
			if c.given != nil {
				o.Login = func(of *mcpjson.Server) (Login, error) {
					if asked++; of != server {
						t.Error("Login is asked about another server")
					}
					return c.given(of)
				}
			}
			changes := Changes{Started: []string{"a"}}
			if c.failed != "" {
				changes = Changes{Failed: []string{"a"}}
			}
			err := apply(t, newSet(t, o), parse(t, `"a": {`+c.entry+`}`), changes)
			if want := `server "a": ` + c.failed; (err != nil) != (c.failed != "") || err != nil && err.Error() != want || c.failed == refused.Error() && !errors.Is(err, refused) {
				t.Errorf("Apply returned %v, want %s", err, want)
			}
			has := false
			switch transport := server.Transport.(type) {
			case *streamable.Client:
				has = transport.Authorizer != nil
			case *sse.Client:
				has = transport.Authorizer != nil
			}
			if asked != c.asked || has != c.has {
				t.Errorf("Login was asked %d times, want %d; the server has a login: %t, want %t", asked, c.asked, has, c.has)
			}
		})
	}
}

func oneLogin(*mcpjson.Server) (Login, error) { return recordedLogin{func() {}}, nil }

// nobody is a network without anybody.
type nobody struct{}

func (nobody) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("nobody is there")
}
