package command

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/member"
	"github.com/spf13/cobra"
)

const upLong = `Serve all servers of an mcp.json file at one URL, to clients of every revision.

FILE may be that of Claude Desktop or Code, Cursor, VS Code, Zed, Windsurf, Gemini CLI
or GitHub Copilot CLI. Keys that mean nothing here are ignored; --check names them.

Each server is started once, and supervised: if it dies, it is started again, and
its tools stay in the list. A tool is called SERVER__TOOL, a prompt likewise;
resources keep their URIs. A call of a tool whose server is away starts it, and
waits for at most ten seconds; then the answer says what is wrong, when the next
attempt is, and whether the tool may have been executed.

It serves at --http, or else at the address of "http" in the block "bowline" of the
file, or else at 127.0.0.1:8080. An address without a host accepts connections from
this machine only, and port 0 means any free port. Without --auth there are no
logins, so whoever reaches the address may call every tool: one that other machines
reach is refused, unless --insecure is given.

With --auth tokens a client needs a token of "bowline token add", and with --auth
oauth one of the "auth.issuers" in the block "bowline" of the file, for its "url".
Then an address that other machines reach needs --tls-cert and --tls-key, or the
proxy that ends TLS as "trustedProxies" in the file. Users do not share connections
with servers, unless "share" says so. Hosts on this machine need no token.

A server whose entry has a mistake, such as a variable that is not set, is not
started, and the mistake is printed; the others are served. A mistake in the block
"bowline" beside the servers ends the command. With --strict every mistake does.

The page shows how the servers are. It is served at --admin, or else at the address
of "admin.http" in the block "bowline", or else at 127.0.0.1:8081; "off" means that
there is none. If another program has the port, there is no page either. "bowline
page" opens it in your browser, logged in. Without that, who wants to act there
enters the token; the path of its file is printed. "bowline ps", "restart", "stop",
"start", "wake", "stderr", "reload" and "down" use a socket that only you can open.

With --stdio it serves a host, such as a desktop program, on standard input and
output. It passes the messages to the gateway that runs for the file, and starts
one in the background if none does. Hosts with the same file share it. That gateway
opens no port, only a socket that nobody but you can open, and ends when no host has
used it for as long as --linger says. If it is killed, another one is started, and
the host keeps its session. "bowline up FILE" takes its place, and "bowline down"
ends it.

With --cluster the gateway is a node of a cluster, in which clients may send each
request to any gateway, and go on with their sessions when one ends. Of a server with
"instances": "one" all of them have one. "bowline cluster --help" explains the rest.

At SIGHUP the file is read again. Only servers that have changed are started,
stopped or restarted; one whose entry has a mistake now goes on as it was. If the
mistake is one that would have ended the command at its start, or if a link, a folder
or a pipe has come in place of the file, nothing is changed, and that is printed.
With --watch, the file is read again when it has changed, and has then stayed the
same for a second.

At SIGINT or SIGTERM it finishes running calls, for at most five seconds, then
stops the servers, and ends with status 0.`

const upExample = `  # Serve what a desktop program has configured
  bowline up ~/.cursor/mcp.json

  # In the configuration of a host: all servers of a file
  {"command": "bowline", "args": ["up", "/home/ada/mcp.json", "--stdio"]}

  # Which tools are there?
  bowline tools --url http://127.0.0.1:8080/mcp

  # Two gateways of one cluster, on two machines
  bowline up mcp.json --http 10.0.0.1:8080 --cluster prod --cluster-key cluster.key --nats tls://nats.example.com:4222
  bowline up mcp.json --http 10.0.0.2:8080 --cluster prod --cluster-key cluster.key --nats tls://nats.example.com:4222

  # Look for mistakes, and start nothing
  bowline up mcp.json --check`

// newUp only names the flags; upping.run says what they mean.
func newUp(engines member.Engines, trails Trails) *cobra.Command {
	u := new(upping)
	command := &cobra.Command{
		Use:        "up FILE [--stdio]",
		SuggestFor: []string{"gateway", "proxy"},
		Short:      "Serve all servers of an mcp.json at one URL",
		Long:       upLong,
		Example:    upExample,
		Args:       oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cmp.Or(u.audit.check(trails), u.joining.check(cmd, u.stdio || u.background, engines)); err != nil {
				return err
			}
			if u.path = args[0]; u.stdio && !u.check {
				return u.relay(cmd)
			}
			if u.background {
				standInBackground(cmd)
			}
			return u.run(cmd, engines, trails)
		},
	}
	u.addFlags(command)
	return command
}

// addFlags names the flags. One that is hidden is for a process of this program.
func (u *upping) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&u.address, "http", ":8080", "serve Streamable HTTP on this `ADDRESS`")
	flags.BoolVar(&u.insecure, "insecure", false, "serve other machines, too, although there are no logins, or they go in clear")
	flags.StringVar(&u.catalogue, "catalogue", "", "keep what the servers offer in a `FILE`, so that it is known before they have started")
	flags.StringVar(&u.page, "admin", ":8081", "serve the page on this `ADDRESS`; off: nowhere")
	flags.StringVar(&u.probes, "probes", "", "serve /livez, /readyz and /metrics, and nothing else, to everybody who reaches this `ADDRESS`")
	flags.BoolVar(&u.noTry, "no-try", false, "let the page call no tools")
	u.access.addFlags(command)
	u.audit.addFlags(command)
	u.joining.flags.Add(command)
	flags.BoolVar(&u.check, "check", false, "only print the mistakes of the file")
	flags.BoolVar(&u.watches, "watch", false, "read the file again when it changes")
	flags.BoolVar(&u.strict, "strict", false, "do not start, and do not apply a file, if a server's entry has a mistake")
	flags.TextVar(&u.level, "log-level", slog.LevelInfo, "log what has this `LEVEL` and above: debug, info, warn or error")
	flags.BoolVar(&u.stdio, "stdio", false, "serve a host on standard input and output, with the gateway that runs for the file, or a new one")
	flags.DurationVar(&u.linger, "linger", 5*time.Minute, "let a gateway that --stdio has started run for a `DURATION` after its last host has left")
	flags.BoolVar(&u.background, "background", false, "serve hosts only")
	_ = flags.MarkHidden("background") // --stdio uses it; there is such a flag
}
