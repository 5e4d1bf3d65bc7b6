package sharing

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// upward is the handler of what the server sends.
type upward struct{ server *Server }

// ServeRequest implements conn.Handler: it passes a question to the client that it is probably for.
func (u upward) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if in.Method == protocol.MethodPing {
		return json.RawMessage("{}"), nil
	}
	c, err := u.server.asked()
	if err != nil {
		return nil, err
	}
	return (&relay{in: in, to: c.conn}).pass(ctx)
}

// ServeNotification implements conn.Handler.
func (u upward) ServeNotification(ctx context.Context, in *conn.Incoming) {
	s := u.server
	if mayHave(in.Params, protocol.MetaSubscriptionID) {
		begin, end, found, err := member(in.Params, "_meta", protocol.MetaSubscriptionID)
		if found && err == nil {
			s.tellListener(ctx, in, begin, end)
			return
		}
	}
	for _, c := range s.all() {
		c.tell(ctx, in.Method, in.Params)
	}
}

// A listening is a subscriptions/listen that was passed on.
type listening struct {
	client *sharer
	id     jsonrpc.ID // under which the client has made it
}

// tellListener passes a notification to the client whose subscription it is of. Its id is at that
// place of the params.
func (s *Server) tellListener(ctx context.Context, in *conn.Incoming, begin, end int) {
	id, err := strconv.ParseInt(string(in.Params[begin:end]), 10, 64)
	if err != nil {
		return // no subscription that was passed on has such an id
	}
	s.mu.Lock()
	l := s.listenings[id]
	s.mu.Unlock()
	if l != nil {
		l.client.tell(ctx, in.Method, replaced(in.Params, begin, end, l.id.Append(nil)))
	}
}

func (s *Server) all() []*sharer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.clients))
}

// asked returns the client that a question of the server is for.
func (s *Server) asked() (*sharer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var only, calling *sharer
	callers := 0
	for c := range s.clients {
		only = c
		if c.calls > 0 {
			calling = c
			callers++
		}
	}
	switch {
	case callers == 1:
		return calling, nil
	case callers == 0 && len(s.clients) == 1:
		return only, nil
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf(
		"the server is shared, and nobody knows which of %d clients the request is for: %d have calls under way", len(s.clients), callers)}
}
