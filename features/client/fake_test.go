package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A fakeServer answers a client frame by frame, and records what the client has sent.
type fakeServer struct {
	// answer returns the frames that answer one frame of the client. No frames are
	// silence. It runs on the goroutine of the link.
	answer func(frame) []string

	serving sync.WaitGroup
	mu      sync.Mutex
	links   []transport.Link
	frames  []frame
}

// on lets answer have the requests of one method. It calls before for those that it does not answer itself.
func (s *fakeServer) on(method string, answer func(f frame, before func(frame) []string) []string) {
	before := s.answer
	s.answer = func(f frame) []string {
		if f.Method != method {
			return before(f)
		}
		return answer(f, before)
	}
}

// A frame is a message that a client has sent.
type frame struct {
	Link   int             // the number of the link, from 1
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Error  json.RawMessage `json:"error"`
	Raw    json.RawMessage `json:"-"` // the whole frame
}

// result returns the response to a request.
func (f frame) result(result string) string {
	return `{"jsonrpc":"2.0","id":` + string(f.ID) + `,"result":` + result + `}`
}

const (
	maxPages     = 1000 // that a range over a list fetches
	withTools    = `{"tools":{}}`
	withoutTools = `{}`
)

// initialized returns the response to initialize.
func (f frame) initialized(version, capabilities string) []string {
	return []string{f.result(`{"protocolVersion":"` + version + `","capabilities":` + capabilities +
		`,"serverInfo":{"name":"fake","version":"0"}}`)}
}

// answering returns a server with tools that answers each method with a fixed result.
func answering(results map[string]string) *fakeServer {
	return &fakeServer{answer: func(f frame) []string {
		if result, ok := results[f.Method]; ok {
			return []string{f.result(result)}
		}
		if f.Method == protocol.MethodInitialize {
			return f.initialized(protocol.LatestLegacy, withTools)
		}
		return nil
	}}
}

// answeringWith returns a server with tools that answers one method with answer.
func answeringWith(method string, answer func(frame) []string) *fakeServer {
	return &fakeServer{answer: func(f frame) []string {
		switch f.Method {
		case method:
			return answer(f)
		case protocol.MethodInitialize:
			return f.initialized(protocol.LatestLegacy, withTools)
		default:
			return nil
		}
	}}
}

// Open implements transport.Transport.
func (s *fakeServer) Open(context.Context) (transport.Link, error) {
	theirs, ours := inmem.Pipe(inmem.Options{})
	s.mu.Lock()
	s.links = append(s.links, ours)
	number := len(s.links)
	s.mu.Unlock()
	inbox := make(inbox, 100)
	ours.Bind(inbox)
	ours.Grant(transport.Main, cap(inbox))
	s.serving.Go(func() { s.serve(number, ours, inbox) })
	return theirs, nil
}

func (s *fakeServer) serve(number int, link transport.Link, inbox inbox) {
	for raw := range inbox {
		var f frame
		if err := json.Unmarshal(raw, &f); err != nil {
			panic(err) // the client has sent invalid JSON
		}
		f.Link, f.Raw = number, raw
		s.mu.Lock()
		s.frames = append(s.frames, f)
		s.mu.Unlock()
		for _, reply := range s.answer(f) {
			if link.Send(outbound(reply)) != nil {
				break // the link was cut
			}
		}
		link.Grant(transport.Main, 1)
	}
}

// cut closes every link.
func (s *fakeServer) cut() {
	s.mu.Lock()
	links := slices.Clone(s.links)
	s.mu.Unlock()
	for _, link := range links {
		link.Close(0)
	}
}

func (s *fakeServer) close() {
	s.cut()
	s.serving.Wait()
}

// received returns the frames of one method, "" for responses.
func (s *fakeServer) received(method string) []frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.frames), func(f frame) bool { return f.Method != method })
}

// methods returns the methods of all frames in order, "" for responses.
func (s *fakeServer) methods() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var came []string
	for _, f := range s.frames {
		came = append(came, f.Method)
	}
	return came
}

// An inbox is the receiver of the server's end of a link. It has room for all frames
// that its credit allows.
type inbox chan []byte

func (i inbox) Receive(in transport.Inbound)               { i <- in.Frame }
func (inbox) Writable()                                    {}
func (inbox) StreamOpened(transport.Stream, transport.Tag) {}
func (inbox) StreamLost(transport.StreamLoss)              {}
func (inbox) Failed(transport.Failure)                     {}
func (inbox) Ended()                                       {}
func (i inbox) Lost(transport.Loss)                        { close(i) }

// openFake connects a client to a fake server for the length of a test.
func openFake(t *testing.T, s *fakeServer, o client.Options) *client.Session {
	t.Helper()
	session, err := connectFake(t, s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close(context.Background()) })
	return session
}

func connectFake(t *testing.T, s *fakeServer, o client.Options) (*client.Session, error) {
	t.Helper()
	t.Cleanup(s.close)
	if o.ProtocolVersion == "" { // most of these servers are legacy
		o.ProtocolVersion = protocol.LatestLegacy
	}
	guard, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return client.New(clientInfo, o).Connect(guard, specification.WatchClient(t, s))
}

// toolNames ranges over all tools, and returns how that ended.
func toolNames(t *testing.T, s *client.Session) (names []string, ended error) {
	t.Helper()
	for tool, err := range s.Tools(t.Context()) {
		if err != nil {
			ended = errors.Join(ended, err)
			continue // an error is the last element
		}
		if names = append(names, tool.Name); len(names) > 10*maxPages {
			t.Fatal("the list continues after an error")
		}
	}
	return names, ended
}

func outbound(raw string) transport.Outbound { return transport.Outbound{Frame: []byte(raw)} }

// accepting leads to a server of this process.
func accepting(t *testing.T, s *server.Server) transport.Transport {
	t.Cleanup(func() { s.Close(context.Background()) })
	return inmem.New(s.Accept, inmem.Options{})
}

// pass lets time pass in a bubble of testing/synctest.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// onToolsChanged returns an OnEvent that calls f for each ToolsChanged.
func onToolsChanged(f func(context.Context, *client.Session)) func(context.Context, *client.Session, client.Event) {
	return func(ctx context.Context, s *client.Session, e client.Event) {
		switch e.(type) {
		case *client.ToolsChanged, *client.Restored:
			f(ctx, s)
		}
	}
}
