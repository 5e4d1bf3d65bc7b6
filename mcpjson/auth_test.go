package mcpjson

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAuthIsRead(t *testing.T) {
	t.Setenv("SECRET", "s")
	f, err := Parse("m", []byte(`{"servers": {"a": {"url": "https://h/mcp", "bowline": {"auth": {
		"grant": "client_credentials", "issuer": "https://as", "clientId": "c", "clientSecret": "${SECRET}", "scopes": ["read"],
		"clientMetadataUrl": "https://c/doc", "port": 8123, "offline": false, "dpop": true, "allowHosts": ["as"]
	}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.Server("a")
	if err != nil {
		t.Fatal(err)
	}
	no, yes := false, true
	want := &Auth{
		Grant: "client_credentials", Issuer: "https://as", ClientID: "c", ClientSecret: "s", Scopes: []string{"read"},
		MetadataURL: "https://c/doc", Port: 8123, Offline: &no, DPoP: &yes, AllowHosts: []string{"as"},
	}
	if diff := cmp.Diff(want, s.Settings.Auth); diff != "" {
		t.Error(diff)
	}
}

// Users of a gateway log in for themselves if the entry says so, and a change of that is another server.
//
// Guarantees: G-0102.4
func TestPerUserIsRead(t *testing.T) {
	read := func(block string) *Server {
		f, err := Parse("m", []byte(server(`"url": "https://h/mcp", "bowline": `+block)))
		if err != nil {
			t.Fatal(err)
		}
		s, err := f.Server("a")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	exchanged := read(`{"login": {"exchange": {"issuer": "https://as", "clientId": "c", "clientSecret": "s", "audience": "a", "scopes": ["x"]}}}`)
	if diff := cmp.Diff(&Exchange{"https://as", "c", "s", "a", []string{"x"}, nil}, exchanged.Settings.Exchange); diff != "" || !exchanged.Settings.PerUser {
		t.Error(diff)
	}
	asserted := read(`{"login": {"idjag": {"issuer": "https://as", "clientId": "c", "provider": {"tokenEndpoint": "https://idp/token", "clientId": "d", "clientSecret": "s", "subject": "id_token"}}}}`)
	if diff := cmp.Diff(&Exchange{Issuer: "https://as", ClientID: "c", Provider: &Provider{"https://idp/token", "d", "s", "id_token"}}, asserted.Settings.Exchange); diff != "" || !asserted.Settings.PerUser {
		t.Error(diff)
	}
	without, with := read(`{"share": "client"}`), read(`{"share": "client", "login": "user"}`)
	if without.Settings.PerUser || !with.Settings.PerUser || with.Same(without) {
		t.Errorf("%t, %t, the same: %t", without.Settings.PerUser, with.Settings.PerUser, with.Same(without))
	}
}

// TestIssuersOfAuth checks that an issuer on this machine may have http, for tests.
func TestIssuersOfAuth(t *testing.T) {
	for _, issuer := range []string{"https://as.test/a", "HTTPS://as", "http://localhost:8080", "http://as.localhost", "http://127.0.0.2/as", "http://[::1]:80"} {
		f, err := Parse("m", []byte(server(`"url": "http://h/", "bowline": {"auth": {"clientId": "c", "issuer": "`+issuer+`"}}`)))
		if err != nil {
			t.Fatal(err)
		}
		if s, err := f.Server("a"); err != nil || s.Settings.Auth.Issuer != issuer {
			t.Errorf("%s: %v, want it accepted", issuer, err)
		}
	}
}
