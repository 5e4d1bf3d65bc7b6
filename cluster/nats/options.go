package nats

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/internal/rules"
	"github.com/bowline-mcp/bowline/internal/network"
)

// Options say which servers Connect uses, and how.
type Options struct {
	// URLs are the addresses of the servers of one NATS cluster, such as
	// "tls://nats.internal:4222". Further servers of it are learned, if the connection must
	// use TLS.
	URLs []string

	// Cluster is the name of the cluster, of 1 to 64 letters, digits, "-" and "_". Clusters
	// with other names may share the servers.
	Cluster string

	// Credentials is the name of a file with a JWT and a key, as nsc makes it. It is read
	// whenever a connection is made.
	Credentials string

	// User and Password, or Token, are for servers without such files.
	User, Password, Token string

	// TLS configures TLS. Nil: the system's roots. TLS is used if TLS is set, if a URL begins
	// with tls:, if the server asks for it, and whenever a server is not on this machine.
	TLS *tls.Config

	// Plain allows connections without TLS to servers on other machines. What is sealed
	// stays sealed, but others can then read the credentials and change what is sent.
	Plain bool

	// Replicas is how many servers keep each bucket that is created, and what a bucket that
	// exists must have. 0: three if the servers form a cluster, otherwise one, and a bucket
	// that exists may have any number.
	Replicas int

	// Existing keeps the Engine from creating buckets: if one does not exist, Bucket fails with an
	// error that matches cluster.ErrNotFound. It is for those who only look.
	Existing bool

	// Log receives what an operator should know: that the connection was lost and is back,
	// and what the server refuses. Nil: slog.Default.
	Log *slog.Logger

	// Dial makes the connection to the address in a URL. Nil: that of a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	pingEvery    = 2 * time.Second // the connection is lost after three without an answer to any
	dialTimeout  = 2 * time.Second
	writeTimeout = 2 * time.Second
	reconnectMin = 100 * time.Millisecond
	reconnectMax = 5 * time.Second
)

// redacted returns the URLs without passwords.
func (o Options) redacted() string {
	var all []string
	for _, text := range o.URLs {
		if u, err := url.Parse(text); err == nil { // they were checked
			all = append(all, u.Scheme+"://"+u.Host)
		}
	}
	return strings.Join(all, ", ")
}

// check returns the options with defaults, and whether TLS must be used.
func (o Options) check() (checked Options, secure bool, err error) {
	if err := rules.Cluster(o.Cluster); err != nil {
		return o, false, err
	}
	if o.Replicas < 0 || o.Replicas > 5 {
		return o, false, fmt.Errorf("%w: %d replicas, and there are 1 to 5", cluster.ErrInvalid, o.Replicas)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	local, secure, err := checkURLs(o.URLs)
	if err != nil {
		return o, false, err
	}
	if o.Credentials != "" {
		file, err := os.Open(o.Credentials)
		if err != nil {
			return o, false, fmt.Errorf("%w: the credentials: %w", cluster.ErrInvalid, err)
		}
		file.Close()
	}
	return o, secure || o.TLS != nil || !local && !o.Plain, nil
}

// checkURLs reports whether all servers are on this machine, and whether one wants TLS.
func checkURLs(urls []string) (local, secure bool, err error) {
	if len(urls) == 0 {
		return false, false, fmt.Errorf("%w: no URL of a NATS server", cluster.ErrInvalid)
	}
	local = true
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" || u.Scheme != "nats" && u.Scheme != "tls" {
			return false, false, fmt.Errorf("%w: the URL of a NATS server is like tls://host:4222", cluster.ErrInvalid) // it may contain a password
		}
		local = local && network.IsLoopback(u.Hostname())
		secure = secure || u.Scheme == "tls"
	}
	return local, secure, nil
}

// natsOptions translates the options. Connections are made until ctx ends.
func (o Options) natsOptions(ctx context.Context, secure bool) natsgo.Options {
	n := natsgo.GetDefaultOptions()
	n.Servers = o.URLs
	n.Name = "bowline " + o.Cluster
	n.NoEcho = true
	n.InboxPrefix = "_INBOX_bl_" + o.Cluster
	n.Timeout = dialTimeout
	n.FlusherTimeout = writeTimeout
	n.PingInterval, n.MaxPingsOut = pingEvery, 2
	n.AllowReconnect, n.MaxReconnect = true, -1
	n.ReconnectBufSize = -1
	n.CustomReconnectDelayCB = reconnectDelay
	n.IgnoreAuthErrorAbort = true
	n.Secure, n.TLSConfig = secure, o.TLS
	n.IgnoreDiscoveredServers = !secure && !o.Plain
	n.User, n.Password, n.Token = o.User, o.Password, o.Token
	if o.Credentials != "" {
		natsgo.UserCredentials(o.Credentials)(&n) //nolint:errcheck // it sets functions, and returns nil
	}
	n.CustomDialer = dialer{ctx, o.Dial}
	return n
}

// reconnectDelay grows from 100 ms to 5 s, less up to a fifth, so that nodes do not come all at once.
func reconnectDelay(attempts int) time.Duration {
	d := min(reconnectMin<<min(attempts-1, 10), reconnectMax)
	return d - rand.N(d/5)
}

// A dialer makes connections until its context ends.
type dialer struct {
	ctx  context.Context
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (d dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.ctx, dialTimeout)
	defer cancel()
	dial := d.dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return writeCloser{conn}, nil
}

// A writeCloser closes the connection if a write fails. The client of NATS would use it on, and
// wait for each of the next writes, too.
type writeCloser struct{ net.Conn }

func (c writeCloser) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.Conn.Close()
	}
	return n, err
}
