package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
)

// data returns a server with a tool that reads, and one that fails.
func data() map[string]*server.Server {
	s := server.New(protocol.Implementation{Name: "data", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "read"}, func(_ context.Context, in struct {
		Set string `json:"set"`
	}) (string, error) {
		return "rows of " + in.Set, nil
	})
	server.AddTool(s, protocol.Tool{Name: "fails"}, func(_ context.Context, in struct {
		Set string `json:"set"`
	}) (string, error) {
		return "", errors.New("no such set: " + in.Set)
	})
	return map[string]*server.Server{"data": s}
}

func params(tool, set string) *protocol.CallToolParams {
	return &protocol.CallToolParams{Name: "data__" + tool, Arguments: json.RawMessage(`{"set":` + fmt.Sprintf("%q", set) + `}`)}
}

// textsOf returns the texts of a result.
func textsOf(result *protocol.CallToolResult) (all []string) {
	for _, block := range result.Content {
		all = append(all, block.(*protocol.TextContent).Text)
	}
	return all
}

// A result has what the program adds, after what the server has said, whatever the revisions are, and by the endpoint for search, too. Nothing that the program does to what
// it is shown changes the result.
//
// Guarantees: G-0103.1
func TestResultsAreEnriched(t *testing.T) {
	o := gateway.Options{Enrich: func(_ context.Context, call gateway.ToolCall) (gateway.Addition, error) {
		about := fmt.Sprintf("%s %s %s %s %v", call.Server, call.Tool, call.Identity, call.Arguments, strings.Contains(string(call.Result), "rows of"))
		clear(call.Result)
		return gateway.Addition{Meta: map[string]string{"about": about}, Content: protocol.Texts("owned by ada")}, nil
	}}
	const about = `{"about":"data read ann {\"set\":\"x\"} true"}`
	check := func(t *testing.T, result *protocol.CallToolResult, err error) {
		t.Helper()
		if err != nil || !slices.Equal(textsOf(result), []string{"rows of x", "owned by ada"}) {
			t.Fatalf("%+v, %v", result, err)
		}
		if meta, err := json.Marshal(result.Meta[gateway.MetaContext]); err != nil || string(meta) != about {
			t.Errorf("_meta is %s", meta)
		}
	}
	eras(t, func(t *testing.T, front, back string) {
		f := newFleetWith(t, back, data(), o)
		f.identity = "ann"
		session := f.client(front, client.Options{})
		result, err := session.CallTool(timeout(t), params("read", "x"))
		check(t, result, err)
		if result, err := session.CallTool(timeout(t), params("fails", "x")); err != nil || !result.IsError || len(result.Content) != 2 {
			t.Errorf("a tool that fails: %+v, %v", result, err)
		}
	})
	f := newFleetWith(t, protocol.Latest, data(), o)
	_, search := searchable(t, f)
	text, err := f.at(search, protocol.Latest, client.Options{}).CallTool(timeout(t), &protocol.CallToolParams{Name: "call_tool", Arguments: json.RawMessage(`{"name":"data__read","arguments":{"set":"x"}}`)})
	if err != nil || !slices.Equal(textsOf(text), []string{"rows of x", "owned by ada"}) {
		t.Errorf("by search: %+v, %v", text, err)
	}
}

// If an addition fails, the result is as the server has sent it, and that is counted. One that does not end delays the result by its time and no longer, and the 65th does not
// begin. Close waits for them; if it cannot wait any longer, the catalogue is kept nevertheless.
//
// Guarantees: G-0103.2
func TestAnEnrichmentThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var running atomic.Int32
		folder := filepath.Join(t.TempDir(), "state")
		failOn(t, os.WriteFile(folder, nil, 0o600)) // so that there can be no file in it yet
		o := gateway.Options{Catalogue: filepath.Join(folder, "catalogue"), EnrichTime: time.Second, Enrich: func(_ context.Context, call gateway.ToolCall) (gateway.Addition, error) {
			switch arguments := string(call.Arguments); {
			case strings.Contains(arguments, "error"):
				return gateway.Addition{Content: protocol.Texts("half")}, errors.New("the catalogue is away")
			case strings.Contains(arguments, "panic"):
				panic("no")
			case strings.Contains(arguments, "large"):
				return gateway.Addition{Meta: strings.Repeat("x", 64<<10)}, nil
			case strings.Contains(arguments, "odd"):
				return gateway.Addition{Meta: func() {}}, nil
			case strings.Contains(arguments, "nothing"):
				return gateway.Addition{}, nil
			}
			running.Add(1)
			<-release // it does not heed its context
			return gateway.Addition{Content: protocol.Texts("too late")}, nil
		}}
		f := newFleetWith(t, protocol.Latest, data(), o)
		session := f.client(protocol.Latest, client.Options{})
		call := func(set string) {
			t.Helper()
			result, err := session.CallTool(t.Context(), params("read", set))
			if err != nil || !slices.Equal(textsOf(result), []string{"rows of " + set}) || result.Meta[gateway.MetaContext] != nil {
				t.Errorf("%s: %+v, %v", set, result, err)
			}
		}
		for _, set := range []string{"error", "panic", "large", "odd", "nothing"} {
			call(set)
		}
		began := time.Now()
		for range 64 {
			call("deaf")
		}
		if took := time.Since(began); took != 64*time.Second || running.Load() != 64 {
			t.Errorf("%d were begun, in %v", running.Load(), took)
		}
		call("deaf")
		if took := time.Since(began); took != 64*time.Second || running.Load() != 64 || f.Report().NotEnriched != 4+65 {
			t.Errorf("%d were begun, in %v, and %d are counted", running.Load(), took, f.Report().NotEnriched)
		}
		failOn(t, os.Remove(folder))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.Close(ctx); err == nil || !strings.Contains(err.Error(), "Enrich does not end") {
			t.Errorf("Close does not wait: %v", err)
		}
		if _, err := os.Stat(o.Catalogue); err != nil {
			t.Errorf("the catalogue is not kept: %v", err)
		}
		close(release)
	})
}

// The log says why results are not enriched once a minute, and how many there were.
//
// Guarantees: G-0103.2
func TestTheLogSaysWhyResultsAreNotEnriched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(journal)
		f := newFleetWith(t, protocol.Latest, data(), gateway.Options{
			Client: client.Options{Conn: conn.Tuning{Log: slog.New(slog.NewTextHandler(log, nil))}},
			Enrich: func(context.Context, gateway.ToolCall) (gateway.Addition, error) {
				return gateway.Addition{}, errors.New("it is away")
			},
		})
		session := f.client(protocol.Latest, client.Options{})
		for i, want := range []string{"all=1", "", "all=3"} {
			before := len(log.String())
			failOn(t, second(session.CallTool(t.Context(), params("read", "x"))))
			said := log.String()[before:]
			if want == "" && strings.Contains(said, "not enriched") || want != "" && !strings.Contains(said, `is not enriched" server=data tool=read error="it is away" `+want+"\n") {
				t.Errorf("after call %d the log says %q, want %s", i, said, want)
			}
			pass(time.Minute / 2)
		}
	})
}

// A call that its client has given up is not counted as one that was not enriched: nobody has a poorer result.
//
// Guarantees: G-0103.2
func TestACallThatIsGivenUpWhileItIsEnriched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleetWith(t, protocol.Latest, data(), gateway.Options{Enrich: func(ctx context.Context, _ gateway.ToolCall) (gateway.Addition, error) {
			<-ctx.Done()
			return gateway.Addition{}, ctx.Err()
		}})
		session := f.client(protocol.Latest, client.Options{})
		for limit, counted := range map[time.Duration]int64{time.Second / 4: 0, time.Second: 1} { // Enrich has half a second
			before := f.Report().NotEnriched
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			began := time.Now()
			_, err := session.CallTool(ctx, params("read", "x"))
			cancel()
			synctest.Wait()
			if n := f.Report().NotEnriched - before; n != counted || (err == nil) != (counted == 1) || time.Since(began) > time.Second/2 {
				t.Errorf("with %v: %d are counted, %v after %v", limit, n, err, time.Since(began))
			}
		}
	})
}

// Close waits for no call of Enrich if none is running, and so says of none that it does not end, also if it may wait for nothing.
//
// Guarantees: G-0103.2
func TestCloseWithoutAnEnrichment(t *testing.T) {
	g := gateway.New(gateway.Options{Enrich: func(context.Context, gateway.ToolCall) (gateway.Addition, error) { return gateway.Addition{}, nil }})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Close(ctx); err != nil {
		t.Error(err)
	}
}

// A program is asked after everything that may refuse a call, about results of servers only, and before the record of the call.
//
// Guarantees: G-0103.3
func TestWhenResultsAreEnriched(t *testing.T) {
	r := new(recorder)
	var asked []string
	o := gateway.Options{Audit: r.write, Enrich: func(_ context.Context, call gateway.ToolCall) (gateway.Addition, error) {
		asked = append(asked, call.Tool)
		if n := len(r.about("tools/call")); n != 0 {
			return gateway.Addition{}, fmt.Errorf("there are %d records", n)
		}
		return gateway.Addition{Content: protocol.Texts("more")}, nil
	}}
	f := newFleetFor(t, protocol.Latest, data(), o, load(t, `{"mcpServers":{"data":{"command":"/bin/data","bowline":{"tools":{"deny":["fails"]},"toolRates":{"read":1}}}}}`))
	session := f.client(protocol.Latest, client.Options{})
	result, err := session.CallTool(timeout(t), params("read", "x"))
	if err != nil || len(result.Content) != 2 {
		t.Errorf("%+v, %v", result, err)
	}
	for _, tool := range []string{"read", "fails", "nobody"} { // beyond its rate, denied, and unknown
		if result, err := session.CallTool(timeout(t), params(tool, "x")); err == nil && (!result.IsError || len(result.Content) != 1) {
			t.Errorf("%s: %+v", tool, result)
		}
	}
	f.kill("data", false)
	if result, err := session.CallTool(timeout(t), params("read", "x")); err != nil || !result.IsError || len(result.Content) != 1 {
		t.Errorf("away: %+v, %v", result, err)
	}
	if !slices.Equal(asked, []string{"read"}) || f.Report().NotEnriched != 0 || len(r.about("tools/call")) != 5 {
		t.Errorf("asked about %q; records: %q", asked, r.about("tools/call"))
	}
}
