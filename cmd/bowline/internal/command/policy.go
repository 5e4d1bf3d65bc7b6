package command

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/spf13/cobra"
)

const policyLong = `Print what an mcp.json decides for a user of "bowline up", and which line of it does.
It reads the file as it is now, starts nothing, and needs no gateway that runs.

NAME is a server of the file, a slash, and the name that the server gives to a tool or
a prompt, or the URI of a resource; it need not exist. It may also be a name that
clients use, if the file keeps a catalogue. Without a NAME everything in that is
listed.

If the file limits what the user may ask of all servers together, that follows.

--as is the identity of a login: "token ada", or issuer, space and subject. With
--as "" nobody has logged in.`

const policyExample = `  # May Ada delete files?
  bowline policy mcp.json --as "token ada" files/delete

  # What does somebody of the group dev see?
  bowline policy mcp.json --as "https://login.example.com 4711" --claim groups=dev`

// A policing is what policy was told.
type policing struct {
	user      gateway.User
	claims    []string
	catalogue string
}

// newPolicy only names the flags.
func newPolicy() *cobra.Command {
	p := new(policing)
	command := &cobra.Command{
		Use: "policy FILE --as WHO [NAME...]", Short: "Print who may do what at a gateway, and by which line of the file",
		Long: policyLong, Example: policyExample,
		Args: aFileFirst,
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, args[0], args[1:]) },
	}
	flags := command.Flags()
	flags.StringVar(&p.user.Identity, "as", "", "decide for the user with this `IDENTITY`")
	flags.StringArrayVar(&p.claims, "claim", nil, "a claim of the login, `NAME=VALUE`; may be repeated")
	flags.StringVar(&p.user.Group, "group", "", "decide at the endpoint of a `GROUP` of the file")
	flags.StringVar(&p.catalogue, "catalogue", "", "the `FILE` with what the servers offer; default: that of the file")
	return command
}

func aFileFirst(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return process.Usage(errors.New("name an mcp.json"))
	}
	return nil
}

func (p *policing) run(cmd *cobra.Command, path string, names []string) error {
	if !cmd.Flags().Changed("as") {
		return process.Usage(errors.New(`for whom? --as "token ada", for example`))
	}
	if who := p.user.Identity; who != "" && !strings.Contains(who, " ") {
		return process.Usage(fmt.Errorf("--as %[1]s: nobody is called that: write \"token %[1]s\", or an issuer, a space and a subject", who))
	}
	if err := p.takeClaims(); err != nil {
		return err
	}
	file, err := p.load(path)
	if err != nil {
		return process.Refuse("%w", err)
	}
	g := gateway.New(gateway.Options{Catalogue: p.catalogue})
	defer g.Close(cmd.Context())
	verdicts, err := g.Explain(file, p.user, names...)
	if err != nil {
		return process.Refuse("%w", err)
	}
	if len(verdicts) == 0 {
		return process.Refuse(`nothing is known of what the servers offer: name something, or let the file keep it ("catalogue" in the block "bowline")`)
	}
	rate, err := g.ExplainRate(file, p.user)
	if err != nil {
		return process.Refuse("%w", err)
	}
	if err := printVerdicts(cmd, verdicts); err != nil {
		return err
	}
	return printRate(cmd, rate)
}

// printRate prints what is limited of the user's requests to all servers together.
func printRate(cmd *cobra.Command, rate gateway.RateVerdict) (err error) {
	if rate.PerMinute > 0 {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "at most %d requests in a minute  %s\n", rate.PerMinute, rate.PerMinuteBy)
	}
	if rate.InFlight > 0 && err == nil {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "at most %d requests at a time  %s\n", rate.InFlight, rate.InFlightBy)
	}
	return err
}

// load reads the file, and where it keeps what the servers offer.
func (p *policing) load(path string) (*mcpjson.File, error) {
	file, err := mcpjson.Load(path)
	if err != nil {
		return nil, err
	}
	top, err := file.Gateway()
	if err != nil {
		return nil, file.Check() // which has all mistakes
	}
	p.catalogue = cmp.Or(p.catalogue, top.Catalogue)
	return file, nil
}

// takeClaims reads the flags. One claim may have several values.
func (p *policing) takeClaims() error {
	p.user.Claims = make(map[string][]string)
	for _, claim := range p.claims {
		name, value, is := strings.Cut(claim, "=")
		if !is || name == "" {
			return process.Usage(fmt.Errorf("--claim %s: expected NAME=VALUE", claim))
		}
		p.user.Claims[name] = append(p.user.Claims[name], value)
	}
	return nil
}

// printVerdicts prints names of servers, so nothing of it may drive a terminal.
func printVerdicts(cmd *cobra.Command, verdicts []gateway.Verdict) error {
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, v := range verdicts {
		word := "deny"
		if v.Allowed {
			word = "allow"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", word, render.Flat(v.Server+"/"+v.Name), render.Flat(v.By))
	}
	return table.Flush()
}
