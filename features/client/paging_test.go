package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// cursorOf returns the cursor of a request, or "none".
func cursorOf(f frame) string {
	var params protocol.ListToolsParams
	if err := json.Unmarshal(f.Params, &params); err != nil {
		panic(err)
	}
	if params.Cursor == nil {
		return "none"
	}
	return *params.Cursor
}

func page(f frame, tool, next string) []string {
	return []string{f.result(fmt.Sprintf(`{"tools":[{"name":%q,"inputSchema":{}}],"nextCursor":%q}`, tool, next))}
}

func lastPage(f frame, tool string) []string {
	return []string{f.result(fmt.Sprintf(`{"tools":[{"name":%q,"inputSchema":{}}]}`, tool))}
}

func cursors(s *fakeServer) []string {
	var used []string
	for _, f := range s.received(protocol.MethodListTools) {
		used = append(used, cursorOf(f))
	}
	return used
}

// A list continues with each cursor that the server returns, even an empty one.
func TestCursorsAreFollowed(t *testing.T) {
	next := map[string]string{"none": "", "": "b", "b": "c"}
	s := answeringWith(protocol.MethodListTools, func(f frame) []string {
		if follows, ok := next[cursorOf(f)]; ok {
			return page(f, "at "+cursorOf(f), follows)
		}
		return lastPage(f, "at "+cursorOf(f))
	})
	session := openFake(t, s, client.Options{})
	names, err := toolNames(t, session)
	if want := []string{"at none", "at ", "at b", "at c"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %q, %v, want %v", names, err, want)
	}
	start := "b"
	page, err := session.ListTools(t.Context(), &protocol.ListToolsParams{Cursor: &start})
	if err != nil || len(page.Tools) != 1 || page.Tools[0].Name != "at b" || *page.NextCursor != "c" {
		t.Errorf("from b got %+v, %v, want len(page.Tools) == 1, page.Tools[0].Name == %q and *page.NextCursor == %q", page, err, "at b", "c")
	}
}

// A range may begin with the page of a cursor, and leaves the params as they were. Without params, or with nil, it begins with the
// first page. It asks the server even if the cache holds the page.
//
// Guarantees: G-0106.4
func TestRangeFromACursor(t *testing.T) {
	next := map[string]string{"none": "b", "b": "c"}
	s := answeringWith(protocol.MethodListTools, func(f frame) []string {
		if follows, ok := next[cursorOf(f)]; ok {
			return page(f, "at "+cursorOf(f), follows)
		}
		return lastPage(f, "at "+cursorOf(f))
	})
	session := openFake(t, s, client.Options{})
	start := "b"
	from := &protocol.ListToolsParams{Cursor: &start}
	for name, c := range map[string]struct {
		given []*protocol.ListToolsParams
		want  []string
	}{
		"nothing":   {nil, []string{"at none", "at b", "at c"}},
		"nil":       {[]*protocol.ListToolsParams{nil}, []string{"at none", "at b", "at c"}},
		"no cursor": {[]*protocol.ListToolsParams{{}}, []string{"at none", "at b", "at c"}},
		"a cursor":  {[]*protocol.ListToolsParams{from, nil}, []string{"at b", "at c"}},
	} {
		for range 2 {
			var names []string
			for tool, err := range session.Tools(t.Context(), c.given...) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, tool.Name)
			}
			if !slices.Equal(names, c.want) || from.Cursor != &start {
				t.Errorf("%s: got %q, want %q", name, names, c.want)
			}
		}
	}
}

// A list fails if the server returns a cursor that it has returned before.
func TestRepeatedCursorEndsThePaging(t *testing.T) {
	for _, cursor := range []string{"", "again"} {
		s := answeringWith(protocol.MethodListTools, func(f frame) []string { return page(f, "tool", cursor) })
		names, err := toolNames(t, openFake(t, s, client.Options{}))
		var failed *conn.CallError
		if !errors.Is(err, client.ErrRepeatedCursor) || !errors.As(err, &failed) || failed.Delivery != conn.Sent {
			t.Errorf("%q: got %v, want the error %v, a *conn.CallError and failed.Delivery == %v", cursor, err, client.ErrRepeatedCursor, conn.Sent)
		}
		if used := cursors(s); len(names) != 2 || !slices.Equal(used, []string{"none", cursor}) {
			t.Errorf("%q: got the cursors %q and the tools %q, want len(names) == 2 and %v", cursor, used, names, []string{"none", cursor})
		}
	}
}

// A list ends with an error after the maximum number of pages.
func TestPagingIsBounded(t *testing.T) {
	pages := 0
	s := answeringWith(protocol.MethodListTools, func(f frame) []string {
		pages++
		return page(f, "tool", fmt.Sprint(pages))
	})
	names, err := toolNames(t, openFake(t, s, client.Options{}))
	var limit *protocol.LimitError
	if !errors.As(err, &limit) || limit.Limit != maxPages || !errors.As(err, new(*conn.CallError)) {
		t.Errorf("got %v, want a *protocol.LimitError, limit.Limit == %v and a *conn.CallError", err, maxPages)
	}
	if len(names) != maxPages || len(cursors(s)) != maxPages {
		t.Errorf("got %d tools of %d pages, want len(names) == %v and len(cursors(s)) == %v", len(names), len(cursors(s)), maxPages, maxPages)
	}
}

// A cursor is not used in another server session (2025-11-25
// server/utilities/pagination).
func TestCursorIsNotCarriedIntoAnotherServer(t *testing.T) {
	for _, waits := range []bool{false, true} {
		for _, readyAgain := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := answeringWith(protocol.MethodListTools, func(f frame) []string { return page(f, "tool", "next") })
				session := openFake(t, s, client.Options{}).With(client.CallOptions{WaitForReady: waits})
				var ended error
				tools := 0
				for _, err := range session.Tools(t.Context()) {
					if err != nil {
						ended = err
						break
					}
					tools++
					s.cut()
					synctest.Wait()
					if readyAgain {
						awaitReady(t, session)
					}
				}
				if !errors.Is(ended, client.ErrStaleCursor) || !errors.Is(ended, client.ErrStale) || !conn.NotExecuted(ended) || tools != 1 {
					t.Errorf("waits %t, ready again %t: got %d tools and %v", waits, readyAgain, tools, ended)
				}
				if used := cursors(s); !slices.Equal(used, []string{"none"}) {
					t.Errorf("got the cursors %q, want %v", used, []string{"none"})
				}
			})
		}
	}
}

// If the server is replaced while the caller waits for the first page, the cursor of
// that page is not used.
func TestCursorOfAServerReplacedMeanwhileIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answeringWith(protocol.MethodListTools, func(f frame) []string {
			return append([]string{progressOf(f, `"progress":1`)}, page(f, "tool", "next")...)
		})
		session := openFake(t, s, client.Options{})
		view := session.With(client.CallOptions{OnProgress: func(*protocol.ProgressParams) {
			synctest.Wait() // the page has arrived
			s.cut()
			synctest.Wait()
			awaitReady(t, session)
		}})
		names, err := toolNames(t, view)
		if !errors.Is(err, client.ErrStaleCursor) || !errors.Is(err, client.ErrStale) || len(names) != 1 {
			t.Errorf("got %q, %v, want the error %v and len(names) == 1", names, err, client.ErrStaleCursor)
		}
		if used := cursors(s); !slices.Equal(used, []string{"none"}) {
			t.Errorf("got the cursors %q, want %v", used, []string{"none"})
		}
	})
}

func awaitReady(t *testing.T, s *client.Session) {
	t.Helper()
	if err := s.Conn().AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}
