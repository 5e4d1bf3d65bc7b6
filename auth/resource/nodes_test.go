package resource_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A guardedNode is a node of a cluster whose endpoint is protected.
type guardedNode struct {
	*cluster.Node
	handler *streamable.Handler
	proving *proving
}

// guardedNodes starts nodes that share proofs and sessions.
func guardedNodes(t *testing.T, names ...string) map[string]*guardedNode {
	t.Helper()
	service, all := clustertest.New(clustertest.Options{}), map[string]*guardedNode{}
	first, as := newProving(t, allowed)
	for _, name := range names {
		e := service.Engine()
		n, err := cluster.Join(t.Context(), e, cluster.Options{Cluster: "test", Node: name, Key: make([]byte, cluster.KeySize)})
		if err != nil {
			t.Fatal(err)
		}
		g, err := resource.New(resource.Options{
			URL: "https://mcp.example/mcp", Issuers: []resource.Issuer{{URL: as.Issuer()}}, HTTP: as.Client(), DPoP: resource.DPoPRequired, DPoPProofs: n.Proofs(),
		})
		if err != nil {
			t.Fatal(err)
		}
		tools := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{Node: name, Tasks: &server.TaskOptions{Store: n.Tasks(), Gone: n.Gone}})
		server.AddTool(tools, protocol.Tool{Name: "where"}, func(context.Context, struct{}) (string, error) { return "at " + name, nil })
		h := streamable.NewHandler(tools, streamable.HandlerOptions{Check: g.Check, Router: n.Router(), Sessions: n.Sessions()})
		if err := n.Serve(h); err != nil {
			t.Fatal(err)
		}
		all[name] = &guardedNode{n, h, &proving{t: t, g: g, token: first.token, sign: first.sign, site: first.site}}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			for _, end := range []func() error{func() error { return h.Shutdown(ctx, nil) }, func() error { return n.Close(ctx) }, e.Close} {
				if err := end(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for late := time.Now().Add(time.Minute); ; {
		known := 0
		for _, n := range all {
			for _, name := range names {
				if n.Router().ReachNode(name) != nil {
					known++
				}
			}
		}
		if known == len(names)*(len(names)-1) {
			return all
		}
		if time.Now().After(late) {
			t.Fatal("the nodes do not reach each other")
		}
	}
}

// send sends a message with a proof and further headers, written as "Name: value".
func (n *guardedNode) send(proof, body string, lines ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
	for _, line := range append(lines, "Accept: application/json, text/event-stream", "Content-Type: application/json", "Authorization: DPoP "+n.proving.token, "DPoP: "+proof) {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	n.handler.ServeHTTP(w, r)
	return w
}

// A request may pass two nodes that check its proof. The second one does not refuse it because the first
// one has accepted it. A proof that comes again is refused wherever it comes, whatever it claims.
//
// Guarantees: G-0046.14, G-0073.11
func TestProofIsUsedOnceByARequestThatIsForwarded(t *testing.T) {
	nodes := guardedNodes(t, "a", "b", "c")
	a, b, c := nodes["a"], nodes["b"], nodes["c"]
	w := a.send(a.proving.proof(""), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	session := "Mcp-Session-Id: " + w.Header().Get("Mcp-Session-Id")
	if w.Code != http.StatusOK {
		t.Fatalf("initialize got %d %s", w.Code, w.Body)
	}
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"where","arguments":{}}}`
	proof := ""
	fresh := func(what string, at *guardedNode, by string) {
		t.Helper()
		proof = at.proving.proof("")
		if w := at.send(proof, call, session); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "at "+by) {
			t.Errorf("%s: got %d %s, want that node %s serves it", what, w.Code, w.Body, by)
		}
	}
	used := func(what string, at *guardedNode) {
		t.Helper()
		for _, claim := range []string{"X: none", "Mcp-Session-Checked: 1", "Mcp-Session-Forwarded: 1"} {
			if w := at.send(proof, call, session, claim); w.Code != http.StatusUnauthorized {
				t.Errorf("%s, with %s: got %d %s, want 401", what, claim, w.Code, w.Body)
			}
		}
	}
	fresh("at its node", a, "a")
	used("again at its node", a)
	used("again at another node", b)
	fresh("forwarded", b, "a")
	used("forwarded again", b)
	used("again at its node, after it was forwarded", a)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := a.handler.Shutdown(ctx, nil); err != nil {
		t.Fatal(err)
	}
	fresh("taken", c, "c")
	fresh("when the store has told where it is", b, "c")
	used("again", b)
	used("again at its new node", c)
	modern := func(at *guardedNode) *httptest.ResponseRecorder {
		proof = at.proving.proof("")
		return at.send(proof, `{"jsonrpc":"2.0","id":3,"method":"tasks/get","params":{"taskId":"c.none","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
			"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tasks/get", "Mcp-Name: c.none")
	}
	here, there := modern(c), modern(b)
	if here.Code != there.Code || here.Code == http.StatusUnauthorized {
		t.Errorf("a request for a task of node c got %d %s there, and %d %s at node b", here.Code, here.Body, there.Code, there.Body)
	}
}
