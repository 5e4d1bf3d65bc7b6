package client_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/schema"
)

// A tool whose output schema the client refuses can be called. The program learns once that
// its results are not checked, by an event or, if it takes no events, from its log.
//
// Guarantees: G-0072.1
func TestRefusedOutputSchemaIsTold(t *testing.T) {
	for raw, want := range map[string]error{
		`{"type":"object","properties":{"city":{"pattern":"` + strings.Repeat(`a{1000}`, 500) + `"}}}`: schema.ErrTooLarge,
		`{"$schema":"https://example.com/dialect"}`:                                                    schema.ErrDialect,
		`{"$ref":"#/none"}`: schema.ErrReference,
	} {
		synctest.Test(t, func(t *testing.T) {
			var told []*client.SchemaRefused
			s := toolAnswering(`{"content":[],"structuredContent":{"city":"Oslo"}}`, raw)
			session := openFake(t, s, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
				if e, ok := e.(*client.SchemaRefused); ok {
					told = append(told, e)
				}
			}})
			for range 3 {
				if _, err := toolNames(t, session); err != nil {
					t.Fatal(err)
				}
				if got, err := client.Call[weather](t.Context(), session, "t", nil); err != nil || got.City != "Oslo" {
					t.Errorf("got %v, %v, want the result, unchecked", got, err)
				}
				synctest.Wait() // so that no event waits when the next would come: it would count as the same
			}
			if len(told) != 1 || told[0].Tool != "t" || !errors.Is(told[0].Err, want) {
				t.Errorf("got the events %v, want one of the tool t with %v", told, want)
			}
		})
	}
	log := logByDefault(t)
	session := openFake(t, toolAnswering(`{"content":[],"structuredContent":{}}`, `{"$ref":"#/none"}`), client.Options{})
	if _, err := toolNames(t, session); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := client.Call[map[string]any](t.Context(), session, "t", nil); err != nil {
			t.Fatal(err)
		}
	}
	if want := `"bowline: results are not checked"`; strings.Count(log.String(), want) != 1 {
		t.Errorf("got the log %s, want %s once", log, want)
	}
}

// A program learns that the references of an output schema are refused when its tool is listed, once for each schema, and of at most 100
// tools of a page. The tools stay in the list.
//
// Guarantees: G-0072.4
func TestRefusedReferencesAreToldWhenListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		output, count := `{"properties":{"a":{"$dynamicRef":"#a"}}}`, 1
		var told []string
		s := &fakeServer{answer: func(f frame) []string {
			switch f.Method {
			case protocol.MethodCallTool:
				return []string{f.result(`{"content":[],"structuredContent":{"city":"Oslo"}}`)}
			case protocol.MethodListTools:
				tools := `{"name":"other","inputSchema":{},"outputSchema":{"$ref":"#/none"}}`
				for i := range count {
					tools += fmt.Sprintf(`,{"name":"t%d","inputSchema":{},"outputSchema":%s}`, i, output)
				}
				return []string{f.result(`{"tools":[` + tools + `]}`)}
			default:
				return allAnswers(protocol.LatestLegacy)(f)
			}
		}}
		session := openFake(t, s, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if e, ok := e.(*client.SchemaRefused); ok {
				told = append(told, fmt.Sprint(e.Tool, ": ", e.Err))
			}
		}})
		list := func(want int) {
			t.Helper()
			if names, err := toolNames(t, session); err != nil || len(names) != 1+count {
				t.Fatalf("got %d tools, %v, want %d", len(names), err, 1+count)
			}
			synctest.Wait()
			if len(told) != want {
				t.Fatalf("got the events %v, want %d", told, want)
			}
		}
		list(1)
		if want := `t0: schema: unsupported reference: $dynamicRef "#a": use $ref`; told[0] != want {
			t.Errorf("got %s, want %s", told[0], want)
		}
		list(1)
		if got, err := client.Call[weather](t.Context(), session, "t0", nil); err != nil || got.City != "Oslo" {
			t.Errorf("got %v, %v, want the result, unchecked", got, err)
		}
		synctest.Wait() // so that no event waits when the next would come: it would count as the same
		list(1)
		output = `{"$ref":"https://example.com/a"}`
		list(2)
		count = 150
		list(102)
		if _, err := client.Call[weather](t.Context(), session, "t149", nil); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if last := told[len(told)-1]; len(told) != 103 || !strings.HasPrefix(last, "t149: ") {
			t.Errorf("got %d events, the last of them %s, want one when the tool beyond the limit is called", len(told), last)
		}
	})
}

// While OnEvent is busy, at most 1000 refused schemas of a list wait to be told. The others are told with a result.
//
// Guarantees: G-0072.4
func TestWaitingRefusalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := 0
		s := &fakeServer{answer: func(f frame) []string {
			switch f.Method {
			case protocol.MethodCallTool:
				return []string{f.result(`{"content":[],"structuredContent":{"city":"Oslo"}}`)}
			case protocol.MethodListTools:
				tools := fmt.Sprintf(`{"name":"p%d","inputSchema":{}}`, page)
				for i := range 100 {
					tools += fmt.Sprintf(`,{"name":"t%d","inputSchema":{},"outputSchema":{"$dynamicRef":"#a"}}`, 100*page+i)
				}
				page++
				return []string{f.result(`{"tools":[` + tools + `]}`)}
			default:
				return allAnswers(protocol.LatestLegacy)(f)
			}
		}}
		told, release := 0, make(chan struct{})
		session := openFake(t, s, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if _, ok := e.(*client.SchemaRefused); ok {
				told++
				<-release
			}
		}})
		for range 12 {
			if _, err := toolNames(t, session); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		close(release)
		synctest.Wait()
		if told != 1001 {
			t.Errorf("got %d events, want the one that OnEvent had and 1000", told)
		}
		for range 2 {
			if _, err := client.Call[weather](t.Context(), session, "t1199", nil); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		if told != 1002 {
			t.Errorf("got %d events, want one more with the first result", told)
		}
	})
}

// A result without structured content passes, too, if its tool's schema is refused, and the
// program learns that it was not checked. If the schema can be checked, it is an error.
//
// Guarantees: G-0072.1
func TestRefusedOutputSchemaNeedsNoStructuredContent(t *testing.T) {
	for raw, refused := range map[string]bool{`{"$ref":"#/none"}`: true, `{"type":"object"}`: false} {
		synctest.Test(t, func(t *testing.T) {
			told := 0
			s := toolAnswering(`{"content":[{"type":"text","text":"{\"city\":\"Oslo\"}"}]}`, raw)
			session := openFake(t, s, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
				if _, ok := e.(*client.SchemaRefused); ok {
					told++
				}
			}})
			if _, err := toolNames(t, session); err != nil {
				t.Fatal(err)
			}
			got, err := client.Call[weather](t.Context(), session, "t", nil)
			synctest.Wait()
			switch {
			case refused && (err != nil || got.City != "Oslo" || told != 1):
				t.Errorf("refused: got %v, %v and %d events, want the result and 1", got, err, told)
			case !refused && (!errors.As(err, new(*client.ResultError)) || told != 0):
				t.Errorf("not refused: got %v and %d events, want a *client.ResultError and none", err, told)
			}
		})
	}
}

// The first call of a tool ends with its context while the schema of the tool is compiled,
// and the next call compiles it again.
//
// Guarantees: G-0072.1
func TestSchemaIsCompiledAgainAfterItsCallEnded(t *testing.T) {
	session := openFake(t, toolAnswering(`{"content":[],"structuredContent":{"city":"O"}}`, `{"properties":{"city":{"minLength":3}}}`), client.Options{
		Middleware: []client.Middleware{func(next client.Handler) client.Handler {
			return func(ctx context.Context, r *client.Request) (any, error) {
				result, err := next(ctx, r)
				if cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok {
					cancel()
				}
				return result, err
			}
		}},
	})
	if _, err := toolNames(t, session); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := client.Call[weather](context.WithValue(ctx, cancelKey{}, cancel), session, "t", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a call whose context has ended: got %v, want %v", err, context.Canceled)
	}
	if _, err := client.Call[weather](t.Context(), session, "t", nil); !errors.As(err, new(*client.ResultError)) {
		t.Errorf("the next call: got %v, want a *client.ResultError", err)
	}
}

type cancelKey struct{}

// If a legacy server is told that the user gave no answer, although there was one or the
// program's handler failed, the program learns why.
//
// Guarantees: G-0072.2
func TestUnfitAnswerIsTold(t *testing.T) {
	failed := errors.New("no terminal")
	for name, test := range map[string]struct {
		answer func() (*protocol.ElicitResult, error)
		want   string // in the error of the event; empty: no event
	}{
		"an unknown choice": {func() (*protocol.ElicitResult, error) { return client.Accept(map[string]any{"size": "huge"}) }, "/size is none of the 2 allowed values"},
		"an error":          {func() (*protocol.ElicitResult, error) { return nil, failed }, failed.Error()},
		"an unknown action": {func() (*protocol.ElicitResult, error) { return &protocol.ElicitResult{Action: "maybe"}, nil }, `"maybe"`},
		"declined":          {client.Decline, ""},
		"dismissed":         {client.Dismiss, ""},
		"accepted":          {func() (*protocol.ElicitResult, error) { return client.Accept(nil) }, ""},
	} {
		var told atomic.Pointer[client.NotAnswered]
		o := client.Options{
			Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
				return test.answer()
			},
			OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
				if e, ok := e.(*client.NotAnswered); ok {
					told.Store(e)
				}
			},
		}
		asked(t, o, protocol.MethodElicit, elicitForm) // it closes the session, which delivers the event
		switch e := told.Load(); {
		case e == nil && test.want != "":
			t.Errorf("%s: no event, want one with %q", name, test.want)
		case e != nil && (test.want == "" || !strings.Contains(e.Err.Error(), test.want)):
			t.Errorf("%s: got an event with %v, want %q", name, e.Err, test.want)
		}
		o.OnEvent = nil
		log := logByDefault(t)
		asked(t, o, protocol.MethodElicit, elicitForm)
		if logged := strings.Contains(log.String(), `"bowline: a question was not answered"`); logged != (test.want != "") {
			t.Errorf("%s: logged %t: %s", name, logged, log)
		}
	}
}

// Of many forms in one answer, none is kept compiled while its user thinks.
//
// Guarantees: G-0072.3
func TestManyFormsTakeLittleMemory(t *testing.T) {
	testenv.Crowd(t)
	const forms = 64
	var all []string
	for i := range forms {
		all = append(all, fmt.Sprintf(`"%d":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string","pattern":"%d%s"}}}}}`,
			i, i, strings.Repeat("a{1000}", 80)))
	}
	var shown atomic.Int64
	enough := make(chan struct{})
	var grown int64
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	session := openFake(t, askingServer(`{`+strings.Join(all, ",")+`}`, nil), client.Options{
		ProtocolVersion: protocol.Latest,
		Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			if shown.Add(1) == forms {
				var now runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&now)
				grown = int64(now.HeapAlloc) - int64(before.HeapAlloc)
				close(enough)
			}
			<-enough
			return client.Decline()
		},
	})
	if _, err := callTool(t, session, "x", ""); err != nil {
		t.Fatal(err)
	}
	if shown.Load() != forms || grown > 32<<20 {
		t.Errorf("%d forms are shown and take %d MiB, want %d and at most 32", shown.Load(), grown>>20, forms)
	}
}
