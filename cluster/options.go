package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"

	"github.com/bowline-mcp/bowline/cluster/guardian"
	"github.com/bowline-mcp/bowline/internal/seal"
)

// Options configure a Node.
type Options struct {
	// Cluster is the name of the cluster, the same on all its nodes: 1 to 64 letters, digits,
	// "-" and "_". Required.
	Cluster string

	// Node is the name of this node, another one on each: 1 to 64 letters, digits, "-" and
	// "_". Keep it across restarts, so that a node that has restarted is known for the same
	// one. Required.
	Node string

	// Key is the secret of the cluster, the same on all its nodes: KeySize random bytes.
	// Everything that the Engine keeps or carries is sealed with it. Required.
	Key []byte

	// Labels describe the node, for the choice of nodes that may run a server. At most
	// 4 KiB. Default: none.
	Labels map[string]string

	// Version is the version of the program, for reports. At most 256 bytes.
	Version string

	// Hop is the address on which this node listens for the other nodes, as host:port; see
	// Node.Serve. An empty host means all addresses of the machine. Default: a random port of
	// the address by which this machine reaches the Engine.
	Hop string

	// Advertise is the address at which other nodes reach this one, as host or host:port, if it
	// is not the one on which it listens. Default: that one; if Hop has no host, the address by
	// which this machine reaches the Engine.
	Advertise string

	// Guardian starts the servers of Upstream that are processes, so that they end in time
	// also if this node is stopped or killed: what guardian.Start has returned at the beginning
	// of main. Default: such a server may run on beyond its claim; see Upstream.
	Guardian *guardian.Guardian

	// MaxTasks is how many places Node.Tasks has, of 32 KiB each, the same on all nodes: the Engine needs room for
	// as many bytes. A cluster that has tasks already keeps its old number, until its bucket of tasks is edited or
	// deleted in the Engine. Default: 32,000, for which the Engine needs 1 GiB.
	MaxTasks int

	// Log receives what an operator should know: a lease that was lost and is back, values
	// that could not be read. Default: slog.Default().
	Log *slog.Logger
}

// KeySize is the length of Options.Key, in bytes.
const KeySize = seal.MinSecret

// A KeyError says that the key of a cluster is missing, has another length, or is not the key
// that the nodes of the cluster have.
type KeyError struct {
	Bytes int      // its length
	Nodes []string // the nodes that have another key, if no node has this one
}

func (e *KeyError) Error() string {
	const remedy = "give all nodes of the cluster the same %d random bytes"
	if len(e.Nodes) > 0 {
		return fmt.Sprintf("cluster: nodes %q have another key: "+remedy, e.Nodes, KeySize)
	}
	if e.Bytes == 0 {
		return fmt.Sprintf("cluster: there is no key: "+remedy, KeySize)
	}
	return fmt.Sprintf("cluster: the key has %d bytes: "+remedy, e.Bytes, KeySize)
}

// A NameError says that the name of a cluster or a node is not valid.
type NameError struct {
	Kind string // "cluster" or "node"
	Name string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("cluster: the name %.80q of the %s is not valid: use 1 to 64 letters, digits, \"-\" and \"_\"", e.Name, e.Kind)
}

// A NameTakenError says that another process is the node with this name.
type NameTakenError struct {
	Node    string
	Address string // of that process, as far as known
}

func (e *NameTakenError) Error() string {
	at := ""
	if e.Address != "" {
		at = " at " + e.Address
	}
	return fmt.Sprintf("cluster: another process%s is node %q: stop it, or give this one another name", at, e.Node)
}

var (
	validName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

	errTooLong = errors.New("cluster: Labels have more than 4 KiB, or Version more than 256 bytes: shorten them")
)

const (
	maxLabels  = 4 << 10
	maxVersion = 256
)

// check returns the options with defaults, and copies of what the caller may change.
func (o Options) check() (Options, error) {
	switch {
	case !validName.MatchString(o.Cluster):
		return o, &NameError{"cluster", o.Cluster}
	case !validName.MatchString(o.Node):
		return o, &NameError{"node", o.Node}
	case len(o.Key) != KeySize:
		return o, &KeyError{Bytes: len(o.Key)}
	}
	size := 0
	for k, v := range o.Labels {
		size += len(k) + len(v)
	}
	if size > maxLabels || len(o.Version) > maxVersion {
		return o, errTooLong
	}
	o.Key, o.Labels = append([]byte(nil), o.Key...), maps.Clone(o.Labels)
	if o.MaxTasks <= 0 {
		o.MaxTasks = defaultTasks
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o, nil
}
