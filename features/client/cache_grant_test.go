package client_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// What changes before a server acknowledges a subscription is not reported. So whatever it grants counts as changed: the program gets the
// events, the cache outdates the results, and nothing that is not granted. Between two subscriptions of which the earlier reports
// until the later is acknowledged, there is no gap.
//
// Guarantees: G-0021.2, G-0030.3, G-0030.4, G-0035.2
func TestAcknowledgementOutdatesWhatItGrants(t *testing.T) {
	resources := []string{protocol.MethodListResources, protocol.MethodListResourceTemplates, protocol.MethodReadResource}
	for name, test := range map[string]struct {
		grants string
		events []string
		ended  []string
	}{
		"the tools":            {`"toolsListChanged":true`, []string{"tools"}, []string{protocol.MethodListTools}},
		"the prompts":          {`"promptsListChanged":true`, []string{"prompts"}, []string{protocol.MethodListPrompts}},
		"the resources":        {`"resourcesListChanged":true`, []string{"resources"}, resources},
		"a resource":           {`"resourceSubscriptions":["file:///a"]`, []string{"updated file:///a"}, []string{protocol.MethodReadResource}},
		"another resource":     {`"resourceSubscriptions":["file:///b"]`, []string{"updated file:///b"}, nil},
		"one never asked for":  {`"resourceSubscriptions":["file:///c","file:///a/c"]`, nil, nil},
		"lists and a resource": {`"promptsListChanged":true,"toolsListChanged":true,"resourceSubscriptions":["file:///a"]`, []string{"tools", "prompts", "updated file:///a"}, []string{protocol.MethodListTools, protocol.MethodListPrompts, protocol.MethodReadResource}},
		"nothing":              {``, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reported events
				k := newCachingServer(forAMinute)
				again := false
				k.fakeServer.answer = func(f frame) []string {
					if f.Method == protocol.MethodListen && again {
						f.Params = []byte(`{"notifications":{` + test.grants + `}}`)
						return []string{f.grants()}
					}
					return k.serve(f)
				}
				s := openCachingServer(t, k, client.Options{OnEvent: reported.on})
				reported.want(t, "connected", "tools", "prompts", "resources")
				for _, uri := range []string{"file:///a", "file:///b"} {
					if err := s.Subscribe(t.Context(), &protocol.SubscribeParams{URI: uri}); err != nil {
						t.Fatal(err)
					}
				}
				wantKept(t, "first", s, 1)
				if err := s.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "file:///d"}); err != nil {
					t.Fatal(err)
				}
				reported.want(t, "another subscription replaces the earlier one")
				wantKept(t, "another subscription replaces the earlier one", s, 1)
				again = true
				asked := k.received(protocol.MethodListen)
				k.sendFrame(asked[len(asked)-1].result(`{"resultType":"complete"}`))
				reported.want(t, "the server has ended the subscription")
				wantKept(t, "the server has ended the subscription", s, 1)
				pass(2 * time.Second)
				var refused []string
				for _, uri := range []string{"file:///a", "file:///b", "file:///d"} {
					if !strings.Contains(test.grants, `"`+uri+`"`) {
						refused = append(refused, "refused "+uri)
					}
				}
				reported.want(t, "acknowledged again", append(refused, test.events...)...)
				for method := range cacheable {
					want := 1
					if slices.Contains(test.ended, method) {
						want = 2
					}
					wantKept(t, "acknowledged again", s, want, method)
				}
			})
		})
	}
}

// The first acknowledgement outdates what the program has asked for before it, right after Connect.
//
// Guarantees: G-0021.2, G-0035.2
func TestFirstAcknowledgementOutdatesWhatCameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCachingServer(forAMinute)
		k.fakeServer.answer = func(f frame) []string {
			if f.Method == protocol.MethodListen {
				return nil
			}
			return k.serve(f)
		}
		var reported events
		s := openCachingServer(t, k, client.Options{OnEvent: reported.on})
		wantKept(t, "before", s, 1)
		reported.want(t, "before")
		k.sendFrame(k.received(protocol.MethodListen)[0].grants())
		reported.want(t, "acknowledged", "tools", "prompts", "resources")
		wantKept(t, "acknowledged", s, 2)
	})
}

// No result is returned that is older than a day, however old the program and the server let it become.
//
// Guarantees: G-0035.4, G-0035.5
func TestNoResultIsReturnedAfterADay(t *testing.T) {
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		hints    string
		maxStale time.Duration
		until    time.Duration
	}{
		"the program wants it for long":         {`"ttlMs":0,"cacheScope":"private"`, 100 * day, day},
		"for less than a day":                   {`"ttlMs":0,"cacheScope":"private"`, 3 * time.Hour, 3 * time.Hour},
		"the server allows it for long":         {`"ttlMs":864000000,"cacheScope":"private"`, time.Hour, day},
		"both":                                  {`"ttlMs":9223372036854775807,"cacheScope":"private"`, 100 * day, day},
		"the server allows it for a day":        {`"ttlMs":86400000,"cacheScope":"private"`, 0, day},
		"the program wants it for a negative":   {`"ttlMs":0,"cacheScope":"private"`, -day, 0},
		"the server allows it for a negative":   {`"ttlMs":-86400000,"cacheScope":"private"`, 2 * time.Hour, 2 * time.Hour},
		"the program wants it for a nanosecond": {`"ttlMs":0,"cacheScope":"private"`, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newCachingServer(test.hints)
				s := openCachingServer(t, k, client.Options{Calls: client.CallOptions{MaxStale: test.maxStale}})
				wantKept(t, "first", s, 1)
				if test.until > 1 {
					pass(test.until - time.Nanosecond)
				}
				k.away.Store(true)
				k.cut()
				synctest.Wait()
				old := s.With(client.CallOptions{MaxStale: max(test.maxStale, test.until)})
				if test.until > 0 {
					wantKept(t, "just before the end", old, 1)
				}
				pass(2 * time.Nanosecond)
				for method, ask := range cacheable {
					if got, err := ask(t.Context(), s.With(client.CallOptions{MaxStale: 1000 * day})); !errors.Is(err, client.ErrUnavailable) {
						t.Errorf("after the end: %s: got %q, %v, want %v", method, got, err, client.ErrUnavailable)
					}
				}
			})
		})
	}
}
