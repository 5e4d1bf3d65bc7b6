//go:build unix

package command

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/certificate"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// TestCertificatesAreReadAgain replaces the certificate of a gateway that runs. New connections get the new one, without a restart; a pair that is broken changes nothing, and the log says why. A connection that
// is open goes on through all of that.
//
// Guarantees: G-0097.6
func TestCertificatesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	path, cert, key := filepath.Join(dir, "mcp.json"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	mcpFile(t, path, "one")
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	first := writeCertificate(t, cert, key)
	up := startUp(t, path, "--tls-cert", cert, "--tls-key", key)
	defer up.end()
	open := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: first}, MaxConnsPerHost: 1}
	defer open.CloseIdleConnections()
	ask := func(over *http.Transport) error {
		response, err := (&http.Client{Transport: over}).Get(up.url)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return errors.Join(err, response.Body.Close())
	}
	anew := func(trusts *x509.CertPool) error {
		return ask(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusts}, DisableKeepAlives: true})
	}
	pace := time.NewTicker(20 * time.Millisecond) // of connections: the files are looked at once a second
	defer pace.Stop()
	until := func(what string, isSo func() bool) {
		t.Helper()
		for began := time.Now(); !isSo(); <-pace.C {
			if err := ask(open); err != nil { // it trusts the first certificate only, so it cannot connect again
				t.Fatalf("until %s, the connection that was open: %v", what, err)
			}
			if time.Since(began) > 20*time.Second {
				t.Fatalf("it does not come to %s", what)
			}
		}
	}
	if err := errors.Join(ask(open), anew(first)); err != nil {
		t.Fatal(err)
	}
	second := writeCertificate(t, cert, key)
	until("the new certificate", func() bool { return anew(second) == nil })
	if anew(first) == nil {
		t.Error("a new connection gets the first certificate")
	}
	for _, broken := range []struct {
		what  string
		write func()
		says  string
	}{
		{"a key that is none", func() {
			if err := os.WriteFile(key, []byte("broken"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "failed to find any PEM data in key input"},
		{"the key of another certificate", func() { writeCertificate(t, filepath.Join(dir, "other.pem"), key) }, "private key does not match public key"},
	} {
		broken.write()
		said := make(chan bool, 1)
		up.readers.Go(func() { said <- up.says("the certificate stays as it was: ", broken.says) })
		until(broken.what+" in the log", func() bool {
			if err := anew(second); err != nil {
				t.Fatalf("with %s: %v", broken.what, err)
			}
			select {
			case found := <-said:
				if !found {
					t.Fatalf("it has ended, and not said that there was %s:\n%s", broken.what, up.said.String())
				}
				return true
			default:
				return false
			}
		})
	}
	third := writeCertificate(t, cert, key)
	until("the certificate after that", func() bool { return anew(third) == nil })
}

// A saying is a log whose lines the test waits for.
type saying chan string

func (s saying) Write(line []byte) (int, error) {
	s <- string(line)
	return len(line), nil
}

// Handshakes that fail, and what is no HTTP/2, write nothing into the log, since anybody could make as many of them: only at the level debug each has a line. That a handler has
// panicked is an error.
//
// Guarantees: G-0097.6
func TestHandshakesThatFailAreNotLogged(t *testing.T) {
	panicked := []string{`ERROR msg="http2: panic serving`, `ERROR msg="http: panic serving`}
	for level, want := range map[slog.Level][]string{
		slog.LevelInfo:  panicked,
		slog.LevelDebug: slices.Concat([]string{`DEBUG msg="http2: server: error`}, slices.Repeat([]string{`DEBUG msg="http: TLS handshake`}, 3), panicked),
	} {
		dir := t.TempDir()
		a := &access{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
		roots := writeCertificate(t, a.cert, a.key)
		var err error
		if a.certificate, err = certificate.Load(a.cert, a.key, func(text string) { t.Error(text) }); err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) { panic("broken") })
		endpoint := streamable.NewHandler(server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{}), streamable.HandlerOptions{})
		said := make(saying, 100)
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		served := make(chan error, 1)
		go func() {
			served <- a.serve(ctx, endpoint, mux, listener, slog.NewTextHandler(said, &slog.HandlerOptions{Level: level}))
		}()
		untilClosed := func(link net.Conn, err error, text string) {
			t.Helper()
			if err == nil {
				_, err = io.WriteString(link, text)
			}
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, link) // the server has logged what it logs when it closes the connection
			link.Close()
		}
		for range 3 {
			link, err := net.Dial("tcp", listener.Addr().String())
			untilClosed(link, err, "this is no TLS\n")
		}
		link, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}})
		untilClosed(link, err, "http: panic serving clients")
		for _, protocols := range [][]string{{"h2"}, {"http/1.1"}} {
			to := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, NextProtos: protocols}, DisableKeepAlives: true, ForceAttemptHTTP2: protocols[0] == "h2"}
			if response, err := (&http.Client{Transport: to}).Get("https://" + listener.Addr().String()); err == nil {
				t.Errorf("%v: %s", protocols, response.Status)
			}
		}
		var got []string
		for len(got) < len(want) || len(said) > 0 {
			select {
			case line := <-said:
				_, line, _ = strings.Cut(line, "level=")
				got = append(got, strings.Join(strings.Fields(line)[:4], " "))
			case <-ctx.Done():
				t.Fatalf("from %v on it logs only %q", level, got)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("from %v on it logs %q, want %q", level, got, want)
		}
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// writeCertificate makes a certificate for this machine, and returns what trusts it.
func writeCertificate(t *testing.T, cert, key string) *x509.CertPool {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	number, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: number, Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	public, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: public})
	if err := errors.Join(os.WriteFile(cert, certificate, 0o600), os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600)); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return roots
}
