package peers

// A Role is what the other implementation plays. Bowline plays the other part.
type Role string

const (
	ServerRole Role = "server"
	ClientRole Role = "client"
)

// A Peer is one implementation in one role.
type Peer struct {
	Name    string
	Version string
	Role    Role
	Setting string // what runs against what, for the page

	Connect Connect
	Server  func(revision string) []string // the command
	Paged   func(revision string) []string // a server of ours with pages; nil: Server has them

	Echo, Fail, Slow, Endless Call   // the tools to call; Endless tells of progress at once and takes minutes
	Answer                    string // what Echo answers with

	// Lacks are the features that cannot be checked, and why.
	Lacks map[Feature]string
}

// A Feature is a row of the page.
type Feature string

const (
	Initialize Feature = "initialize: the revision asked for is spoken"
	Ping       Feature = "ping"
	List       Feature = "tools/list"
	Pages      Feature = "tools/list over several pages"
	Success    Feature = "tools/call"
	Failure    Feature = "a tool's failure is a result with isError"
	Unknown    Feature = "a tool that does not exist"
	Progress   Feature = "progress during a slow call"
	Cancel     Feature = "cancellation reaches the server"
	Close      Feature = "close: the server exits by itself"
	Survive    Feature = "SIGKILL of the server is survived"
)

// Peers are all peers, in the order of the page.
func Peers(p *Programs) ([]Peer, error) {
	goSDKVersion, err := moduleVersion("github.com/modelcontextprotocol/go-sdk")
	if err != nil {
		return nil, err
	}
	mcpGoVersion, err := moduleVersion("github.com/mark3labs/mcp-go")
	if err != nil {
		return nil, err
	}
	return []Peer{
		withOurTools(Peer{
			Name: "go-sdk", Version: goSDKVersion, Role: ServerRole,
			Setting: "Bowline's client runs a server made with it, which lists two tools a page.",
			Connect: connectBowline, Server: command(p.Peer, "go-sdk"),
		}),
		withOurTools(Peer{
			Name: "mcp-go", Version: mcpGoVersion, Role: ServerRole,
			Setting: "Bowline's client runs a server made with it, which lists two tools a page.",
			Connect: connectBowline, Server: command(p.Peer, "mcp-go"),
		}),
		everythingServer(),
		filesystemServer(p.Folder),
		theirClient(p, "go-sdk", goSDKVersion, connectGoSDK),
		theirClient(p, "mcp-go", mcpGoVersion, connectMCPGo),
		typeScriptClient(p),
	}, nil
}

func command(words ...string) func(string) []string {
	return func(string) []string { return words }
}

// withOurTools adds the tools that the bundled server and those of cmd/peer have.
func withOurTools(p Peer) Peer {
	p.Echo, p.Answer = Call{Tool: "echo", Arguments: map[string]any{"message": "ahoy ⚓"}}, "ahoy ⚓"
	p.Fail = Call{Tool: "fail", Arguments: map[string]any{"message": "no"}}
	p.Slow = Call{Tool: "slow", Arguments: map[string]any{"seconds": 0.2, "steps": 4}}
	p.Endless = Call{Tool: "slow", Arguments: map[string]any{"seconds": 100, "steps": 1000}}
	return p
}

func everythingServer() Peer {
	return Peer{
		Name: everything.name, Version: everything.version, Role: ServerRole,
		Setting: "Bowline's client runs the reference server.",
		Connect: connectBowline, Server: command("node", everything.path("dist/index.js"), "stdio"),
		Echo:   Call{Tool: "echo", Arguments: map[string]any{"message": "ahoy"}},
		Answer: "Echo: ahoy",
		Fail:   Call{Tool: "get-resource-reference", Arguments: map[string]any{"resourceId": -1}},
		Slow:   Call{Tool: "trigger-long-running-operation", Arguments: map[string]any{"duration": 0.2, "steps": 4}},
		Lacks: map[Feature]string{
			Pages:  "it lists all tools on one page",
			Cancel: "its slow tool runs to its end, cancelled or not, and says nothing of it",
		},
	}
}

func filesystemServer(folder string) Peer {
	list := func(path string) Call {
		return Call{Tool: "list_directory", Arguments: map[string]any{"path": path}}
	}
	const noSlowTool = "it has no slow tool"
	return Peer{
		Name: filesystem.name, Version: filesystem.version, Role: ServerRole,
		Setting: "Bowline's client runs the reference server on one allowed folder. " +
			"The call lists that folder; the failure is of a call that lists one outside of it.",
		Connect: connectBowline, Server: command("node", filesystem.path("dist/index.js"), folder),
		Echo: list(folder), Answer: "[FILE] hello.txt", Fail: list("/"),
		Lacks: map[Feature]string{
			Pages:    "it lists all tools on one page",
			Progress: noSlowTool,
			Cancel:   noSlowTool,
		},
	}
}

// theirClient can be told which revision to ask for.
func theirClient(p *Programs, name, version string, connect Connect) Peer {
	return withOurTools(Peer{
		Name: name, Version: version, Role: ClientRole,
		Setting: "It runs `bowline serve --stdio`; for the pages, a server of this suite with two tools a page.",
		Connect: connect, Server: command(p.Bowline, "serve", "--stdio"), Paged: command(p.Peer, "bowline"),
		Lacks: map[Feature]string{Survive: noReconnect},
	})
}

const noReconnect = "the client does not start a server again; that part is Bowline's in the other role"

// typeScriptClient asks for the latest revision always: for the others the
// server is told to speak only one.
func typeScriptClient(p *Programs) Peer {
	told := func(revision string) []string { return []string{p.Peer, "bowline", revision} }
	return withOurTools(Peer{
		Name: typeScriptSDK.name, Version: typeScriptSDK.version, Role: ClientRole,
		Setting: "It runs `bowline serve --stdio` in 2025-11-25, the only revision it asks for. " +
			"For the others, and for the pages, it runs a server of this suite that speaks nothing else.",
		Connect: connectTypeScript(typeScriptSDK.folder()),
		Server: func(revision string) []string {
			if revision == typeScriptAsksFor {
				return []string{p.Bowline, "serve", "--stdio"}
			}
			return told(revision)
		},
		Paged: told,
		Lacks: map[Feature]string{Survive: noReconnect},
	})
}

const typeScriptAsksFor = "2025-11-25"
