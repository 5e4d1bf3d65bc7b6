package gateway_test

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
)

// A gatewayOf is a gateway at a node of a cluster, with a server "s" of its own that runs the same as those of the other nodes.
type gatewayOf struct {
	*fleet
	engine *clustertest.Engine
	s      *server.Server
}

// nodeOf starts a gateway at a node. With broken its server cannot be started.
func nodeOf(t *testing.T, service *clustertest.Service, name string, isBroken bool, tools map[string]string) *gatewayOf {
	t.Helper()
	g := &gatewayOf{engine: service.Engine(), s: named("s")}
	for tool, text := range tools {
		g.describe(tool, text)
	}
	o := gateway.Options{Shared: valuesOf(t, g.engine, name), Catalogue: filepath.Join(t.TempDir(), "catalogue.json")}
	if isBroken {
		failOn(t, g.s.Close(timeout(t)))
	}
	g.fleet = newFleetFor(t, protocol.Latest, map[string]*server.Server{"s": g.s}, o, load(t, `{"mcpServers":{"s":{"command":"/bin/s"}},"bowline":{"pins":"block"}}`))
	return g
}

func valuesOf(t *testing.T, engine *clustertest.Engine, name string) *cluster.Values {
	t.Helper()
	n, err := cluster.Join(timeout(t), engine, cluster.Options{Cluster: "test", Node: name, Key: bytes.Repeat([]byte{7}, cluster.KeySize)})
	failOn(t, err)
	t.Cleanup(func() {
		failOn(t, errors.Join(n.Close(context.Background()), engine.Close()))
	})
	return n.Values()
}

func (g *gatewayOf) describe(tool, text string) {
	server.AddTool(g.s, protocol.Tool{Name: tool, Description: text}, func(context.Context, struct{}) (string, error) { return "done", nil })
}

// until waits until something is so, and looks again whenever the gateway has changed.
func (g *gatewayOf) until(what string, is func() bool) {
	g.t.Helper()
	ctx := timeout(g.t)
	for {
		changed := g.Changed()
		if is() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			g.t.Fatalf("never: %s; the pins are %v", what, g.Pins())
		}
	}
}

func (g *gatewayOf) offers(tool string) func() bool {
	return func() bool {
		d, _ := g.Detail("s")
		return slices.ContainsFunc(d.Tools, func(t admin.Tool) bool { return t.Name == "s__"+tool })
	}
}

func (g *gatewayOf) holds(tool string) func() bool {
	return func() bool {
		return slices.ContainsFunc(g.Pins(), func(p admin.Pin) bool { return p.Tool == tool && p.Held })
	}
}

// A tool that is another one than any gateway of the cluster has pinned is held by each, and what one approves is approved at all. What a gateway has in its own file does not matter.
//
// Guarantees: G-0104.5
func TestGatewaysShareWhatTheyHavePinned(t *testing.T) {
	service := clustertest.New(clustertest.Options{})
	a := nodeOf(t, service, "a", false, map[string]string{"t": "reads"})
	a.until("a offers it", a.offers("t"))
	b := nodeOf(t, service, "b", false, map[string]string{"t": "obey"})
	b.until("b holds what is another tool than at a, although it sees it first", b.holds("t"))
	a.describe("t", "obey")
	a.until("a holds it", a.holds("t"))
	failOn(t, a.Approve(timeout(t), "s", "t"))
	b.until("b offers it", b.offers("t"))
	c := nodeOf(t, service, "c", false, map[string]string{"t": "reads"})
	c.until("c holds what was approved once", c.holds("t"))
	if err := c.Approve(timeout(t), "s", "t@0000"); err == nil {
		t.Error("another version is approved")
	}
	failOn(t, c.Approve(timeout(t), "s"))
	a.until("a holds what is not approved any more", a.holds("t"))
	b.until("b does, too", b.holds("t"))
}

// While the store is away, a tool that this gateway knows goes on, one that it does not know is held, and nothing is approved. When it is back, that is made up for.
//
// Guarantees: G-0104.6
func TestPinsWhileTheStoreIsAway(t *testing.T) {
	service := clustertest.New(clustertest.Options{})
	a := nodeOf(t, service, "a", false, map[string]string{"t": "reads"})
	b := nodeOf(t, service, "b", false, map[string]string{"t": "reads"})
	a.until("a offers it", a.offers("t"))
	b.until("b offers it", b.offers("t"))
	b.engine.Cut()
	b.describe("new", "reads")
	b.describe("t", "obey")
	b.until("b holds the new one", b.holds("new"))
	b.until("b holds the one that has changed", b.holds("t"))
	if notices := mustServer(t, b).Notices; !slices.ContainsFunc(notices, func(n string) bool { return strings.Contains(n, "cannot be asked") }) {
		t.Errorf("the notices are %q", notices)
	}
	if err := b.Approve(timeout(t), "s", "t"); !errors.Is(err, cluster.ErrUnavailable) || !b.holds("t")() {
		t.Errorf("approved without the store: %v", err)
	}
	a.describe("new", "obeys") // which a sees first
	a.until("a offers the new one", a.offers("new"))
	b.engine.Heal()
	b.until("b knows what the new one was at a", func() bool {
		return slices.ContainsFunc(b.Pins(), func(p admin.Pin) bool { return p.Tool == "new" && p.Held }) && !slices.ContainsFunc(mustServer(t, b).Notices, func(n string) bool { return strings.Contains(n, "cannot be asked") })
	})
	failOn(t, b.Approve(timeout(t), "s"))
	b.until("b offers what it has approved", b.offers("t"))
	a.until("a holds what it has otherwise", a.holds("new"))
}

// A store that has lost everything gets the pins again, also from a node that has not approved them.
//
// Guarantees: G-0104.5
func TestPinsOfAStoreThatWasLost(t *testing.T) {
	service := clustertest.New(clustertest.Options{})
	a := nodeOf(t, service, "a", false, map[string]string{"t": "reads"})
	b := nodeOf(t, service, "b", false, map[string]string{"t": "reads"})
	a.until("a offers it", a.offers("t"))
	b.until("b offers it", b.offers("t"))
	values := valuesOf(t, service.Engine(), "d")
	service.Wipe()
	ctx, cancel := context.WithCancel(timeout(t))
	failOn(t, values.Watch(ctx, func(value []byte) {
		if isPins(value) { // others may write a list first
			cancel()
		}
	}))
	c := nodeOf(t, service, "c", false, map[string]string{"t": "obey"})
	a.describe("t", "obey")
	a.until("a holds it", a.holds("t"))
	failOn(t, a.Approve(timeout(t), "s"))
	c.until("c offers it", c.offers("t"))
	b.describe("t", "obey")
	b.until("b offers it", b.offers("t"))
}

// isPins reports whether a value of the store has the pins of tools.
func isPins(value []byte) bool {
	text, _ := io.ReadAll(flate.NewReader(bytes.NewReader(value)))
	return bytes.Contains(text, []byte(`"pins":{"`))
}

// A gateway that cannot start a server, or whose server is asleep, offers what another one has seen of it, and hears when that changes.
//
// Guarantees: G-0104.7
func TestGatewaysShareWhatServersOffer(t *testing.T) {
	service := clustertest.New(clustertest.Options{})
	a := nodeOf(t, service, "a", false, map[string]string{"t": "reads"})
	a.until("a offers it", a.offers("t"))
	b := nodeOf(t, service, "b", true, nil)
	b.until("b offers it, too", b.offers("t"))
	a.describe("later", "reads")
	b.until("b hears of a change", b.offers("later"))
	b.until("it offers the prompts", func() bool { return mustServer(t, b).Prompts > 0 })
	session := b.client(protocol.Latest, client.Options{})
	if result, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: "s__t"}); err == nil && !result.IsError {
		t.Errorf("a call of a server that cannot be started: %v", result)
	}
	c := nodeOf(t, service, "c", false, map[string]string{"t": "reads"})
	c.until("c offers it", c.offers("t"))
	c.apply(load(t, `{"mcpServers":{"s":{"command":"/bin/s","bowline":{"idleStop":"1s"}}},"bowline":{"pins":"block"}}`))
	c.until("its server is asleep", func() bool { return mustServer(t, c).State == admin.Stopped })
	a.describe("latest", "reads")
	c.until("c hears of a change although its server is asleep", c.offers("latest"))
}

// mustServer returns what is reported of the server.
func mustServer(t *testing.T, g *gatewayOf) admin.ServerReport {
	t.Helper()
	s, ok := g.Report().Server("s")
	if !ok {
		t.Fatal("the server is not in the report")
	}
	return s
}
