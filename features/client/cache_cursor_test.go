package client_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// The empty string is a cursor (2026-07-28 server/utilities/pagination). The page that it
// leads to is kept apart from the first page, which has no cursor. If the server refuses it,
// no page is used any more.
//
// Guarantees: G-0035.1, G-0035.3
func TestEmptyCursorIsNotTheFirstPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := map[string]string{"none": `,"nextCursor":""`, "": `,"nextCursor":"b"`}
		refused := false
		s := grantingServer()
		inner := s.answer
		s.answer = func(f frame) []string {
			if f.Method != protocol.MethodListTools {
				return inner(f)
			}
			cursor := cursorOf(f)
			if refused && cursor == "" {
				return []string{f.fault(-32602, `null`)}
			}
			return []string{f.result(fmt.Sprintf(`{"resultType":"complete",%s%s,"tools":[{"name":"at %s","inputSchema":{"type":"object"}}]}`,
				forAMinute, next[cursor], cursor))}
		}
		session, err := connect(t, s, client.Options{}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		whole := []string{"at none", "at ", "at b"}
		want := func(when string, asked int) {
			t.Helper()
			if names, err := toolNames(t, session); err != nil || !slices.Equal(names, whole) {
				t.Errorf("%s: got %q, %v, want %q", when, names, err, whole)
			}
			if got := len(s.received(protocol.MethodListTools)); got != asked {
				t.Errorf("%s: the server got %d requests, want %d", when, got, asked)
			}
		}
		want("first", 3)
		want("from the cache", 3)
		empty := new(string)
		for _, page := range []struct {
			cursor *string
			want   string
		}{{nil, "at none"}, {empty, "at "}, {nil, "at none"}} {
			r, err := session.ListTools(t.Context(), &protocol.ListToolsParams{Cursor: page.cursor})
			if err != nil || r.Tools[0].Name != page.want {
				t.Errorf("one page: got %+v, %v, want %q", r, err, page.want)
			}
		}
		want("after single pages", 3)
		refused = true
		if _, err := session.With(client.CallOptions{Fresh: true}).ListTools(t.Context(), &protocol.ListToolsParams{Cursor: empty}); err == nil {
			t.Error("the cursor was accepted, want an error")
		}
		refused = false
		want("after a cursor that is not valid any more", 7)
	})
}
