package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/auth/tokens"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// gatewayed is a gateway over servers that are its children. The client speaks the revision of the contestant, and the
// gateway that one to its servers.
func gatewayed(upstream string) implementation {
	return implementation{
		http:    everyEcho,
		before:  gatewayBefore(upstream),
		handler: func(string) http.Handler { return openGateway(upstream) },
		serveHTTP: func(listener net.Listener) error {
			h := openGateway(upstream)
			return h.Serve(context.Background(), &http.Server{Handler: h}, listener)
		},
	}
}

func openGateway(upstream string) *streamable.Handler {
	return newGateway(gateway.Options{Client: client.Options{ProtocolVersion: revisionToAsk(upstream)}}, nil, streamable.HandlerOptions{})
}

// gatewayOfTeam checks a token, decides by a policy with two personas, and writes a trail, which it does not sync.
func gatewayOfTeam() implementation {
	return implementation{http: everyEcho, asksToken: true, serveHTTP: func(listener net.Listener) error {
		known, err := tokens.Open(tokensOfChild(os.TempDir()))
		if err != nil {
			return err
		}
		key := []byte(strings.Repeat("k", 32))
		trail, err := audit.Open(filepath.Join(os.TempDir(), "audit.jsonl"), audit.Options{Key: key})
		if err != nil {
			return err
		}
		defer trail.Close()
		policy := map[string]any{
			"policy": []any{map[string]any{"deny": []string{"*/flood"}}, map[string]any{"allow": []string{"*"}}},
			"personas": map[string]any{
				"team": map[string]any{"who": []string{"token ada"}, "allow": []string{"s0/*"}},
				"all":  map[string]any{"who": []string{"*"}, "allow": []string{"s0/echo"}},
			},
		}
		o := gateway.Options{Client: client.Options{ProtocolVersion: revisionToAsk(legacy)}, Audit: trail.Write, Digest: audit.Digest(key)}
		h := newGateway(o, policy, streamable.HandlerOptions{Check: known.Check})
		return h.Serve(context.Background(), &http.Server{Handler: h}, listener)
	}}
}

// newGateway lives until the process ends, and its children with it.
func newGateway(o gateway.Options, block map[string]any, h streamable.HandlerOptions) *streamable.Handler {
	g := gateway.New(o)
	file, err := hostedFile(hostedHere(), block)
	if err == nil {
		_, err = g.Apply(context.Background(), file)
	}
	if err != nil {
		panic(err) // nothing can be measured
	}
	return streamable.NewHandler(g.Server(), h)
}

func hostedFile(of hosting, block map[string]any) (*mcpjson.File, error) {
	text, err := hostedText(of, block)
	if err != nil {
		return nil, err
	}
	return mcpjson.Parse("mcp.json", text)
}

// hostedText names the servers s0, s1 and so on, below the gateway's own block.
func hostedText(of hosting, block map[string]any) ([]byte, error) {
	command, err := serverCommand("stdio", bowlineTyped)
	if err != nil {
		return nil, err
	}
	servers := make(map[string]any)
	for i := range of.servers {
		servers[fmt.Sprintf("s%d", i)] = map[string]any{
			"command": command[0], "args": command[1:], "env": map[string]string{hostedTools: strconv.Itoa(of.tools / of.servers)},
		}
	}
	file := map[string]any{"mcpServers": servers}
	if block != nil {
		file["bowline"] = block
	}
	return json.Marshal(file)
}

// everyEcho calls the tools named echo of all servers behind a URL in turns, whatever stands before the name. The user of the URL is a token.
func everyEcho(ctx context.Context, revision, address string) (*session, error) {
	of, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	t := &streamable.Client{Header: make(http.Header)}
	if of.User != nil {
		t.Header.Set("Authorization", "Bearer "+of.User.Username())
		of.User = nil
	}
	t.URL = of.String()
	s, err := connectBowline(ctx, newBowlineClient(revision, serving{}), revision, t)
	if err != nil {
		return nil, err
	}
	echoes, err := echoesOf(ctx, s)
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	session := echoTool.session(s)
	session.order = nil // its tool has another name
	session.echo = func(text string) call {
		var calls []call
		for _, tool := range echoes {
			calls = append(calls, tool.echo(s, text))
		}
		return oneByOne(calls)
	}
	return session, nil
}

// oneByOne makes a call of each in turns.
func oneByOne(calls []call) call {
	var next atomic.Int64
	return func(ctx context.Context) error { return calls[int(next.Add(1))%len(calls)](ctx) }
}

func echoesOf(ctx context.Context, s *client.Session) (echoes []bowlineTool, err error) {
	for t, err := range s.Tools(ctx) {
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(t.Name, string(echoTool)) {
			echoes = append(echoes, bowlineTool(t.Name))
		}
	}
	if len(echoes) == 0 {
		return nil, errors.New("it lists no tool named echo")
	}
	return echoes, nil
}

// overStdioAlone is Bowline without HTTP.
func overStdioAlone() implementation {
	b := bowline(echoTool)
	return implementation{stdio: b.stdio, serveStdio: b.serveStdio}
}

// overBoth makes two calls for each: one over HTTP, and then one over standard input and output, to each of so many servers in
// turns. That is the work of a gateway's two connections.
func overBoth(servers int) implementation {
	b := bowline(echoTool)
	return implementation{serveHTTP: b.serveHTTP, http: func(ctx context.Context, revision, url string) (*session, error) {
		first, err := b.http(ctx, revision, url)
		if err != nil {
			return nil, err
		}
		command, err := serverCommand("stdio", bowlineTyped)
		if err != nil {
			return nil, errors.Join(err, first.close())
		}
		var children []*session
		for range servers {
			child, err := b.stdio(ctx, revision, command)
			if err != nil {
				return nil, errors.Join(err, closing(children), first.close())
			}
			children = append(children, child)
		}
		return inTurn(first, children), nil
	}}
}

func closing(all []*session) (err error) {
	for _, s := range all {
		err = errors.Join(err, s.close())
	}
	return err
}

// inTurn calls the one, and then one of the others.
func inTurn(first *session, others []*session) *session {
	return &session{
		echo: func(text string) call {
			var calls []call
			for _, other := range others {
				calls = append(calls, other.echo(text))
			}
			one, next := first.echo(text), oneByOne(calls)
			return func(ctx context.Context) error { return cmp.Or(one(ctx), next(ctx)) }
		},
		close: func() error { return errors.Join(first.close(), closing(others)) },
	}
}
