package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
)

// Of two servers with the same URIs the first one in the file has them, and the report says so. What the file does not offer of it is that of the other.
//
// Guarantees: G-0090.11
func TestServersWithTheSameURIs(t *testing.T) {
	notes := func(name string) *server.Server {
		s := server.New(protocol.Implementation{Name: name, Version: "1"}, server.Options{})
		server.AddResource(s, protocol.Resource{URI: "notes:/all", Name: "all"}, func(context.Context) (string, error) { return name, nil })
		server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "notes:/{N}/text", Name: "one"}, func(context.Context, struct{ N string }) (string, error) { return name, nil })
		return s
	}
	file := `{"mcpServers":{"home":{"command":"/bin/home"%s},"work":{"command":"/bin/work"}}}`
	f := newFleetFor(t, protocol.Latest, map[string]*server.Server{"home": notes("home"), "work": notes("work")}, gateway.Options{}, load(t, fmt.Sprintf(file, "")))
	session := f.client(protocol.Latest, client.Options{})
	reads := func(want ...string) {
		t.Helper()
		for i, uri := range []string{"notes:/all", "notes:/7/text"} {
			result, err := session.ReadResource(timeout(t), &protocol.ReadResourceParams{URI: uri})
			if err != nil || *result.Contents[0].Text != want[i] {
				t.Errorf("%s: %v, %v, want that of %s", uri, result, err, want[i])
			}
		}
	}
	everything(t, session) // the lists of both are known
	reads("home", "home")
	if s, _ := f.Report().Server("work"); !strings.Contains(fmt.Sprint(s.Notices), `notes:/all`) {
		t.Errorf("the notices are %q", s.Notices)
	}
	f.apply(load(t, fmt.Sprintf(file, `,"bowline":{"resources":{"deny":["notes:/all"]}}`)))
	reads("work", "home")
	f.apply(load(t, fmt.Sprintf(file, `,"bowline":{"resources":{"deny":["notes:/{N}/text"]}}`)))
	reads("home", "work")
}
