package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Gateways that lead back to each other notice it by their lists: these stop growing, the rest is served, and both say what is wrong.
//
// Guarantees: G-0088.14
func TestRingOfGateways(t *testing.T) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, long := range []bool{false, true} { // a gateway that is its own server, and two that are each other's
			t.Run(fmt.Sprint(version, " ", long), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					first := newFleet(t, version, map[string]*server.Server{"x": named("x")})
					last := first
					if long {
						last = newFleet(t, version, map[string]*server.Server{"first": first.Server(), "y": named("y")})
					}
					first.mu.Lock()
					first.servers["last"] = last.Server()
					first.mu.Unlock()
					first.apply(fileOf(t, "last", "x"))
					pass(time.Minute)
					notices := 0
					for _, f := range []*fleet{first, last} {
						for _, s := range f.Report().Servers {
							if strings.Contains(fmt.Sprint(s.Notices), "leads back to this gateway") {
								notices++
							}
						}
					}
					if notices == 0 {
						t.Error("nobody says that there is a ring")
					}
					session := first.client(version, client.Options{})
					names := toolNames(t, session)
					if len(names) > 3 || !slices.Contains(names, "x__who") {
						t.Errorf("the tools are %q", names)
					}
					pass(time.Hour)
					if again := toolNames(t, session); !slices.Equal(again, names) {
						t.Errorf("the tools were %q, and are %q", names, again)
					}
					callWho(t, session, "x")
				})
			})
		}
	}
}

// A request passes eight gateways at most. Who offers ordinary servers only does not count.
//
// Guarantees: G-0088.14
func TestHops(t *testing.T) {
	back := newFleet(t, protocol.Latest, map[string]*server.Server{"x": named("x")})
	front := newFleet(t, protocol.Latest, map[string]*server.Server{"back": back.Server()})
	session := front.client(protocol.Latest, client.Options{})
	call := func(hops string) error {
		_, err := session.CallTool(timeout(t), &protocol.CallToolParams{
			Name: "back__x__who", RequestParams: protocol.RequestParams{Meta: protocol.Meta{gateway.MetaHops: json.RawMessage(hops)}},
		})
		return err
	}
	toolNames(t, session)
	back.await("x", "ready")
	for _, hops := range []string{"0", "7"} {
		if err := call(hops); err != nil {
			t.Errorf("%s hops: %v", hops, err)
		}
	}
	for _, hops := range []string{"8", "-1", `"many"`} {
		if fault := (*jsonrpc.Error)(nil); !errors.As(call(hops), &fault) || fault.Code != jsonrpc.CodeInternalError || string(fault.Data) != `{"io.github.bowline-mcp/hops":8}` {
			t.Errorf("%s hops: %v", hops, call(hops))
		}
	}
}

// A server whose URL is that of the gateway is a mistake of its entry, and the others are served, also if the URL is an argument of their command.
//
// Guarantees: G-0088.14
func TestOwnURL(t *testing.T) {
	f := newFleetWith(t, protocol.Latest, two(), gateway.Options{IsOwn: func(url string) bool { return url == "http://here/mcp" }})
	_, err := f.Apply(t.Context(), load(t, `{"mcpServers":{"a":{"command":"/bin/a","args":["--watch","http://here/mcp"]},"self":{"url":"http://here/mcp"}}}`))
	if s, _ := f.Report().Server("self"); err == nil || !strings.Contains(s.Mistake, "gateway itself") {
		t.Errorf("%+v, %v", s, err)
	}
	if s, _ := f.Report().Server("a"); s.Mistake != "" {
		t.Errorf("the server that has the URL as an argument: %s", s.Mistake)
	}
	if names := toolNames(t, f.client(protocol.Latest, client.Options{})); !slices.Equal(names, []string{"a__who"}) {
		t.Errorf("the tools are %q", names)
	}
}
