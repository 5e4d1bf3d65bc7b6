package guard

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// InsecureSkipVerify holds for the origin of the endpoint only, not for other ports of its
// host and not after a redirect. Authorities hold for all hosts.
//
// Guarantees: G-0045.8
func TestCertificatesOfOtherOriginsAreChecked(t *testing.T) {
	start := func(handle http.HandlerFunc) *httptest.Server {
		s := httptest.NewUnstartedServer(handle)
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	other := start(func(http.ResponseWriter, *http.Request) {})
	endpoint := start(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(rw, r, other.URL, http.StatusFound)
		}
	})
	authorities := x509.NewCertPool()
	authorities.AddCert(other.Certificate())
	for name, c := range map[string]struct {
		config  *tls.Config
		address string
		fetched bool
	}{
		"insecure, the endpoint":        {&tls.Config{InsecureSkipVerify: true}, endpoint.URL + "/mcp", true},
		"insecure, another path":        {&tls.Config{InsecureSkipVerify: true}, endpoint.URL + "/token", true},
		"insecure, another origin":      {&tls.Config{InsecureSkipVerify: true}, other.URL, false},
		"insecure, redirected":          {&tls.Config{InsecureSkipVerify: true}, endpoint.URL + "/away", false},
		"authorities, another origin":   {&tls.Config{RootCAs: authorities}, other.URL, true},
		"both, another origin":          {&tls.Config{RootCAs: authorities, InsecureSkipVerify: true}, other.URL, true},
		"the program checks for itself": {&tls.Config{InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error { return nil }}, other.URL, true},
		"it checks certificates":        {&tls.Config{InsecureSkipVerify: true, VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error { return nil }}, other.URL, true},
		"the defaults":                  {nil, endpoint.URL, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.config.Clone()
			g := New(Options{Endpoint: endpoint.URL + "/mcp", TLS: c.config})
			defer g.Close()
			err := get(t, g, c.address)
			if (err == nil) != c.fetched || err != nil && !errors.As(err, new(*tls.CertificateVerificationError)) {
				t.Errorf("%v, want that it is fetched: %v", err, c.fetched)
			}
			if c.config != nil && c.config.InsecureSkipVerify != before.InsecureSkipVerify {
				t.Error("the configuration of the program was changed")
			}
		})
	}
}
