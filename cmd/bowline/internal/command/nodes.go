package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/member"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/internal/private"
	"github.com/spf13/cobra"
)

const clusterHelp = `Several bowline serve or bowline up processes with the same --cluster are nodes of
one cluster. Requests may reach any node: put a load balancer in front of them.

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

const clusterInitLong = `Make the key of a cluster, and write it to a new file that only you can read.
Copy it to every machine with a node. What the nodes share is encrypted with it, and
by it nodes with --seed know each other: there is no token besides. Whoever has it
can do everything that a node can.`

const clusterInitExample = `  bowline cluster init --cluster-key cluster.key
  bowline serve --http :8080 --cluster prod --cluster-key cluster.key --nats tls://nats.example.com:4222
  bowline serve --http :8080 --cluster prod --cluster-key cluster.key --cluster-listen :4248 --seed a:4248,b:4248,c:4248 --hop :7777`

// newCluster has what is done before the first node starts. What is done to nodes that run are commands of their own, as those for servers are.
// A key is made by a command of its own: every command that needs one names this one in its error, and no command makes a key for several
// machines by itself.
func newCluster() *cobra.Command {
	command := &cobra.Command{
		Use:     "cluster",
		Short:   "Prepare a cluster of nodes",
		Long:    "Prepare a cluster of nodes.\n\n" + clusterHelp,
		Example: `  bowline cluster init --cluster-key cluster.key`,
	}
	var path string
	initialize := &cobra.Command{
		Use:     "init --cluster-key FILE",
		Short:   "Make the key of a cluster",
		Long:    clusterInitLong,
		Example: clusterInitExample,
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return makeKey(cmd, path) },
	}
	initialize.Flags().StringVar(&path, "cluster-key", "", "write the key to this new `FILE`")
	command.AddCommand(initialize)
	return command
}

// makeKey writes a new key. It never replaces a file: a running cluster may need what is in it.
func makeKey(cmd *cobra.Command, path string) error {
	if path == "" {
		return process.Usage(errors.New("name the file: bowline cluster init --cluster-key FILE"))
	}
	err := private.MakeKey(path, cluster.KeySize)
	switch found, _ := os.Stat(path); {
	case err == nil:
		cmd.PrintErrf("bowline: wrote %s\n", path)
		return nil
	case found != nil && found.IsDir():
		return process.Usage(fmt.Errorf("%s is a folder: name a file", path))
	case errors.Is(err, fs.ErrExist):
		return process.Usage(fmt.Errorf("%s exists already; the nodes of a running cluster need its key: remove the file yourself if you do not need it", path))
	default:
		return process.Usage(fmt.Errorf("--cluster-key: %w", err))
	}
}

const nodesLong = `List the nodes of a cluster: how they are, how old their leases are, how many
sessions they serve, and by how much their clocks differ from this machine's.

On a machine with a node the name of the cluster is enough, and it may be left out
if only one cluster runs there. Nodes with --seed are listed on their machines, and
nodes with --nats from every machine, with --nats and --cluster-key.`

const nodesExample = `  bowline nodes
  bowline nodes --cluster prod --nats tls://nats.example.com:4222 --cluster-key cluster.key --json`

// newNodes only looks: it becomes no node, makes no key, and starts no server of NATS. It asks all members for their reports, and lists
// those that have answered even if others do not.
func newNodes(with member.Engines) *cobra.Command {
	var flags member.ClusterFlags
	var asJSON bool
	command := &cobra.Command{
		Use:     "nodes [--cluster NAME]",
		Short:   "List the nodes of a cluster",
		Long:    nodesLong,
		Example: nodesExample,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.Observe(cmd, with, member.SteeringTimeout, func(ctx context.Context, n *cluster.Observer) error {
				reports, err := n.Reports(ctx)
				if len(reports) == 0 && err == nil {
					return fmt.Errorf("no node of the cluster %s runs", flags.Name)
				}
				return errors.Join(printNodes(cmd, reports, asJSON), err) // those that have answered
			})
		},
	}
	flags.Add(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON: an array of objects, one for each node")
	return command
}

// printNodes prints a row for each node. Names and addresses are words of other machines.
func printNodes(cmd *cobra.Command, reports []cluster.Report, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(cmd.OutOrStdout())
		encoder.SetIndent("", "  ")
		return encoder.Encode(reports)
	}
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
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%+dms\n", render.Printable(r.Name), state, r.LeaseAge.Round(100*time.Millisecond), r.Sessions,
			render.Printable(servers), render.Printable(r.Version), render.Printable(r.Address), r.ClockDifference.Milliseconds())
	}
	return table.Flush()
}

const drainLong = `End a node of a cluster as an interrupt does: it takes no new sessions, finishes its
calls for at most five seconds, gives its sessions to the other nodes, and ends with
status 0. The command returns when the node has begun to drain.`

const drainExample = `  bowline nodes
  bowline drain web-1-k3yd`

// newDrain asks a node to end. It does not wait for the end, which may take as long as the calls that run.
func newDrain(with member.Engines) *cobra.Command {
	command := &cobra.Command{
		Use:     "drain NODE [--cluster NAME]",
		Short:   "End a node of a cluster, without the loss of a session",
		Long:    drainLong,
		Example: drainExample,
		Args:    cobra.MatchAll(atLeast("a node: bowline nodes lists them"), atMost(1)),
	}
	return observing(command, with, member.SteeringTimeout, func(ctx context.Context, args []string, n *cluster.Observer) error {
		if _, there := n.Member(args[0]); !there {
			return process.Usage(fmt.Errorf("the cluster has no node %q; bowline nodes lists them", args[0]))
		}
		return n.DrainNode(ctx, args[0])
	})
}

// observing makes a command ask the cluster that its flags choose, within a time.
func observing(command *cobra.Command, with member.Engines, within time.Duration, ask func(ctx context.Context, args []string, n *cluster.Observer) error) *cobra.Command {
	flags := new(member.ClusterFlags)
	flags.Add(command)
	command.RunE = func(cmd *cobra.Command, args []string) error {
		return flags.Observe(cmd, with, within, func(ctx context.Context, n *cluster.Observer) error { return ask(ctx, args, n) })
	}
	return command
}

const moveLong = `Have a node run a server of which the cluster has one: one whose entry says
"instances": "one". The node that runs it finishes its calls for at most five
seconds, ends it, and then the other node starts it. It never runs twice.

What the server keeps in its memory is lost. Sessions of clients go on, and calls
that were cut off end as unknown. Where the server runs holds until its node ends,
or fails to run it. The command returns when the server is ready at its new node.`

const moveExample = `  bowline nodes
  bowline move db web-2-x7qa`

// newMove waits for the end of the move: who moves a server wants to know that it runs.
func newMove(with member.Engines) *cobra.Command {
	command := &cobra.Command{
		Use:     "move SERVER NODE [--cluster NAME]",
		Short:   "Have another node of a cluster run a server",
		Long:    moveLong,
		Example: moveExample,
		Args:    cobra.MatchAll(atLeast("a server of which the cluster has one, and a node: bowline nodes lists both", "a node: bowline nodes lists them"), atMost(2)),
	}
	return observing(command, with, member.SteeringTimeout+cluster.MoveTimeout, func(ctx context.Context, args []string, n *cluster.Observer) error {
		if err := n.MoveServer(ctx, args[0], args[1]); err != nil {
			return err
		}
		command.PrintErrf("bowline: node %s runs %s now; what the server kept in its memory is lost\n", render.Printable(args[1]), render.Printable(args[0]))
		return nil
	})
}

const keysLong = `Say when the keys of a cluster were rotated last: those that seal the questions of
servers while they are at clients, and make the nonces of DPoP. The keys themselves
are never shown.`

const keysRotateLong = `Replace the keys that the nodes of a cluster share, in two steps: when all nodes accept
the new keys, they are used. What was made with the old ones is accepted for two
hours more, so no request that is under way is refused. Rotations at the same time
are one. If a node does not accept the new keys, the command says which, and the
old ones stay in use; the next rotation goes on from there. The audit trail of each
gateway has your name and that of this machine.

The key of the cluster, in the file of --cluster-key, stays as it is. To replace that,
all nodes are stopped.`

// newKeys has the rotation as a command of its own below the one that only looks: who wants to know when the keys were rotated must not
// rotate them by a word that was left out. It has the time and not an age, since the clock of this machine may differ from the one that wrote it.
func newKeys(with member.Engines) *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:     "keys [--cluster NAME]",
		Short:   "Say when the keys of a cluster were rotated",
		Long:    keysLong,
		Example: "  bowline keys\n  bowline keys rotate",
		Args:    noArguments,
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON: an object")
	command.AddCommand(newKeysRotate(with))
	return observing(command, with, member.SteeringTimeout, func(ctx context.Context, _ []string, n *cluster.Observer) error {
		status, err := n.KeysStatus(ctx)
		if err != nil {
			return err
		}
		return printKeys(command, status, asJSON)
	})
}

// newKeysRotate has time for a node that was killed lately: its lease has to end before it is not waited for.
func newKeysRotate(with member.Engines) *cobra.Command {
	command := &cobra.Command{
		Use:     "rotate [--cluster NAME]",
		Short:   "Replace the keys that the nodes of a cluster share",
		Long:    keysRotateLong,
		Example: "  bowline keys rotate --cluster prod",
		Args:    noArguments,
	}
	return observing(command, with, member.SteeringTimeout+cluster.RotateTimeout, func(ctx context.Context, _ []string, n *cluster.Observer) error {
		if err := n.RotateKeys(ctx, operator()); err != nil {
			return err
		}
		command.PrintErrln("bowline: the new keys are in use; what was made with the old ones is accepted for two hours more")
		return nil
	})
}

// operator names who runs the command, for people. Whoever has the key of the cluster can name anybody.
func operator() string {
	name, host := "somebody", "an unknown machine"
	if account, err := user.Current(); err == nil {
		name = account.Username
	}
	if named, err := os.Hostname(); err == nil {
		host = named
	}
	return name + "@" + host
}

// printKeys says how the keys are. The time is that of the machine that has rotated them. A rotation that was broken off is nothing that
// hurts: the old keys are in use. But who has begun it may believe that it is done.
func printKeys(cmd *cobra.Command, status cluster.KeysStatus, asJSON bool) error {
	if asJSON {
		return render.JSON(cmd.OutOrStdout(), status)
	}
	last := "never"
	if !status.Rotated.IsZero() {
		last = status.Rotated.UTC().Format(time.RFC3339)
		if status.By != "" {
			last += " by " + render.Flat(status.By)
		}
	}
	if status.IsRotating {
		last += "; a rotation has begun and not ended: bowline keys rotate goes on with it"
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), "last rotated:", last)
	return err
}
