package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/spf13/cobra"
)

const clusterHelp = `Several bowline serve processes with the same --cluster are nodes of one
cluster. Requests may reach any node: put a load balancer in front of them.

On one machine nothing else is needed: one of the processes runs a server of
NATS, keeps its files in the user's configuration folder, and another takes over
when it ends. Nodes on several machines need a key, which "bowline cluster init"
makes, and one of these:

--nats URL: a NATS of yours keeps what the nodes share. Choose this if you have
one, or many nodes.

--cluster-listen ADDRESS --seed a:4248,b:4248,c:4248: each node runs a server, and
three of them keep a copy of everything. The list is the same at all nodes, and has
an entry for each, so three or more. Nodes know each other by the key: no
certificate or password is needed, and what they send is encrypted. A node starts
when more than half of the nodes are up; a cluster that starts for the first time
needs all but one, and three. It says for which nodes it waits. Of three nodes, one
may end at any time, and comes back with what it has kept. A node is known by its
entry: if another machine takes its place, give it the same name there. A node that
does not find itself in the list needs --advertise with its host. Open the port of
the list between the nodes, and that of --hop.`

func newCluster() *cobra.Command {
	command := &cobra.Command{
		Use:     "cluster",
		Short:   "Prepare a cluster of nodes",
		Long:    "Prepare a cluster of nodes.\n\n" + clusterHelp,
		Example: `  bowline cluster init --cluster-key cluster.key`,
	}
	var path string
	initialize := &cobra.Command{
		Use:   "init --cluster-key FILE",
		Short: "Make the key of a cluster",
		Long: `Make the key of a cluster, and write it to a new file that only you can read.
Copy it to every machine with a node. What the nodes share is encrypted with it, and
by it nodes with --seed know each other: there is no token besides. Whoever has it
can do everything that a node can.`,
		Example: `  bowline cluster init --cluster-key cluster.key
  bowline serve --http :8080 --cluster prod --cluster-key cluster.key --nats tls://nats.example.com:4222
  bowline serve --http :8080 --cluster prod --cluster-key cluster.key --cluster-listen :4248 --seed a:4248,b:4248,c:4248 --hop :7777`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return usageFailure(errors.New("name the file: bowline cluster init --cluster-key FILE"))
			}
			err := writeKey(path)
			switch found, _ := os.Stat(path); {
			case err == nil:
				cmd.PrintErrf("bowline: wrote %s\n", path)
				return nil
			case found != nil && found.IsDir():
				return usageFailure(fmt.Errorf("%s is a folder: name a file", path))
			case errors.Is(err, fs.ErrExist):
				return usageFailure(fmt.Errorf("%s exists already; the nodes of a running cluster need its key: remove the file yourself if you do not need it", path))
			default:
				return usageFailure(fmt.Errorf("--cluster-key: %w", err))
			}
		},
	}
	initialize.Flags().StringVar(&path, "cluster-key", "", "write the key to this new `FILE`")
	command.AddCommand(initialize)
	return command
}

// steeringTimeout limits commands that ask nodes.
const steeringTimeout = 15 * time.Second

func newNodes(with Extras) *cobra.Command {
	var flags clusterFlags
	var asJSON bool
	command := &cobra.Command{
		Use:   "nodes [--cluster NAME]",
		Short: "List the nodes of a cluster",
		Long: `List the nodes of a cluster: how they are, how old their leases are, how many
sessions they serve, and by how much their clocks differ from this machine's.

On a machine with a node the name of the cluster is enough, and it may be left out
if only one cluster runs there. Nodes with --seed are listed on their machines, and
nodes with --nats from every machine, with --nats and --cluster-key.`,
		Example: `  bowline nodes
  bowline nodes --cluster prod --nats tls://nats.example.com:4222 --cluster-key cluster.key --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.observe(cmd, with, func(ctx context.Context, n *cluster.Observer) error {
				reports, err := n.Reports(ctx)
				if len(reports) == 0 && err == nil {
					return fmt.Errorf("no node of the cluster %s runs", flags.name)
				}
				if asJSON {
					encoder := json.NewEncoder(cmd.OutOrStdout())
					encoder.SetIndent("", "  ")
					return errors.Join(encoder.Encode(reports), err)
				}
				return errors.Join(printNodes(cmd, reports), err)
			})
		},
	}
	flags.addFlags(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON: an array of objects, one for each node")
	return command
}

func printNodes(cmd *cobra.Command, reports []cluster.Report) error {
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tSTATE\tLEASE\tSESSIONS\tSERVERS\tVERSION\tADDRESS\tCLOCK")
	for _, r := range reports {
		state := string(r.State)
		if r.Draining {
			state = "draining"
		}
		servers := strings.Join(r.Exclusive, ",")
		if servers == "" {
			servers = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%+dms\n", printable(r.Name), state, r.LeaseAge.Round(100*time.Millisecond), r.Sessions,
			printable(servers), printable(r.Version), printable(r.Address), r.ClockDifference.Milliseconds())
	}
	return table.Flush()
}

func newDrain(with Extras) *cobra.Command {
	var flags clusterFlags
	command := &cobra.Command{
		Use:   "drain NODE [--cluster NAME]",
		Short: "End a node of a cluster, without the loss of a session",
		Long: `End a node of a cluster as an interrupt does: it takes no new sessions, finishes its
calls for at most five seconds, gives its sessions to the other nodes, and ends with
status 0. The command returns when the node has begun to drain.`,
		Example: `  bowline nodes
  bowline drain web-1-k3yd`,
		Args: cobra.MatchAll(atLeast("a node: bowline nodes lists them"), atMost(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.observe(cmd, with, func(ctx context.Context, n *cluster.Observer) error {
				if _, there := n.Member(args[0]); !there {
					return usageFailure(fmt.Errorf("the cluster has no node %q; bowline nodes lists them", args[0]))
				}
				return n.DrainNode(ctx, args[0])
			})
		},
	}
	flags.addFlags(command)
	return command
}

// observe runs f with a view of a cluster that runs already.
func (c *clusterFlags) observe(cmd *cobra.Command, with Extras, f func(context.Context, *cluster.Observer) error) error {
	if err := c.choose(with); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), steeringTimeout)
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	folder, err := clusterFolder(c.name)
	if err != nil {
		return err
	}
	key, err := c.observerKey(folder)
	if err != nil {
		return err
	}
	o := c.options(folder, log)
	o.Observe = true
	engine, err := c.open(ctx, with, o)
	if err != nil {
		return err
	}
	n, err := cluster.Observe(ctx, engine, cluster.Options{Cluster: c.name, Key: key, Log: log})
	switch {
	case err == nil:
		err = f(ctx, n)
		n.Close()
	case errors.Is(err, cluster.ErrNotFound):
		err = usageFailure(fmt.Errorf("no cluster %s has run there: is the name right?", c.name))
	default:
		err = c.explain(err)
	}
	return errors.Join(err, engine.Close())
}

// choose checks the flags. Without a name it chooses the only cluster that runs on this machine.
func (c *clusterFlags) choose(with Extras) error {
	if c.name == "" && with.Engine != nil {
		folder, err := clustersFolder()
		if err != nil {
			return err
		}
		entries, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		var names []string
		for _, entry := range entries {
			if clusterName.MatchString(entry.Name()) && with.Running(filepath.Join(folder, entry.Name())) {
				names = append(names, entry.Name())
			}
		}
		switch len(names) {
		case 0:
			return usageFailure(errors.New("no cluster without NATS servers of yours runs on this machine: name one with --cluster, and say with --nats and --cluster-key how it is reached"))
		case 1:
			c.name = names[0]
		default:
			return usageFailure(fmt.Errorf("name one of the clusters of this machine with --cluster: %s", strings.Join(names, ", ")))
		}
	}
	return c.check(with)
}
