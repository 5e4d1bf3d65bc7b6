package member

import (
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/spf13/cobra"
)

// Flags are the flags of a process that is a node of a cluster.
type Flags struct {
	Level slog.Level // of the log of the node, which no flag here sets
	ClusterFlags
	node string
	hop  string

	advertise string
}

// Add adds the flags to a command.
func (m *Flags) Add(command *cobra.Command) {
	m.ClusterFlags.Add(command)
	flags := command.Flags()
	flags.StringVar(&m.node, "node", "", "the `NAME` of this node in the cluster (default: the name of this machine and four letters)")
	flags.StringVar(&m.hop, "hop", "", "where the other nodes reach this one: an `ADDRESS` such as 0.0.0.0:7777 (default: a free port)")
	flags.StringVar(&m.advertise, "advertise", "", "the `ADDRESS` that other nodes use for this machine (default: its host in --seed, or the address by which it reaches NATS)")
}

// Check refuses flags that do not fit. Named says that --cluster was given.
func (m *Flags) Check(overHTTP, named bool, with Engines) error {
	switch {
	case m.Name == "" && named:
		return process.Usage(errors.New("--cluster has no name: is a variable empty?"))
	case m.Name == "" && (m.node+m.hop+m.credentials+m.keyFile+m.advertise+m.listen != "" || len(m.urls)+len(m.seeds) > 0):
		return process.Usage(errors.New("name the cluster with --cluster"))
	case m.Name == "":
		return nil
	case !overHTTP:
		return process.Usage(errors.New("--cluster needs --http: a process has one client on its standard input and output"))
	case m.node != "" && !clusterName.MatchString(m.node):
		return process.Usage(fmt.Errorf("--node %.80q: the name of a node has 1 to 64 letters, digits, \"-\" and \"_\"", m.node))
	case m.hop != "" && !isAddress(m.hop):
		return process.Usage(fmt.Errorf("--hop: %.100q is no address with a port, such as 0.0.0.0:7777", m.hop))
	case m.advertise != "" && !isAddress(m.advertise) && !isAddress(net.JoinHostPort(m.advertise, "0")):
		return process.Usage(fmt.Errorf("--advertise: %.100q is no host, with or without a port", m.advertise))
	}
	return m.ClusterFlags.check(with)
}

// isAddress reports whether a text is a host, perhaps none, and a port.
func isAddress(text string) bool {
	_, _, err := splitAddress(text)
	return err == nil
}
