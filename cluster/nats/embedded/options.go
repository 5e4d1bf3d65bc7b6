package embedded

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/internal/rules"
	"github.com/bowline-mcp/bowline/internal/loopback"
)

// Options configure a server.
type Options struct {
	// Folder has the data of the server, its token and its lock. It is created with mode
	// 0700. Processes with the same Folder share one server.
	Folder string

	// Cluster is the name of the cluster, of 1 to 64 letters, digits, "-" and "_".
	Cluster string

	// Seeds are the addresses at which the servers of all machines listen for each other, also
	// this one's, at least three. Empty: this is the only server. When a cluster starts for the
	// first time, it waits for all servers but one, if Listen or Advertise is one of Seeds, and
	// otherwise for all. Later it waits for more than half.
	Seeds []string

	// Listen is the address for the servers of Seeds, such as ":6222". Processes of this
	// machine use another one, on the loopback interface.
	Listen string

	// Advertise is the address that other servers are told to use for this one, if it is not
	// the one at which it listens.
	Advertise string

	// Token is a secret of at least 16 bytes that the servers of Seeds share. Not used
	// without Seeds: then the server makes one.
	Token string

	// TLS has the certificate of this server, and the roots of those of the others. It must
	// be set if Listen or one of Seeds is not on the loopback interface. Every server proves
	// who it is to every other.
	TLS *tls.Config

	// MaxMemory and MaxFile limit what all buckets take, in bytes, with what they reserve.
	// Default: 256 MiB and 8 GiB.
	MaxMemory, MaxFile int64

	// Log receives what an operator should know. Nil: slog.Default.
	Log *slog.Logger
}

const shortestToken = 16

// check returns the options with defaults.
func (o Options) check() (Options, error) {
	if err := rules.Cluster(o.Cluster); err != nil {
		return o, err
	}
	if o.Folder == "" {
		return o, fmt.Errorf("%w: no folder", cluster.ErrInvalid)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Log = o.Log.With("cluster", o.Cluster)
	o.MaxMemory, o.MaxFile = cmp.Or(o.MaxMemory, 256<<20), cmp.Or(o.MaxFile, 8<<30)
	if o.MaxMemory < 0 || o.MaxFile < 0 {
		return o, fmt.Errorf("%w: a limit below zero", cluster.ErrInvalid)
	}
	return o, o.checkServers()
}

// checkServers checks what is said of other servers.
func (o Options) checkServers() error {
	switch {
	case len(o.Seeds) == 0 && (o.Listen != "" || o.Advertise != "" || o.Token != "" || o.TLS != nil):
		return fmt.Errorf("%w: Listen, Advertise, Token and TLS are for servers that have Seeds", cluster.ErrInvalid)
	case len(o.Seeds) == 0:
		return nil
	case len(o.Seeds) < 3:
		return fmt.Errorf("%w: %d seeds; a cluster of servers has at least three, so that it can lose one", cluster.ErrInvalid, len(o.Seeds))
	case len(o.Token) < shortestToken:
		return fmt.Errorf("%w: the token of the servers has %d bytes, fewer than %d", cluster.ErrInvalid, len(o.Token), shortestToken)
	}
	addresses := append([]string{o.Listen}, o.Seeds...)
	if o.Advertise != "" {
		addresses = append(addresses, o.Advertise)
	}
	local := true
	for _, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil || port == "" || strings.ContainsAny(host, "/@") {
			return fmt.Errorf("%w: %q is no address of a server, such as host:6222", cluster.ErrInvalid, address)
		}
		local = local && loopback.IsName(host)
	}
	if !local && (o.TLS == nil || len(o.TLS.Certificates) == 0 && o.TLS.GetCertificate == nil || o.TLS.RootCAs == nil) {
		return fmt.Errorf("%w: servers of several machines need TLS, with a certificate and the roots of those of the others", cluster.ErrInvalid)
	}
	return nil
}

// routeTLS is for both directions of a connection between servers.
func (o Options) routeTLS() *tls.Config {
	if o.TLS == nil {
		return nil
	}
	c := o.TLS.Clone()
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, c.RootCAs
	c.MinVersion = max(c.MinVersion, tls.VersionTLS13)
	return c
}
