package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A listeningServer reports changes on its newest link. What it is like may differ from link to link.
type listeningServer struct {
	*fakeServer

	mu       sync.Mutex
	away     bool // it accepts no link
	slow     bool // it answers late
	like     serverKind
	refuses  map[string]bool // what it refuses from now on
	refusals map[string]int  // how often it has refused each resource
	grants   map[string]bool // what a modern one has granted since the program was told of a refusal
	late     []lateAnswer

	// Of this link:
	subscribed map[string]bool // what a legacy server reports
	listens    []*openListening
	faulted    bool // it has refused a whole subscriptions/listen, and granted none since
	faults     int  // how many of them it has refused since the last check
}

// A serverKind is what differs from link to link.
type serverKind struct {
	modern bool
	offers bool // it offers subscriptions
	lists  bool // it reports changes of the tools
	strict bool // it refuses a subscriptions/listen if it refuses one of its resources
}

// A lateAnswer is what a slow server has not said yet, and which resources that refuses.
type lateAnswer struct {
	frame   string
	refused []string
}

// An openListening is a subscriptions/listen that has not ended.
type openListening struct {
	frame
	granted protocol.SubscriptionFilter
}

// Open implements transport.Transport.
func (s *listeningServer) Open(ctx context.Context) (transport.Link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, errors.New("nobody is there")
	}
	return s.fakeServer.Open(ctx)
}

// serve executes a request when it comes, and says so later if the server is slow.
func (s *listeningServer) serve(f frame) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	capabilities := fmt.Sprintf(`{"tools":{"listChanged":%t},"resources":{"subscribe":%t}}`, s.like.lists, s.like.offers)
	switch {
	case f.Method == protocol.MethodInitialize && !s.like.modern:
		s.begin()
		return f.initialized(protocol.LatestLegacy, capabilities)
	case f.Method == protocol.MethodDiscover && s.like.modern:
		s.begin()
		return []string{f.result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":0,"cacheScope":"private","capabilities":` + capabilities + `}`)}
	case f.Method == protocol.MethodInitialize, f.Method == protocol.MethodDiscover:
		return []string{f.fault(jsonrpc.CodeMethodNotFound, `null`)}
	case f.Method == protocol.MethodReadResource:
		return []string{f.result(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[{"uri":"x://a","text":"a"}]}`)}
	case f.Method == protocol.NotificationCancelled:
		var cancelled struct{ RequestID json.RawMessage }
		mustUnmarshal(f.Params, &cancelled)
		s.listens = slices.DeleteFunc(s.listens, func(l *openListening) bool { return string(l.ID) == string(cancelled.RequestID) })
		return nil
	case f.ID == nil:
		return nil
	}
	reply, refused := s.execute(f)
	s.refuse(refused)
	if s.slow {
		s.late = append(s.late, lateAnswer{reply, refused})
		return nil
	}
	return []string{reply}
}

func (s *listeningServer) refuse(uris []string) {
	for _, uri := range uris {
		s.refusals[uri]++
	}
}

// begin begins a link.
func (s *listeningServer) begin() {
	s.late, s.subscribed, s.listens, s.faulted = nil, make(map[string]bool), nil, false
	if !s.like.offers {
		s.refuse(listeningURIs)
	}
}

// execute does what a request asks for, and returns the answer, and which resources that refuses.
func (s *listeningServer) execute(f frame) (answer string, refused []string) {
	var params struct {
		URI           string
		Notifications protocol.SubscriptionFilter
	}
	mustUnmarshal(f.Params, &params)
	isModern := f.Method == protocol.MethodListen
	switch {
	case isModern != s.like.modern:
		return f.fault(jsonrpc.CodeMethodNotFound, `null`), nil
	case isModern:
		return s.listen(f, params.Notifications)
	case f.Method == protocol.MethodUnsubscribe:
		delete(s.subscribed, params.URI)
	case f.Method == protocol.MethodSubscribe && s.refuses[params.URI]:
		delete(s.subscribed, params.URI)
		return f.fault(jsonrpc.CodeInvalidParams, `null`), []string{params.URI}
	case f.Method == protocol.MethodSubscribe:
		s.subscribed[params.URI] = true
	}
	return f.result(`{}`), nil
}

// listen grants what is asked for, or some of it, or nothing.
func (s *listeningServer) listen(f frame, asked protocol.SubscriptionFilter) (answer string, refused []string) {
	refused = slices.DeleteFunc(slices.Clone(asked.ResourceSubscriptions), func(uri string) bool { return !s.refuses[uri] })
	s.faulted = s.like.strict && len(refused) > 0
	if s.faulted {
		s.faults++
		return f.fault(jsonrpc.CodeInvalidParams, `null`), asked.ResourceSubscriptions
	}
	asked.ResourceSubscriptions = slices.DeleteFunc(asked.ResourceSubscriptions, func(uri string) bool { return s.refuses[uri] })
	for _, uri := range asked.ResourceSubscriptions {
		s.grants[uri] = true
	}
	s.listens = append(s.listens, &openListening{f, asked})
	f.Params = mustMarshal(&protocol.ListenParams{Notifications: asked})
	return f.grants(), refused
}

// reported returns the resources whose changes the server reports.
func (s *listeningServer) reported() []string {
	all := maps.Clone(s.subscribed)
	for _, l := range s.listens {
		for _, uri := range l.granted.ResourceSubscriptions {
			all[uri] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// reportsOf returns how often the server reports a change of a resource: a legacy one does so once.
func (s *listeningServer) reportsOf(uri string) (n int) {
	covers := func(of string) bool { return isWithin(uri, of) }
	for _, l := range s.listens {
		if slices.ContainsFunc(l.granted.ResourceSubscriptions, covers) {
			n++
		}
	}
	for of := range s.subscribed {
		if covers(of) {
			return 1
		}
	}
	return n
}

// reportsOfTools returns how often the server reports a change of the tools.
func (s *listeningServer) reportsOfTools() (n int) {
	if !s.like.modern && s.like.lists {
		return 1
	}
	for _, l := range s.listens {
		if l.granted.ToolsListChanged {
			n++
		}
	}
	return n
}

// answerLate answers what a slow server has not answered.
func (s *listeningServer) answerLate() {
	s.mu.Lock()
	late := s.late
	s.slow, s.late = false, nil
	for _, answer := range late {
		s.refuse(answer.refused)
	}
	s.mu.Unlock()
	for _, answer := range late {
		s.sendFrame(answer.frame)
	}
}

func isWithin(uri, of string) bool { return uri == of || strings.HasPrefix(uri, of+"/") }

func mustUnmarshal(raw []byte, to any) {
	if err := json.Unmarshal(raw, to); err != nil {
		panic(err)
	}
}
