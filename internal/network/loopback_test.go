package network

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// TestNamesOfThisMachine checks hosts with and without a port.
func TestNamesOfThisMachine(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost:80": true, "127.0.0.1": true, "127.8.9.1:80": true, "::1": true, "[::1]": true, "[::1]:80": true, "::ffff:127.0.0.1": true,
		"": false, ":80": false, "localhost.": false, "localhost.evil.test": false, "127.0.0.1.evil.test": false, "192.0.2.1:80": false, "0.0.0.0": false, "[::]:80": false, "a:b:c": false, "[::1%25lo]:80": false, "::1%lo": false,
	} {
		if got := IsLoopback(NameOf(host)); got != want {
			t.Errorf("%q is this machine: got %v, want %v", host, got, want)
		}
	}
}

// TestOnLoopback checks the address at which a request arrives, and not the one it names.
func TestOnLoopback(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
	if OnLoopback(r) {
		t.Error("a request without an address was received on loopback")
	}
	for address, want := range map[string]bool{"127.0.0.1": true, "::1": true, "::ffff:127.0.0.1": true, "192.0.2.1": false} {
		ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.ParseIP(address)}))
		if got := OnLoopback(r.WithContext(ctx)); got != want {
			t.Errorf("%s: got %v, want %v", address, got, want)
		}
	}
}

// TestSecretsGoOverHTTPSOrStayHere checks addresses that look like this machine, too.
func TestSecretsGoOverHTTPSOrStayHere(t *testing.T) {
	for address, want := range map[string]bool{
		"https://as.test": true, "http://localhost:80": true, "http://a.localhost": true, "http://127.0.0.1": true, "http://[::1]:80": true,
		"http://as.test": false, "http://localhost.test": false, "http://192.0.2.1": false, "ftp://localhost": false, "localhost": false,
	} {
		parsed, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := KeepsSecrets(parsed); got != want {
			t.Errorf("%s: got %v, want %v", address, got, want)
		}
	}
}
