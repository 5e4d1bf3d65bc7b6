// Package impatient has the far side of a link for property tests: a client that sends in any order, and does not wait for answers, not even for
// that to initialize.
package impatient

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A Client lives in a bubble of testing/synctest. Its requests have the ids 1, 2, and so on.
type Client struct {
	link transport.Link
	sent int // requests

	mu        sync.Mutex
	responses map[string]int // by the id of the request
	asked     []string       // ids of the server's questions, and 0

	mayLack map[string]bool // an answer: what was cancelled, or refused with all of a batch
}

// New returns the client at one end of a link, whose other end a server serves.
func New(link transport.Link) *Client {
	c := &Client{link: link, responses: make(map[string]int), asked: []string{"0"}, mayLack: make(map[string]bool)}
	link.Bind(peertest.Receive(c.receive))
	link.Grant(transport.Main, 1<<20)
	return c
}

func (c *Client) receive(in transport.Inbound) {
	items, err := jsonrpc.DecodeBatch(in.Frame, jsonrpc.Limits{})
	if err != nil {
		m, _ := jsonrpc.Decode(in.Frame, jsonrpc.Limits{}) // what cannot be read answers nothing
		items = []jsonrpc.Item{{Message: m}}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, item := range items {
		switch id := string(item.Message.ID.Append(nil)); item.Message.Kind {
		case jsonrpc.KindRequest:
			c.asked = append(c.asked, id)
		case jsonrpc.KindResult, jsonrpc.KindError:
			c.responses[id]++
		}
	}
}

// Send sends one of some frames. In those of requests, ID stands for the id, and in the others OTHER for that of an earlier request, which is
// cancelled, or of a question of the server.
func (c *Client) Send(t *rapid.T, requests, others []string) {
	var frame string
	if rapid.IntRange(0, 2).Draw(t, "kind") > 0 {
		c.sent++
		id := fmt.Sprint(c.sent)
		frame = strings.ReplaceAll(rapid.SampledFrom(requests).Draw(t, "request"), "ID", id)
		c.mayLack[id] = frame[0] == '['
	} else {
		c.mu.Lock()
		asked := c.asked
		c.mu.Unlock()
		frame = rapid.SampledFrom(others).Draw(t, "other")
		id := fmt.Sprint(rapid.IntRange(0, c.sent).Draw(t, "earlier"))
		if strings.Contains(frame, "cancelled") {
			c.mayLack[id] = true
		} else {
			id = asked[rapid.IntRange(0, 100).Draw(t, "question")%len(asked)]
		}
		frame = strings.ReplaceAll(frame, "OTHER", id)
	}
	for errors.Is(c.link.Send(transport.Outbound{Frame: []byte(frame)}), transport.ErrBusy) {
		synctest.Wait()
	}
}

// Check checks that each request was answered once, when whatever the server may wait for is over.
func (c *Client) Check(t *rapid.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 1; i <= c.sent; i++ {
		id := fmt.Sprint(i)
		if n := c.responses[id]; n > 1 || n == 0 && !c.mayLack[id] {
			t.Errorf("request %s was answered %d times", id, n)
		}
	}
}
