package peers

import (
	"fmt"

	"github.com/bowline-mcp/bowline/protocol"
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
	var all []Peer
	for _, over := range []Transport{Stdio, HTTP} {
		all = append(all,
			goSDKServer(p, over, goSDKVersion),
			theirServer(p, over, "mcp-go", mcpGoVersion),
			typeScriptServer(over),
			everythingServer(over),
		)
		if over == Stdio {
			all = append(all, filesystemServer(p.Folder))
		}
		all = append(all,
			theirClient(p, over, "go-sdk", goSDKVersion, connectGoSDK),
			mcpGoClient(p, over, mcpGoVersion),
			theirClient(p, over, typeScriptClientV2.name, typeScriptClientV2.version, connectTypeScript(typeScriptClientV2)),
			typeScriptClient(p, over),
		)
	}
	for i := range all {
		all[i].Lacks = append(lacksOfRevisions(all[i]), all[i].Lacks...)
	}
	return all, nil
}

func lacksOfRevisions(p Peer) []Lack {
	modern := protocol.ModernVersions()
	if p.Legacy {
		return []Lack{{Revisions: modern, Why: "it does not speak that revision"}}
	}
	return []Lack{{Feature: Ping, Revisions: modern, Why: "the revision has none"}}
}

func command(words ...string) func(string) []string {
	return func(string) []string { return words }
}

// suite returns the command of a server of cmd/peer, with the revision as an
// argument.
func (p *Programs) suite(over Transport, name string) func(string) []string {
	return func(revision string) []string {
		if over == HTTP {
			return []string{p.Peer, "http", name, revision}
		}
		return []string{p.Peer, name, revision}
	}
}

// bundled returns the command of the server that is part of the bowline command.
func (p *Programs) bundled(over Transport) []string {
	if over == HTTP {
		return []string{p.Bowline, "serve", "--http", "127.0.0.1:$PORT"}
	}
	return []string{p.Bowline, "serve", "--stdio"}
}

// withOurTools adds the tools that the bundled server and those of the suite have.
func withOurTools(p Peer) Peer {
	p.Echo, p.Answer = Call{Tool: "echo", Arguments: map[string]any{"message": "ahoy ⚓"}}, "ahoy ⚓"
	p.Fail = Call{Tool: "fail", Arguments: map[string]any{"message": "no"}}
	p.Slow = Call{Tool: "slow", Arguments: map[string]any{"seconds": 0.2, "steps": 4}}
	p.Endless = Call{Tool: "slow", Arguments: map[string]any{"seconds": 100, "steps": 1000}}
	return p
}

func theirServer(p *Programs, over Transport, name, version string) Peer {
	return withOurTools(Peer{
		Name: name, Version: version, Role: ServerRole, Transport: over,
		Setting: "Bowline's client and a server made with it, which lists two tools a page.",
		Connect: connectBowline, Server: p.suite(over, name),
	})
}

func goSDKServer(p *Programs, over Transport, version string) Peer {
	server := theirServer(p, over, "go-sdk", version)
	if over == HTTP {
		server.Setting += " It has sessions in the legacy revisions; in 2026-07-28 it is made `Stateless`, without which it refuses that revision."
	}
	return server
}

const onOnePage = "it lists all tools on one page"

func typeScriptServer(over Transport) Peer {
	server := withOurTools(Peer{
		Name: typeScriptServerV2.name, Version: typeScriptServerV2.version, Role: ServerRole, Transport: over,
		Setting: "Bowline's client and a server made with it.",
		Connect: connectBowline,
		Server:  command("node", "server.mjs", typeScriptServerV2.folder(), string(over)),
		Lacks:   []Lack{{Feature: Pages, Why: onOnePage}},
	})
	if over == HTTP {
		const noSession = "its handler serves these revisions without a session, each request with a server of its own"
		server.Setting += " It is its `createMcpHandler`, as it comes."
		server.Lacks = append(server.Lacks,
			Lack{Feature: Cancel, Revisions: protocol.LegacyVersions(), Why: noSession},
			Lack{Feature: Announce, Revisions: protocol.LegacyVersions(), Why: noSession})
	}
	return server
}

func everythingServer(over Transport) Peer {
	server := command("node", everything.path("dist/index.js"), "stdio")
	if over == HTTP {
		server = command("node", everything.path("dist/index.js"), "streamableHttp")
	}
	setting := "Bowline's client and the reference server."
	if over == HTTP {
		setting += " A session that it does not know it refuses with status 400 where the specification has 404; " +
			"Bowline takes two such refusals in a row for the same."
	}
	return Peer{
		Name: everything.name, Version: everything.version, Role: ServerRole, Transport: over,
		Setting: setting,
		Connect: connectBowline, Server: server, ChosenPort: true, Legacy: true,
		Echo:   Call{Tool: "echo", Arguments: map[string]any{"message": "ahoy"}},
		Answer: "Echo: ahoy",
		Fail:   Call{Tool: "get-resource-reference", Arguments: map[string]any{"resourceId": -1}},
		Slow:   Call{Tool: "trigger-long-running-operation", Arguments: map[string]any{"duration": 0.2, "steps": 4}},
		Lacks: []Lack{
			{Feature: Pages, Why: onOnePage},
			{Feature: Cancel, Why: "its slow tool runs to its end, cancelled or not, and says nothing of it"},
			{Feature: Announce, Why: noNewTool},
		},
	}
}

const noNewTool = "it adds no tool at run time"

func filesystemServer(folder string) Peer {
	list := func(path string) Call {
		return Call{Tool: "list_directory", Arguments: map[string]any{"path": path}}
	}
	const noSlowTool = "it has no slow tool"
	return Peer{
		Name: filesystem.name, Version: filesystem.version, Role: ServerRole, Transport: Stdio,
		Setting: "Bowline's client and the reference server, with one allowed folder. " +
			"The call lists that folder; the failure is of a call that lists one outside of it.",
		Connect: connectBowline, Server: command("node", filesystem.path("dist/index.js"), folder), Legacy: true,
		Echo: list(folder), Answer: "[FILE] hello.txt", Fail: list("/"),
		Lacks: []Lack{
			{Feature: Pages, Why: onOnePage},
			{Feature: Progress, Why: noSlowTool},
			{Feature: Cancel, Why: noSlowTool},
			{Feature: Announce, Why: noNewTool},
		},
	}
}

// theirClient returns a client that can ask for a given revision.
func theirClient(p *Programs, over Transport, name, version string, connect Connect) Peer {
	serve := "`bowline serve --stdio`"
	if over == HTTP {
		serve = "`bowline serve --http`"
	}
	return withOurTools(Peer{
		Name: name, Version: version, Role: ClientRole, Transport: over,
		Setting: fmt.Sprintf("It talks to %s; for the pages and the added tool, to a server of this suite with two tools a page.", serve),
		Connect: connect, Server: command(p.bundled(over)...), Suite: p.suite(over, "bowline"),
		Lacks: []Lack{{Feature: Survive, Why: "that is Bowline's part in the other role"}},
	})
}

func mcpGoClient(p *Programs, over Transport, version string) Peer {
	client := theirClient(p, over, "mcp-go", version, connectMCPGo)
	if over == HTTP {
		client.Lacks = append(client.Lacks, Lack{Feature: Cancel, Revisions: protocol.LegacyVersions(),
			Why: "it sends no cancellation over HTTP in these revisions"})
	}
	return client
}

// typeScriptClient always asks for the latest legacy revision. For other
// revisions, the server is started with only that one.
func typeScriptClient(p *Programs, over Transport) Peer {
	client := theirClient(p, over, typeScriptV1.name, typeScriptV1.version, connectTypeScript(typeScriptV1))
	client.Setting += " It asks for 2025-11-25 always, and talks to the latter in any older revision too, which then speaks nothing else."
	client.Legacy = true
	client.Server = func(revision string) []string {
		if revision < protocol.LatestLegacy {
			return client.Suite(revision)
		}
		return p.bundled(over)
	}
	return client
}
