package command

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"os"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/bundled"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/member"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/monitor"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/marks"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/spf13/cobra"
)

const serveLong = `Serve a few tools for testing clients: echo, add, slow, fail, big and crash.

With --stdio the server speaks MCP on standard input and output, and logs to
standard error. It ends with status 0 when its input ends.

With --http it serves Streamable HTTP, in every revision of the protocol that
has it, and prints its URL to standard error. An ADDRESS without a host accepts
connections from this machine only. Port 0 means any free port. With --issuer
it serves only clients with a token of that authorization server. To try logins
without one, --test-login also serves an authorization server for tests, at
/test-login of the same address. It approves every login without a password, so
it serves this machine only.

With --metrics it serves metrics for Prometheus at /metrics of another ADDRESS.
/livez reports that the process runs, and /readyz that it accepts requests; it
returns 503 while the server shuts down. With --otlp it sends a trace of each
request.

With --cluster it is a node of a cluster: other nodes can serve its sessions when it
ends. "bowline cluster --help" explains that.

At SIGINT or SIGTERM it finishes running requests, for at most five seconds, and
ends with status 0.`

const serveExample = `  # List the tools of this server with this command
  bowline tools --command 'bowline serve --stdio'

  # Serve over HTTP, and call a tool from another terminal
  bowline serve --http :8080
  bowline call echo message=hello --url http://127.0.0.1:8080/mcp

  # Serve only users who have logged in
  bowline serve --http :8080 --issuer https://login.example.com --resource https://tools.example.com/mcp

  # Try a login
  bowline serve --http :8080 --test-login
  bowline login --url http://127.0.0.1:8080/mcp

  # Serve, with metrics for Prometheus and traces for an OpenTelemetry collector
  OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 bowline serve --http :8080 --metrics :9090 --otlp

  # Two nodes of one cluster on this machine: each can go on with the sessions of the other
  bowline serve --http :8081 --cluster demo
  bowline serve --http :8082 --cluster demo

  # Send it a message by hand
  printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"ping"}' | bowline serve --stdio`

// A serving is what serve was told: how to serve, whom, and who may look on.
type serving struct {
	overStdio, overHTTP bool
	faults, fixtures    bool
	address, ledger     string
	proxies             []string

	protection  protection
	observation monitor.Flags
	membership  member.Flags
}

// newServe only names the flags; serving.check says which of them go together.
func newServe(with Extras) *cobra.Command {
	s := new(serving)
	command := &cobra.Command{
		Use:        "serve --stdio | --http ADDRESS",
		SuggestFor: []string{"server", "start", "listen"},
		Short:      "Serve a few tools for testing clients",
		Long:       serveLong,
		Example:    serveExample,
		Args:       noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.overHTTP = cmd.Flags().Changed("http")
			if err := s.check(cmd.Flags().Changed("cluster"), with); err != nil {
				return err
			}
			return s.run(cmd, with)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&s.overStdio, "stdio", false, "serve on standard input and output")
	flags.StringVar(&s.address, "http", "", "serve Streamable HTTP on this `ADDRESS`, such as :8080")
	flags.StringArrayVar(&s.proxies, "trusted-proxy", nil, "believe what the reverse proxies with these addresses, a `CIDR` such as 10.0.0.0/8, say about their clients (with --http, may be repeated)")
	s.protection.addFlags(command)
	s.observation.Add(command)
	s.membership.Add(command)
	flags.BoolVar(&s.faults, "faults", false, "offer the tool garble, which breaks the protocol on purpose (with --stdio)")
	flags.BoolVar(&s.fixtures, "fixtures", false, "also offer the tools, prompts and resources of the official conformance suite")
	flags.StringVar(&s.ledger, "ledger", "", "also offer the tool mark, which appends the id of each call to a `FILE` (with --http)")
	_ = flags.MarkHidden("ledger") // for tests of nodes; there is such a flag
	return command
}

// check refuses flags that do not fit, before anything is opened.
func (s *serving) check(clusterNamed bool, with Extras) error {
	if err := s.protection.check(s.overHTTP); err != nil {
		return err
	}
	switch {
	case s.overStdio == s.overHTTP:
		return process.Usage(errors.New("use --stdio or --http: bowline serve --stdio, or bowline serve --http :8080"))
	case !s.overHTTP && len(s.proxies) > 0:
		return process.Usage(errors.New("--trusted-proxy needs --http: over standard input and output there is no proxy"))
	case s.overHTTP && s.faults:
		return process.Usage(errors.New("--faults needs --stdio: over HTTP there is no stream to break"))
	}
	return s.membership.Check(s.overHTTP, clusterNamed, with.Cluster)
}

// run joins the cluster, then opens what observers need, then serves. The node leaves before the
// metrics end, so that they tell of its end.
func (s *serving) run(cmd *cobra.Command, with Extras) error {
	node, err := s.membership.Join(cmd, with.Cluster)
	if err != nil {
		return unlessEnded(cmd, err)
	}
	watching, err := s.observation.Start(node.Serving, cmd.ErrOrStderr(), with.Traces, node.State)
	if err != nil {
		return errors.Join(err, node.Close())
	}
	if s.overHTTP {
		err = s.serveHTTP(cmd, watching, node)
	} else {
		err = s.serveStdio(cmd, watching)
	}
	return errors.Join(err, node.Close(), watching.Close())
}

// serveStdio serves until its input ends or its context does, and finishes what
// it was asked.
func (s *serving) serveStdio(cmd *cobra.Command, watching *monitor.Monitoring) error {
	about := bundled.Options{Version: process.Version(), Log: cmd.ErrOrStderr(), Fixtures: s.fixtures}
	if s.faults {
		about.Garble = os.Stdout // before the transport takes it away from others
	}
	watching.Apply(&about)
	tools := bundled.New(about)
	watching.Watch(tools.Samples)
	err := tools.Run(cmd.Context(), &stdio.Server{}) // calls have DrainGrace
	if cmd.Context().Err() != nil {
		return nil // what had to be given up is no failure of the server
	}
	return err
}

// serveHTTP serves until its context ends or its node drains, and then finishes what it was asked.
func (s *serving) serveHTTP(cmd *cobra.Command, watching *monitor.Monitoring, node *member.Node) error {
	trusted, err := parseProxies(s.proxies)
	if err != nil {
		return process.Usage(err)
	}
	listener, err := process.Listen("--http", s.address)
	if err != nil {
		return err
	}
	about := bundled.Options{Version: process.Version(), Log: cmd.ErrOrStderr(), Fixtures: s.fixtures}
	if s.ledger != "" {
		file, err := marks.Open(s.ledger)
		if err != nil {
			return errors.Join(process.Usage(fmt.Errorf("--ledger: %w", err)), listener.Close())
		}
		defer file.Close()
		about.Ledger = file
	}
	endpoint, handler, err := s.endpoint(about, trusted, urlOf(listener), watching, node)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	cmd.PrintErrf("bowline: serving %s\n", urlOf(listener))
	if s.protection.testLogin {
		cmd.PrintErrln("bowline: FOR TESTS ONLY: --test-login lets everybody on this machine log in, without a password")
	}
	err = endpoint.Serve(node.Serving, &http.Server{Handler: handler}, listener)
	if node.Serving.Err() != nil {
		return nil // what had to be given up is no failure of the server
	}
	return fmt.Errorf("serve %s: %w", s.address, err)
}

// endpoint returns the endpoint at a URL of this machine, and what serves it beside what protects it.
func (s *serving) endpoint(about bundled.Options, trusted []netip.Prefix, url string, watching *monitor.Monitoring, node *member.Node) (*streamable.Handler, http.Handler, error) {
	options := streamable.HandlerOptions{TrustedProxies: trusted, ShutdownGrace: process.FinishGrace / 4 * 5} // calls have four fifths of it
	watching.Apply(&about)
	node.Apply(&about.Server, &options)
	tools := bundled.New(about)
	mux := http.NewServeMux()
	if err := s.protection.apply(url, mux, &options, node); err != nil {
		return nil, nil, err
	}
	endpoint := streamable.NewHandler(tools, options)
	mux.Handle(endpointPath, endpoint)
	if err := node.Serve(mux); err != nil {
		return nil, nil, err
	}
	watching.Watch(tools.Samples)
	watching.Watch(func() iter.Seq[telemetry.Sample] {
		return func(yield func(telemetry.Sample) bool) {
			stats := endpoint.Stats()
			yield(telemetry.Sample{Name: endpointPath, HTTP: &stats})
		}
	})
	return endpoint, mux, nil
}

// parseProxies returns the addresses of proxies. One without a length is a single address.
func parseProxies(texts []string) (trusted []netip.Prefix, err error) {
	for _, text := range texts {
		prefix, err := network.ParseProxy(text)
		if err != nil {
			return nil, fmt.Errorf("--trusted-proxy %s: use an address such as 10.0.0.5, or a range such as 10.0.0.0/8", text)
		}
		trusted = append(trusted, prefix)
	}
	return trusted, nil
}
