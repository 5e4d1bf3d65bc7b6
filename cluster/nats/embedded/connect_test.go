package embedded

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/nats"
	"github.com/bowline-mcp/bowline/internal/testenv"
)

// plainServer starts a server of NATS itself, with changes of its options.
func plainServer(t *testing.T, change func(*natsserver.Options)) *natsserver.Server {
	t.Helper()
	o := &natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: testenv.Dir(t), DisableJetStreamBanner: true,
	}
	change(o)
	s := must[*natsserver.Server](t)(natsserver.NewServer(o))
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(limit) {
		t.Fatal("the server is not ready")
	}
	return s
}

func optionsFor(s *natsserver.Server) nats.Options {
	return nats.Options{URLs: []string{"nats://" + s.Addr().String()}, Cluster: "test", Log: slog.New(slog.DiscardHandler)}
}

// connect connects an engine until the test ends.
func connect(t *testing.T, o nats.Options) cluster.Engine {
	t.Helper()
	e := connectOnly(t, o)
	t.Cleanup(func() { closeEngine(t, e) })
	return e
}

func connectOnly(t *testing.T, o nats.Options) cluster.Engine {
	t.Helper()
	e, err := nats.Connect(within(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func dialServer(s *natsserver.Server) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("tcp", s.Addr().String()) }
}

// oldServer speaks as much NATS as a client needs to learn its version.
func oldServer(t *testing.T, info string) string {
	t.Helper()
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(conn, "INFO %s\r\n", info)
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "PING") {
					fmt.Fprint(conn, "PONG\r\n")
				}
			}
			conn.Close()
		}
	}()
	return "nats://" + l.Addr().String()
}

// What a server lacks is said at once.
//
// Guarantees: G-0078.5
func TestUnsuitableServers(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		url          func(t *testing.T) string
		change       func(*nats.Options)
	}{
		{"an old version", "has version 2.10.29; use 2.11 or newer", func(t *testing.T) string {
			return oldServer(t, `{"server_id":"a","version":"2.10.29","headers":true,"max_payload":1048576,"proto":1}`)
		}, nil},
		{"no version", "use 2.11 or newer", func(t *testing.T) string {
			return oldServer(t, `{"server_id":"a","version":"","headers":true,"max_payload":1048576,"proto":1}`)
		}, nil},
		{"no JetStream", "has no JetStream; enable it", func(t *testing.T) string {
			return optionsFor(plainServer(t, func(o *natsserver.Options) { o.JetStream = false })).URLs[0]
		}, nil},
		{"no JetStream for the account", "for the account of these credentials", func(t *testing.T) string {
			return optionsFor(plainServer(t, func(o *natsserver.Options) {
				a := natsserver.NewAccount("A")
				o.Accounts = []*natsserver.Account{a}
				o.Users = []*natsserver.User{{Username: "u", Password: "p", Account: a}}
			})).URLs[0]
		}, func(o *nats.Options) { o.User, o.Password = "u", "p" }},
		{"short messages", "accepts messages of 1024 bytes", func(t *testing.T) string {
			return optionsFor(plainServer(t, func(o *natsserver.Options) { o.MaxPayload = 1024 })).URLs[0]
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := nats.Options{URLs: []string{c.url(t)}, Cluster: "test"}
			if c.change != nil {
				c.change(&o)
			}
			_, err := nats.Connect(within(t), o)
			var unsuitable *nats.ServerError
			if !errors.As(err, &unsuitable) || !strings.Contains(unsuitable.Reason, c.reason) || unsuitable.Server != o.URLs[0] {
				t.Errorf("Connect got %v, want that it %s", err, c.reason)
			}
		})
	}
}

func TestReplicasNeedServers(t *testing.T) {
	o := optionsFor(plainServer(t, func(*natsserver.Options) {}))
	o.Replicas = 3
	_, err := connect(t, o).Bucket(within(t), cluster.BucketOptions{Name: "b"})
	if unsuitable := (*nats.ServerError)(nil); !errors.As(err, &unsuitable) {
		t.Errorf("a bucket with three replicas on one server got %v, want a ServerError", err)
	}
}

// Who only looks for a bucket that nobody has made learns that it does not exist. It is not unavailable: to
// try again would wait for nothing.
func TestABucketThatDoesNotExist(t *testing.T) {
	o := optionsFor(plainServer(t, func(*natsserver.Options) {}))
	o.Existing = true
	_, err := connect(t, o).Bucket(within(t), cluster.BucketOptions{Name: "b"})
	if !errors.Is(err, cluster.ErrNotFound) || errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("got %v, want ErrNotFound alone", err)
	}
}

func TestConnectTriesUntilItsContextEnds(t *testing.T) {
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	address := l.Addr().String()
	l.Close()
	o := nats.Options{URLs: []string{"nats://" + address}, Cluster: "test"}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := nats.Connect(short, o)
	if took := time.Since(began); !errors.Is(err, cluster.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
		t.Errorf("without a server Connect got %v after %v", err, took)
	}
	connected := make(chan error, 1)
	go func() {
		e, err := nats.Connect(within(t), o)
		if err == nil {
			err = e.Close()
		}
		connected <- err
	}()
	_, port, _ := net.SplitHostPort(address)
	plainServer(t, func(o *natsserver.Options) { fmt.Sscan(port, &o.Port) })
	if err := testenv.Receive(t, connected, "Connect returns"); err != nil {
		t.Errorf("with a server that comes later Connect got %v", err)
	}
}

func TestRefusedCredentials(t *testing.T) {
	s := plainServer(t, func(o *natsserver.Options) { o.Username, o.Password = "user", "secret" })
	o := optionsFor(s)
	o.User, o.Password = "user", "wrong"
	_, err := nats.Connect(within(t), o)
	if !errors.Is(err, cluster.ErrDenied) || !errors.Is(err, cluster.ErrUnavailable) || strings.Contains(err.Error(), "wrong") {
		t.Errorf("with a wrong password Connect got %v", err)
	}
	o.Password = "secret"
	connect(t, o)
}

// authority makes certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pool        *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key))
	a.certificate = must[*x509.Certificate](t)(x509.ParseCertificate(der))
	a.pool.AddCert(a.certificate)
	return a
}

// config returns what a server on the loopback interface needs, and a client.
func (a *authority) config(t *testing.T) *tls.Config {
	t.Helper()
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key))
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: a.pool, MinVersion: tls.VersionTLS13}
}

// Guarantees: G-0078.4
func TestTLSIsRequiredBeyondThisMachine(t *testing.T) {
	a := newAuthority(t)
	plain := plainServer(t, func(*natsserver.Options) {})
	secure := plainServer(t, func(o *natsserver.Options) { o.TLSConfig, o.TLSTimeout = a.config(t), 5 })
	elsewhere := func(s *natsserver.Server) nats.Options { // an address that is not this machine's, as far as Connect knows
		o := optionsFor(s)
		o.URLs = []string{"nats://node.example:4222"}
		o.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.Addr().String())
		}
		return o
	}
	if _, err := nats.Connect(within(t), elsewhere(plain)); err == nil || !strings.Contains(err.Error(), "secure connection not available") {
		t.Errorf("without TLS Connect got %v", err)
	}
	o := elsewhere(plain)
	o.Plain = true
	connect(t, o)
	o = optionsFor(plain)
	o.URLs = append(o.URLs, "tls://127.0.0.1:1")
	if _, err := nats.Connect(within(t), o); err == nil || !strings.Contains(err.Error(), "secure connection not available") {
		t.Errorf("without TLS for a tls: URL Connect got %v", err)
	}
	o = optionsFor(secure)
	if _, err := nats.Connect(within(t), o); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without trust Connect got %v", err)
	}
	o.TLS = &tls.Config{RootCAs: a.pool, MinVersion: tls.VersionTLS13}
	connect(t, o)
}

func TestBadConnectOptions(t *testing.T) {
	for what, change := range map[string]func(*nats.Options){
		"no URL":           func(o *nats.Options) { o.URLs = nil },
		"another scheme":   func(o *nats.Options) { o.URLs = []string{"http://a:1"} },
		"no host":          func(o *nats.Options) { o.URLs = []string{"nats://:4222"} },
		"a broken URL":     func(o *nats.Options) { o.URLs = []string{"nats://user:secret@%"} },
		"no cluster":       func(o *nats.Options) { o.Cluster = "" },
		"a cluster of two": func(o *nats.Options) { o.Cluster = "a.b" },
		"six replicas":     func(o *nats.Options) { o.Replicas = 6 },
		"no replica":       func(o *nats.Options) { o.Replicas = -1 },
	} {
		o := nats.Options{URLs: []string{"nats://127.0.0.1:1"}, Cluster: "test"}
		change(&o)
		if _, err := nats.Connect(within(t), o); !errors.Is(err, cluster.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s got %v, want ErrInvalid", what, err)
		}
	}
}

// No password or token of a URL is in the error or the log of a server that cannot be reached, which its address is.
func TestCredentialsOfAnUnreachableServer(t *testing.T) {
	t.Parallel()
	for _, credentials := range []string{"user:secret", "secret"} {
		var log strings.Builder
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := nats.Connect(ctx, nats.Options{URLs: []string{"nats://" + credentials + "@127.0.0.1:1", "nats://" + credentials + "@127.0.0.1:2"}, Cluster: "test", Log: slog.New(slog.NewTextHandler(&log, nil))})
		cancel()
		if !errors.Is(err, cluster.ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
		for what, text := range map[string]string{"the error": err.Error(), "the log": log.String()} {
			if strings.Contains(text, "secret") || !strings.Contains(text, "nats://127.0.0.1:1, nats://127.0.0.1:2") {
				t.Errorf("%s says %s, want the addresses alone", what, text)
			}
		}
	}
}
