package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// A Setup says what the nodes of a Site share.
type Setup string

const (
	// OneServer is a server of NATS in one of the nodes.
	OneServer Setup = "one embedded server"
	// EmbeddedServers is a server of NATS in each of the nodes. They keep everything three times.
	EmbeddedServers Setup = "three embedded servers"
	// ThreeServers are three processes of nats-server, which keep everything three times.
	ThreeServers Setup = "three nats-servers"
)

// SiteOptions say which Site Open opens.
type SiteOptions struct {
	Setup      Setup
	Bowline    string // the program of a node: the full command
	NATSServer string // nats-server, for ThreeServers
	Folder     string // for everything that is written
	Log        io.Writer

	Child string // the nodes are gateways, and this program runs package child; "": they are servers
	Lies  Lies
}

// Lies are what gateways must not do. A run with one of them must be found wrong: what judges runs is worth as much as what it
// has been seen to find. They stand where a gateway that is wrong would be noticed by its clients, its servers, or whoever reads
// its trail, so that no gateway has to have code that lies. The zero value has none.
type Lies struct {
	Everywhere bool                                      // each gateway starts a server of which the cluster may have one
	Permits    bool                                      // a persona forbids nothing
	Between    func(http.RoundTripper) http.RoundTripper // stands between clients and gateways
	Trail      func(path string, key []byte) error       // changes the audit trail of a gateway that has ended
}

// A Site is three nodes of a cluster behind a Balancer, and everything in which faults are caused.
type Site struct {
	*Nodes
	options SiteOptions
	servers *natsServers // nil: in one of the nodes
	toNATS  [][]*Relay   // by node: its ways to the servers
	seeds   []string     // by node: where its server listens for the others, with EmbeddedServers
	behind  *gateways    // nil: the nodes are servers

	mu    sync.Mutex
	doors [siteNodes]*Relay // by node: the way of the other nodes to it; nil: it has ended
}

const (
	siteNodes   = 3
	siteCluster = "faults"
)

// Open starts a Site.
func Open(ctx context.Context, o SiteOptions) (_ *Site, err error) {
	s := &Site{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.openServers(ctx); err != nil {
		return nil, err
	}
	if o.Child != "" {
		if s.behind, err = openGateways(o.Child, o.Folder, o.Lies); err != nil {
			return nil, err
		}
	}
	s.Nodes, err = Start(ctx, Options{Nodes: siteNodes, Together: o.Setup == EmbeddedServers, Log: o.Log, Command: s.command, Ended: s.ended})
	return s, err
}

func (s *Site) openServers(ctx context.Context) (err error) {
	switch s.options.Setup {
	case EmbeddedServers:
		s.seeds, err = freeAddresses(siteNodes)
		return err
	case OneServer:
		return nil
	}
	if s.servers, err = startServers(ctx, s.options.NATSServer, s.options.Folder); err != nil {
		return err
	}
	for range siteNodes {
		var ways []*Relay
		for n := range natsCount {
			way, err := NewRelay(s.servers.of(0, n))
			if err != nil {
				return err
			}
			ways = append(ways, way)
		}
		s.toNATS = append(s.toNATS, ways)
	}
	return nil
}

// nodeName returns the name of a node in the cluster.
func nodeName(node int) string { return fmt.Sprintf("n%d", node) }

// command returns the command of a node that others reach through a new door.
func (s *Site) command(node int) (*exec.Cmd, error) {
	hop, err := freeAddresses(1)
	if err != nil {
		return nil, err
	}
	door, err := NewRelay(hop[0])
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.doors[node] = door
	s.mu.Unlock()
	arguments := []string{"serve", "--http", "127.0.0.1:0", "--ledger", s.Ledger()}
	if s.behind != nil {
		arguments = s.behind.arguments(node)
	}
	arguments = append(arguments, "--node", nodeName(node), "--hop", hop[0], "--advertise", door.Address())
	if s.servers != nil {
		for _, way := range s.toNATS[node] {
			arguments = append(arguments, "--nats", "nats://"+way.Address())
		}
	}
	if s.seeds != nil {
		arguments = append(arguments, "--cluster-listen", s.seeds[node], "--seed", strings.Join(s.seeds, ","))
	}
	return s.bowline(node, arguments...), nil
}

// bowline returns a command about the cluster, on the machine of a node.
func (s *Site) bowline(node int, arguments ...string) *exec.Cmd {
	command := exec.Command(s.options.Bowline, append(arguments, "--cluster", siteCluster)...)
	command.Env = append(os.Environ(), "XDG_CONFIG_HOME="+s.machine(node), "XDG_RUNTIME_DIR="+s.machine(node), "BOWLINE_CLUSTER_KEY="+strings.Repeat("5a", cluster.KeySize))
	return command
}

// machine returns what stands for the machine of a node: a folder, which all share if there is one server.
func (s *Site) machine(node int) string {
	if s.seeds == nil {
		return s.options.Folder
	}
	return filepath.Join(s.options.Folder, nodeName(node))
}

// saved waits until what the nodes know of their sessions is where the others find it.
func (s *Site) saved(ctx context.Context) error {
	arguments := []string{"nodes", "--json"}
	if s.servers != nil {
		for n := range natsCount {
			arguments = append(arguments, "--nats", "nats://"+s.servers.of(0, n))
		}
	}
	for {
		said, err := s.bowline(0, arguments...).Output()
		var reports []cluster.Report
		if err == nil {
			err = json.Unmarshal(said, &reports)
		}
		unsaved := 0
		for _, r := range reports {
			unsaved += r.Unsaved
		}
		if err == nil && len(reports) == siteNodes && unsaved == 0 {
			return nil
		}
		if paused := wait.Sleep(ctx, askEvery); paused != nil {
			return fmt.Errorf("%d sessions are not saved: %w", unsaved, errors.Join(paused, err))
		}
	}
}

// ended closes the door of a node that has ended, so that it refuses connections.
func (s *Site) ended(node int) {
	s.mu.Lock()
	door := s.doors[node]
	s.doors[node] = nil
	s.mu.Unlock()
	_ = door.Close() // what was being passed on has ended
}

// door returns the way to a node, which runs.
func (s *Site) door(node int) *Relay {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doors[node]
}

// users returns who uses the nodes: gateways have users, and servers none.
func (s *Site) users() []User {
	if s.behind == nil {
		return nil
	}
	return s.behind.users
}

// Ledger returns the file with the calls that were executed.
func (s *Site) Ledger() string { return filepath.Join(s.options.Folder, "ledger") }

// shared returns the folder that the nodes of one machine share.
func (s *Site) shared() string {
	return filepath.Join(s.options.Folder, "bowline", "clusters", siteCluster)
}

// Close ends everything.
func (s *Site) Close() error {
	var errs []error
	if s.Nodes != nil {
		errs = append(errs, s.Nodes.Close())
	}
	for _, ways := range s.toNATS {
		for _, way := range ways {
			errs = append(errs, way.Close())
		}
	}
	if s.servers != nil {
		errs = append(errs, s.servers.close())
	}
	return errors.Join(errs...)
}
