package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A recorder keeps records.
type recorder struct {
	mu  sync.Mutex
	all []audit.Record
}

func (r *recorder) write(_ context.Context, record audit.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, record)
}

// records returns a copy of all.
func (r *recorder) records() []audit.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// about returns the records of a method or of an event, as texts.
func (r *recorder) about(what string) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, record := range r.all {
		if record.Method+record.Event == what {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s/%s %s %s", record.Principal, record.Name, record.Server, record.Own, record.Outcome, record.Delivery)))
		}
	}
	return all
}

// Each request of a client has one record with its user, what was called at which server, and what became of it: also what was refused before it had reached a server. So has
// what a person does.
//
// Guarantees: G-0099.7
func TestAuditOfAGateway(t *testing.T) {
	servers := two()
	server.AddTool(servers["a"], protocol.Tool{Name: "fails"}, func(context.Context, struct{}) (string, error) { return "", errors.New("s3cret") })
	server.AddTool(servers["a"], protocol.Tool{Name: "errs"}, func(context.Context, struct{}) (string, error) {
		return "", &jsonrpc.Error{Code: -32099, Message: "s3cret"}
	})
	r := new(recorder)
	o := gateway.Options{Audit: r.write, Digest: func(arguments []byte) string { return fmt.Sprintf("%d bytes", len(arguments)) }}
	f := newFleetFor(t, protocol.LatestLegacy, servers, o, load(t, `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b","bowline":{"toolRates":{"who":1}}}}}`))
	f.identity = "ada"
	session := f.client(protocol.Latest, client.Options{})
	ctx := timeout(t)
	for _, tool := range []string{"a__who", "a__fails", "a__errs", "a__none", "b__who", "b__who"} {
		params := &protocol.CallToolParams{Name: tool}
		if strings.HasSuffix(tool, "who") {
			params.Arguments = []byte(`{"you":"s3cret"}`)
		}
		_, _ = session.CallTool(ctx, params)
	}
	f.kill("a", false)
	f.await("a", admin.Backoff)
	_, _ = session.CallTool(ctx, &protocol.CallToolParams{Name: "a__who"})
	want := []string{
		"ada a__who a/who answered", "ada a__fails a/fails tool error", "ada a__errs a/errs failed", "ada a__none / failed", "ada b__who b/who answered",
		"ada b__who b/who not answered not sent", "ada a__who a/who not answered not sent",
	}
	if got := r.about(protocol.MethodCallTool); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	legacy := f.client(protocol.LatestLegacy, client.Options{})
	passed, err := legacy.Request(ctx, protocol.MethodReadResource, &protocol.ReadResourceParams{URI: "b:/one"})
	if record := r.all[len(r.all)-1]; err != nil || record.Out != len(passed) || record.Out == 0 {
		t.Errorf("a result of %d bytes, %v: %+v", len(passed), err, record)
	}
	if _, err := session.ReadResource(ctx, &protocol.ReadResourceParams{URI: "b:/one"}); err != nil {
		t.Error(err)
	}
	if got := r.about(protocol.MethodReadResource); !slices.Equal(got, []string{"ada b:/one b/b:/one answered", "ada b:/one b/b:/one answered"}) {
		t.Errorf("a resource: %q", got)
	}
	if err := f.Do(ctx, "b", admin.Stop); err != nil {
		t.Error(err)
	}
	if _, err := f.Call(ctx, "b__who", nil); err != nil {
		t.Error(err)
	}
	if got := append(r.about("stop"), r.about("apply")...); !slices.Equal(got, []string{"admin  b/", "admin  /"}) {
		t.Errorf("what a person has done: %q", got)
	}
	last := r.all[len(r.all)-1]
	f.NotApplied(errors.New("line 7: s3cret is no URL")) // a file that cannot be read does not get as far as Apply
	if got := r.about("apply"); !slices.Equal(got, []string{"admin  /", "admin  / failed"}) {
		t.Errorf("a file that cannot be read: %q", got)
	}
	_, refused := f.Apply(ctx, load(t, `{"mcpServers":{},"bowline":{"maxName":1}}`))
	f.NotApplied(fmt.Errorf("the file: %w", refused)) // which Apply has recorded
	if got := r.about("apply"); refused == nil || len(got) != 3 || !slices.Equal(f.Report().Mistakes, strings.Split("the file: "+refused.Error(), "\n")) {
		t.Errorf("a file that Apply has refused: %q, %v, %q", got, refused, f.Report().Mistakes)
	}
	if !strings.HasPrefix(last.Client, gateway.Admin+" ") || last.Outcome != "not answered" {
		t.Errorf("a call of the page: %+v", last)
	}
	for _, record := range r.all {
		if text := fmt.Sprintf("%+v", record); strings.Contains(text, "s3cret") {
			t.Errorf("a secret of an argument, a result or an error is in %s", text)
		}
	}
	called := r.all[slices.IndexFunc(r.all, func(record audit.Record) bool { return record.Own == "who" })]
	if called.Arguments != "16 bytes" || called.Bytes == 0 || called.Out == 0 {
		t.Errorf("%+v", called)
	}
	for _, record := range r.all {
		if passed := record.Server != "" && (record.Outcome == "answered" || record.Outcome == "tool error"); (record.Out > 0) != passed {
			t.Errorf("%d bytes of a result: %+v", record.Out, record)
		}
	}
}

// The calls of a client that leaves while it is asked are recorded and counted as cancelled, whichever the gateway notices first: that it cannot be asked any more,
// what the server makes of that, or the end of the call.
//
// Guarantees: G-0099.7, G-0003.18
func TestCallsOfAClientThatLeavesWhileItIsAsked(t *testing.T) {
	const calls = 30
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			s, _ := asker()
			r := new(recorder)
			f := newFleetWith(t, protocol.LatestLegacy, map[string]*server.Server{"a": s}, gateway.Options{Audit: r.write, Each: func(_ *mcpjson.Server, o *client.Options) {
				o.Conn.Log = slog.New(slog.DiscardHandler)
			}})
			session := f.client(protocol.LatestLegacy, client.Options{Elicit: func(ctx context.Context, _ *client.Session, _ *protocol.ElicitParams) (*protocol.ElicitResult, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}})
			var calling sync.WaitGroup
			for range calls {
				calling.Go(func() { _, _ = session.CallTool(t.Context(), &protocol.CallToolParams{Name: "a__form"}) })
			}
			synctest.Wait()
			if n := len(f.Report().Questions); n != calls {
				t.Fatalf("%d questions wait, want %d", n, calls)
			}
			session.Stop()
			calling.Wait()
			synctest.Wait()
			outcomes := make(map[string]int)
			for _, record := range r.records() {
				if record.Method == protocol.MethodCallTool {
					outcomes[record.Outcome]++
				}
			}
			counted := make(map[string]uint64)
			for _, c := range f.Report().Called {
				counted[c.Outcome] += c.Count
			}
			if outcomes["cancelled"] != calls || counted["cancelled"] != calls {
				t.Errorf("records: %v, counted: %v; want %d cancelled", outcomes, counted, calls)
			}
		})
	}
}

// A trail that must be written before the answer has a record for each outcome that a client has seen.
//
// Guarantees: G-0099.8
func TestATrailIsWrittenBeforeTheAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	key := []byte(strings.Repeat("k", 32))
	trail, err := audit.Open(path, audit.Options{Key: key, Sync: true})
	if err != nil {
		t.Fatal(err)
	}
	f := newFleetWith(t, protocol.LatestLegacy, two(), gateway.Options{Audit: trail.Write})
	session := f.client(protocol.Latest, client.Options{})
	for range 20 {
		before, err := audit.Verify(path, key)
		if err != nil {
			t.Fatal(err)
		}
		callWho(t, session, "a")
		if after, err := audit.Verify(path, key); err != nil || after.Last <= before.Last {
			t.Fatalf("after a call: %+v, before: %+v, %v", after, before, err)
		}
	}
	session.Close(context.Background())
	if err := f.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if err := trail.Close(); err != nil {
		t.Error(err)
	}
}
