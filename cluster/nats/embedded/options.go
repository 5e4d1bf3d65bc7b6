package embedded

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/internal/rules"
)

// Options configure a server.
type Options struct {
	// Folder has the data of the server, its token and its lock. It is created with mode
	// 0700. Processes with the same Folder share one server.
	Folder string

	// Cluster is the name of the cluster, of 1 to 64 letters, digits, "-" and "_".
	Cluster string

	// Seeds are the addresses at which the servers of all machines listen for each other, also
	// this one's, one for each server, and at least three. Give all servers the same ones.
	// Empty: this is the only server. A server is known by its entry: another machine in its
	// place has the same entry, and gets what it has to keep from the others.
	Seeds []string

	// Self is which of Seeds is this server. Default: Listen, if it is one of them.
	Self string

	// Listen is the address for the servers of Seeds, such as ":4248". Processes of this
	// machine use another one, on the loopback interface.
	Listen string

	// Key is the key of the cluster, of cluster.KeySize bytes. Servers of Seeds prove to each
	// other that they have it, and encrypt what they send with TLS 1.3. Not used without Seeds.
	Key []byte

	// Routes are addresses by which this server reaches the others, in place of Seeds: those of
	// proxies, for tests. Then the others are told a dead address of this one, so that nobody
	// finds a way around the proxies.
	Routes []string

	// MaxMemory and MaxFile limit what all buckets take, in bytes, with what they reserve.
	// Default: 256 MiB and 8 GiB.
	MaxMemory, MaxFile int64

	// Log receives what an operator should know. Nil: slog.Default.
	Log *slog.Logger
}

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
	o.MaxMemory, o.MaxFile = cmp.Or(o.MaxMemory, 256<<20), cmp.Or(o.MaxFile, 8<<30)
	if o.MaxMemory < 0 || o.MaxFile < 0 {
		return o, fmt.Errorf("%w: a limit below zero", cluster.ErrInvalid)
	}
	o.Self = cmp.Or(o.Self, o.Listen)
	return o, o.checkServers()
}

// log returns the logger for what this package itself reports.
func (o Options) log() *slog.Logger { return o.Log.With("cluster", o.Cluster) }

// checkServers checks what is said of other servers.
func (o Options) checkServers() error {
	switch {
	case len(o.Seeds) == 0 && (o.Self != "" || len(o.Routes) > 0):
		return fmt.Errorf("%w: Self, Listen and Routes are for servers that have Seeds", cluster.ErrInvalid)
	case len(o.Seeds) == 0:
		return nil
	case len(o.Seeds) < replicas:
		return fmt.Errorf("%w: %d seeds; a cluster of servers has at least three, so that it can lose one", cluster.ErrInvalid, len(o.Seeds))
	case len(o.Key) != cluster.KeySize:
		return fmt.Errorf("%w: the key of the cluster has %d bytes, and not %d", cluster.ErrInvalid, len(o.Key), cluster.KeySize)
	case !slices.Contains(o.Seeds, o.Self):
		return fmt.Errorf("%w: %q is none of the seeds", cluster.ErrInvalid, o.Self)
	}
	for _, address := range slices.Concat([]string{o.Listen}, o.Seeds, o.Routes) {
		host, port, err := net.SplitHostPort(address)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || !hostForm.MatchString(host) || host == "" && address != o.Listen {
			return fmt.Errorf("%w: %q is no address of a server, such as host:4248", cluster.ErrInvalid, address)
		}
	}
	if sorted := slices.Compact(slices.Sorted(slices.Values(o.Seeds))); len(sorted) < len(o.Seeds) {
		return fmt.Errorf("%w: one of the seeds is there twice", cluster.ErrInvalid)
	}
	return nil
}

// hostForm is that of a host, as it may be a part of a URL and of the name of a folder.
var hostForm = regexp.MustCompile(`^[A-Za-z0-9._:%-]*$`)

// replicas is how many servers keep each bucket of a cluster with Seeds.
const replicas = 3

// serverPrefix begins the names of the folders of servers that have Seeds.
const serverPrefix = "server-"

// folder returns where the server keeps its data. Servers of several entries may run on one machine.
func (o Options) folder() string {
	if len(o.Seeds) == 0 {
		return o.Folder
	}
	return filepath.Join(o.Folder, serverPrefix+strings.NewReplacer(":", "_", "[", "", "]", "", "%", "_").Replace(o.Self))
}

// serverName is the name of the server of one of Seeds. Its replicas are known by that.
func serverName(seed string) string { return "bowline-" + seed }
