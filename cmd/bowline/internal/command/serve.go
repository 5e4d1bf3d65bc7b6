package command

import (
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/bundled"
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

// endpointPath is where the server is found.
const endpointPath = "/mcp"

// finishGrace is how long a server finishes what it was asked.
const finishGrace = 5 * time.Second

func newServe(with Extras) *cobra.Command {
	var overStdio, faults, fixtures bool
	var address, ledger string
	var proxies []string
	var protection protection
	var observation monitoringFlags
	var member memberFlags
	command := &cobra.Command{
		Use:        "serve --stdio | --http ADDRESS",
		SuggestFor: []string{"server", "start", "listen"},
		Short:      "Serve a few tools for testing clients",
		Long:       serveLong,
		Example:    serveExample,
		Args:       noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := protection.check(cmd.Flags().Changed("http")); err != nil {
				return err
			}
			overHTTP := cmd.Flags().Changed("http")
			switch {
			case overStdio == overHTTP:
				return usageFailure(errors.New("use --stdio or --http: bowline serve --stdio, or bowline serve --http :8080"))
			case !overHTTP && len(proxies) > 0:
				return usageFailure(errors.New("--trusted-proxy needs --http: over standard input and output there is no proxy"))
			case overHTTP && faults:
				return usageFailure(errors.New("--faults needs --stdio: over HTTP there is no stream to break"))
			}
			if err := member.check(overHTTP, cmd.Flags().Changed("cluster"), with); err != nil {
				return err
			}
			node, err := member.join(cmd, with)
			if err != nil {
				return err
			}
			watching, err := observation.start(node.serving, cmd.ErrOrStderr(), with, node.state)
			if err != nil {
				return errors.Join(err, node.close())
			}
			if overHTTP {
				err = serveHTTP(cmd, address, ledger, proxies, fixtures, &protection, watching, node)
			} else {
				err = serveStdio(cmd, faults, fixtures, watching)
			}
			return errors.Join(err, node.close(), watching.close())
		},
	}
	command.Flags().BoolVar(&overStdio, "stdio", false, "serve on standard input and output")
	command.Flags().StringVar(&address, "http", "", "serve Streamable HTTP on this `ADDRESS`, such as :8080")
	command.Flags().StringArrayVar(&proxies, "trusted-proxy", nil, "believe what the reverse proxies with these addresses, a `CIDR` such as 10.0.0.0/8, say about their clients (with --http, may be repeated)")
	protection.addFlags(command)
	observation.addFlags(command)
	member.addFlags(command)
	command.Flags().BoolVar(&faults, "faults", false, "offer the tool garble, which breaks the protocol on purpose (with --stdio)")
	command.Flags().BoolVar(&fixtures, "fixtures", false, "also offer the tools, prompts and resources of the official conformance suite")
	command.Flags().StringVar(&ledger, "ledger", "", "also offer the tool mark, which appends the id of each call to a `FILE` (with --http)")
	_ = command.Flags().MarkHidden("ledger") // for tests of nodes; there is such a flag
	return command
}

// serveStdio serves until its input ends or its context does, and finishes what
// it was asked.
func serveStdio(cmd *cobra.Command, faults, fixtures bool, watching *monitoring) error {
	options := bundled.Options{Version: version(), Log: cmd.ErrOrStderr(), Fixtures: fixtures}
	if faults {
		options.Garble = os.Stdout // before the transport takes it away from others
	}
	watching.apply(&options)
	tools := bundled.New(options)
	watching.watch(tools.Samples)
	err := tools.Run(cmd.Context(), &stdio.Server{}) // calls have DrainGrace
	if cmd.Context().Err() != nil {
		return nil // what had to be given up is no failure of the server
	}
	return err
}

// serveHTTP serves until its context ends or its node drains, and then finishes what it was asked.
func serveHTTP(cmd *cobra.Command, address, ledger string, proxies []string, fixtures bool, protection *protection, watching *monitoring, node *servingNode) error {
	trusted, err := parseProxies(proxies)
	if err != nil {
		return usageFailure(err)
	}
	listener, err := listen("--http", address)
	if err != nil {
		return err
	}
	about := bundled.Options{Version: version(), Log: cmd.ErrOrStderr(), Fixtures: fixtures}
	if ledger != "" {
		file, err := marks.Open(ledger)
		if err != nil {
			return errors.Join(usageFailure(fmt.Errorf("--ledger: %w", err)), listener.Close())
		}
		defer file.Close()
		about.Ledger = file
	}
	options := streamable.HandlerOptions{TrustedProxies: trusted, ShutdownGrace: finishGrace / 4 * 5} // calls have four fifths of it
	watching.apply(&about)
	node.apply(&about.Server, &options)
	tools := bundled.New(about)
	mux := http.NewServeMux()
	if err := protection.apply(urlOf(listener), mux, &options, node); err != nil {
		return errors.Join(err, listener.Close())
	}
	endpoint := streamable.NewHandler(tools, options)
	mux.Handle(endpointPath, endpoint)
	if err := node.serve(mux); err != nil {
		return errors.Join(err, listener.Close())
	}
	watching.watch(tools.Samples)
	watching.watch(func() iter.Seq[telemetry.Sample] {
		return func(yield func(telemetry.Sample) bool) {
			stats := endpoint.Stats()
			yield(telemetry.Sample{Name: endpointPath, HTTP: &stats})
		}
	})
	cmd.PrintErrf("bowline: serving %s\n", urlOf(listener))
	if protection.testLogin {
		cmd.PrintErrln("bowline: FOR TESTS ONLY: --test-login lets everybody on this machine log in, without a password")
	}
	err = endpoint.Serve(node.serving, &http.Server{Handler: mux}, listener)
	if node.serving.Err() != nil {
		return nil // what had to be given up is no failure of the server
	}
	return fmt.Errorf("serve %s: %w", address, err)
}

// parseProxies returns the addresses of proxies. One without a length is a single address.
func parseProxies(texts []string) (trusted []netip.Prefix, err error) {
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if ip, single := netip.ParseAddr(text); single == nil {
			prefix, err = ip.Prefix(ip.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("--trusted-proxy %s: use an address such as 10.0.0.5, or a range such as 10.0.0.0/8", text)
		}
		trusted = append(trusted, prefix)
	}
	return trusted, nil
}

func urlOf(listener net.Listener) string { return "http://" + listener.Addr().String() + endpointPath }
