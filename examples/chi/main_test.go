package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTenantsBehindARouter checks that middleware, parameters of a route and other routes work as with any handler.
func TestTenantsBehindARouter(t *testing.T) {
	s := newSite(map[string]string{"secret": "ada"}, "acme", "initech")
	srv := httptest.NewServer(s)
	defer srv.Close()
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{FailFast: true})
	call := func(tenant, token string) (string, error) {
		session, err := c.Connect(t.Context(), &streamable.Client{URL: srv.URL + "/" + tenant + "/mcp", Header: http.Header{"Authorization": {"Bearer " + token}}})
		if err != nil {
			return "", err
		}
		return client.Call[string](t.Context(), session, "whoami", nil)
	}
	for _, tenant := range []string{"acme", "initech"} {
		text, err := call(tenant, "secret")
		if want := "ada of " + tenant + ", request "; err != nil || !strings.HasPrefix(text, want) || len(text) == len(want) {
			t.Errorf("%q, %v, want %s and its id", text, err, want)
		}
	}
	for _, refused := range []struct{ tenant, token, want string }{{"acme", "wrong", "HTTP status 401: who are you?"}, {"nobody", "secret", "there is no such server"}} {
		if _, err := call(refused.tenant, refused.token); err == nil || !strings.Contains(err.Error(), refused.want) {
			t.Errorf("%s with %s: %v, want %s", refused.tenant, refused.token, err, refused.want)
		}
	}
	response, err := http.Get(srv.URL + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if response.Body.Close(); err != nil || string(body) != "well\n" {
		t.Errorf("/healthz has %q, %v", body, err)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := errors.Join(c.Close(t.Context()), s.mcp.Shutdown(context.Background(), srv.Config)); err != nil {
		t.Error(err)
	}
}
