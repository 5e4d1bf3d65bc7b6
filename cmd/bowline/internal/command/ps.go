package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/doors"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/spf13/cobra"
)

const psLong = `List the servers of a running "bowline up": how they are, why, and when the next
attempt is. What is in trouble comes first.

The states are
  ready          calls are answered; WHY says what the server offers and clients do not
                 get as it is, or may refuse, such as a schema with a remote reference
  starting       the process runs, or the address is asked; it has not answered yet
  backoff        it failed; WHY says how, and when it is tried again; a call does so sooner
  misconfigured  its entry in the file has a mistake, and WHY says where
  stopped        by "bowline stop", or because it starts on demand and nobody uses it

RESTARTS are those that the gateway has made by itself since the server was last
started, with the gateway, by a command or on demand. CALLS are those under way, and
TOOLS those that are offered, also while the server is away.

If several gateways run, choose one by --file or --admin. One of a cluster knows how
the others are, as they say themselves: --node NAME prints the servers of one, and
--node all those of all.`

const psExample = `  bowline ps
  bowline ps --json
  bowline ps --node all
  bowline ps --watch --file mcp.json`

// newPs asks once, or with --watch until the gateway or the command ends.
func newPs() *cobra.Command {
	var of doors.Choice
	var asJSON, watch bool
	var node string
	command := &cobra.Command{
		Use:     "ps",
		Short:   "List the servers of a running gateway",
		Long:    psLong,
		Example: psExample,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := func(r admin.Report) error {
				if asJSON {
					return render.JSON(cmd.OutOrStdout(), r)
				}
				for _, mistake := range r.Mistakes {
					cmd.PrintErrln(render.Message("the file is not applied: " + mistake))
				}
				return printNode(cmd.OutOrStdout(), r, node)
			}
			return of.Use(cmd.Context(), func(c *admin.Client) error { return askReport(cmd.Context(), c, watch, show) })
		},
	}
	of.Add(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON: an object for each report")
	command.Flags().StringVar(&node, "node", "", "print the servers of the gateway with this `NAME` in the cluster, or of all")
	command.Flags().BoolVar(&watch, "watch", false, "print the list again after each change")
	return command
}

// askReport shows the report once, or after each change. A gateway that ends while it is watched is an error: the list would be taken for
// what holds now.
func askReport(ctx context.Context, c *admin.Client, watch bool, show func(admin.Report) error) error {
	if watch {
		return c.Watch(ctx, show)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	report, err := c.Report(ctx)
	if err != nil {
		return err
	}
	return show(report)
}

// answerTime is how long a gateway may take to answer: it takes 30 s at most for what acts.
const answerTime = 40 * time.Second

// printNode prints the servers of one gateway of a cluster, or of all with the age of what each has said.
func printNode(out io.Writer, r admin.Report, node string) error {
	if node == "" || node == r.Node {
		return printServers(out, r)
	}
	var chosen []admin.NodeReport
	for _, n := range r.NodesTroubleFirst() {
		if node == "all" || n.Name == node {
			chosen = append(chosen, n)
		}
	}
	if r.Node == "" || node != "all" && len(chosen) == 0 {
		return process.Refuse("the cluster of this gateway has no node %q; bowline nodes lists them", node)
	}
	if node == "all" {
		fmt.Fprintf(out, "NODE %s (this one)\n", render.Flat(r.Node))
		if err := printServers(out, r); err != nil {
			return err
		}
	}
	for _, n := range chosen {
		if err := printOther(out, r, n); err != nil {
			return err
		}
	}
	return nil
}

// printOther prints what another gateway has said of its servers.
func printOther(out io.Writer, r admin.Report, n admin.NodeReport) error {
	state := fmt.Sprintf("%s, %s ago", n.State, max(r.At.Sub(n.At), 0).Round(time.Second))
	if n.Silent {
		state = "does not answer"
	}
	fmt.Fprintf(out, "NODE %s (%s)\n", render.Flat(n.Name), render.Flat(state))
	if err := printServers(out, admin.Report{At: r.At, Servers: n.Servers}); err != nil || n.More == 0 {
		return err
	}
	_, err := fmt.Fprintf(out, "and %d more\n", n.More)
	return err
}

// printServers prints a row for each server. Reasons are words of servers.
func printServers(out io.Writer, r admin.Report) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SERVER\tSTATE\tPID\tRESTARTS\tCALLS\tTOOLS\tWHY")
	for _, s := range r.TroubleFirst() {
		pid := "-"
		if s.PID != 0 {
			pid = fmt.Sprint(s.PID)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", render.Flat(s.Name), render.Printable(string(s.State)), pid, s.Restarts, s.Calls, s.Tools, whyOf(s, r.At))
	}
	if err := table.Flush(); err != nil || r.Denials() == "" {
		return err
	}
	_, err := fmt.Fprintln(out, r.Denials())
	return err
}

// causeOf says why a server is in its state.
func causeOf(s admin.ServerReport) string {
	if s.OnDemand {
		if s.LastFailure != "" {
			return s.Reason + "; last failure: " + s.LastFailure
		}
		return s.Reason
	}
	why := s.Mistake
	switch s.State {
	case admin.Ready:
		if len(s.Notices) > 0 {
			why = cmp.Or(why, briefly(s.Notices))
		}
	case admin.Starting: // its reason is a step of the connection
		why = cmp.Or(why, s.LastFailure, "it has not answered yet")
	default:
		why = cmp.Or(why, s.LastFailure, s.Reason)
	}
	return why
}

// whyOf says in one line what is wrong with a server, and when that may change.
func whyOf(s admin.ServerReport, now time.Time) string {
	why := causeOf(s)
	if s.State == admin.Backoff && !strings.Contains(why, s.Stderr) {
		why += "; stderr: " + s.Stderr
	}
	if !s.NextAttempt.IsZero() {
		why += fmt.Sprintf("; next attempt in %s", max(s.NextAttempt.Sub(now), 0).Round(time.Second))
	}
	if s.Connections > 0 {
		connections := "1 connection of a client"
		if s.Connections > 1 {
			connections = fmt.Sprintf("%d connections of clients", s.Connections)
		}
		why = strings.TrimPrefix(why+"; "+connections, "; ")
		if len(s.Users) > 0 {
			why += ": " + strings.Join(s.Users, ", ")
		}
	}
	return render.Flat(cmp.Or(why, "-"))
}

// briefly is the first of several things, as on the page.
func briefly(all []string) string {
	if more := len(all) - 1; more > 0 {
		return fmt.Sprintf("%s; and %d more", all[0], more)
	}
	return all[0]
}

// printLines prints what a server has written, which may hold anything: what could drive the terminal is replaced.
func printLines(out io.Writer, lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, render.Printable(line)); err != nil {
			return err
		}
	}
	return nil
}

// An acting is a command that does one thing to a server.
type acting struct {
	action      admin.Action
	short, long string
}

// newActs has the commands that act on one server of a running gateway. They return when the gateway has done it, and do not
// wait until the server is ready: a server that is broken would keep them.
func newActs() []*cobra.Command {
	var all []*cobra.Command
	for _, a := range []acting{
		{admin.Restart, "Restart a server of a running gateway", "End a server of a running \"bowline up\", and start it again. Calls that are running\nhave five seconds to finish. The command does not wait until the server is ready."},
		{admin.Stop, "Stop a server of a running gateway", "End a server of a running \"bowline up\". It stays stopped until \"bowline start\" or\n\"bowline restart\", or until the file has other settings for it. Calls that are\nrunning have five seconds to finish. Its tools stay in the list, and calls of them\nfail."},
		{admin.Start, "Start a server of a running gateway", "Start a server of a running \"bowline up\" that was stopped."},
		{admin.Wake, "Let a server of a running gateway try again now", "Let a server of a running \"bowline up\" that waits for its next attempt try again at\nonce."},
	} {
		all = append(all, a.command())
	}
	return all
}

// command asks the gateway. Which one is meant is found out only when the command runs.
func (a acting) command() *cobra.Command {
	command := &cobra.Command{
		Use:     string(a.action) + " SERVER",
		Short:   a.short,
		Long:    a.long,
		Example: "  bowline " + string(a.action) + " files",
		Args:    oneServer,
	}
	return asking(command, func(ctx context.Context, args []string, c *admin.Client) error { return c.Do(ctx, args[0], a.action) })
}

// asking makes a command ask the gateway that its flags choose, for as long as an answer may take.
func asking(command *cobra.Command, ask func(ctx context.Context, args []string, c *admin.Client) error) *cobra.Command {
	of := new(doors.Choice)
	of.Add(command)
	command.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), answerTime)
		defer cancel()
		return of.Use(ctx, func(c *admin.Client) error { return ask(ctx, args, c) })
	}
	return command
}

// oneServer wants the name of a server. What names there are is known to the gateway only.
func oneServer(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return process.Usage(fmt.Errorf("name one server of the file"))
	}
	return nil
}

// newReload does what SIGHUP does, and says whether it worked: a signal has no answer. A file that is refused is a failure, since a
// script must not go on as if its servers ran.
func newReload() *cobra.Command {
	command := &cobra.Command{
		Use:     "reload",
		Short:   "Let a running gateway read its file again",
		Long:    "Let a running \"bowline up\" read its file again. Only servers that have changed are\nstarted, stopped or restarted. One with a mistake in its entry goes on as it was,\nand the mistake is printed. A file that is not JSON, or is wrong in the block\n\"bowline\" at its top, changes nothing.",
		Example: "  bowline reload",
		Args:    noArguments,
	}
	return asking(command, func(ctx context.Context, _ []string, c *admin.Client) error {
		if err := c.Reload(ctx); err != nil {
			return err
		}
		report, err := c.Report(ctx)
		for _, s := range report.TroubleFirst() {
			if s.Mistake != "" {
				command.PrintErrln(render.Message(s.Mistake))
			}
		}
		return err
	})
}

// newDown does what SIGTERM does. A gateway in the background has no terminal in which somebody could end it.
func newDown() *cobra.Command {
	command := &cobra.Command{
		Use:     "down",
		Short:   "End a running gateway",
		Long:    "End a running \"bowline up\", also one that hosts have started in the background.\nRunning calls have five seconds to finish. A host that needs the gateway afterwards\nstarts another one. The command does not wait until it has ended.",
		Example: "  bowline down --file mcp.json",
		Args:    noArguments,
	}
	return asking(command, func(ctx context.Context, _ []string, c *admin.Client) error { return c.End(ctx) })
}

// newStderr prints what a child has said of itself. The lines are those that the gateway keeps, so they are there although the child
// has ended, which is when they are wanted.
func newStderr() *cobra.Command {
	var of doors.Choice
	var follow bool
	command := &cobra.Command{
		Use:     "stderr SERVER",
		Short:   "Print the end of what a server has written to its standard error",
		Long:    "Print the last 256 lines that a server of a running \"bowline up\" has written to its\nstandard error, over all its restarts.",
		Example: "  bowline stderr files --follow",
		Args:    oneServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			return of.Use(cmd.Context(), func(c *admin.Client) error {
				err := c.Stderr(cmd.Context(), args[0], follow, func(lines []string) error { return printLines(cmd.OutOrStdout(), lines) })
				if refused := (*admin.AnswerError)(nil); errors.As(err, &refused) && refused.Status == http.StatusNotFound {
					return fmt.Errorf("%w: the file has no %q", err, args[0])
				}
				return err
			})
		},
	}
	of.Add(command)
	command.Flags().BoolVar(&follow, "follow", false, "print what comes, too, until the gateway ends")
	return command
}
