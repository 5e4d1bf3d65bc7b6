package fault_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A Script answers requests in order, as its steps say.
func TestScript(t *testing.T) {
	ours, theirs := inmem.Pipe(inmem.Options{})
	script := fault.Script{
		fault.Expect("a"), fault.Answer(`{"x":1}`),
		fault.Expect("b"), fault.Echo(),
		fault.Expect("c"), fault.Refuse(-32000, "no"),
		fault.ExpectFrame(`{"jsonrpc":"2.0","method":"d"}`),
		fault.Wait(time.Millisecond), fault.Say("garbage"), fault.AwaitLoss(),
	}
	served := make(chan error, 1)
	go func() { served <- script.Serve(context.Background(), theirs) }()
	near := peertest.Bind(t, ours)
	for _, exchange := range [][2]string{
		{`{"jsonrpc":"2.0","id":1,"method":"a"}`, `{"jsonrpc":"2.0","id":1,"result":{"x":1}}`},
		{`{"jsonrpc":"2.0","id":2,"method":"b","params":[5]}`, `{"jsonrpc":"2.0","id":2,"result":[5]}`},
		{`{"jsonrpc":"2.0","id":3,"method":"c"}`, `{"jsonrpc":"2.0","id":3,"error":{"code":-32000,"message":"no"}}`},
		{`{"jsonrpc":"2.0","method":"d"}`, "garbage"},
	} {
		near.Send(exchange[0])
		if frame := near.Next(); frame != exchange[1] {
			t.Errorf("%s: got %s, want %v", exchange[0], frame, exchange[1])
		}
	}
	ours.Close(0)
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// The error of a Script names the step that failed.
func TestScriptNamesTheFailedStep(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(transport.Link)
		want string
	}{
		"another method": {func(l transport.Link) { l.Send(transport.Outbound{Frame: []byte(`{"jsonrpc":"2.0","method":"y"}`)}) }, `fault: step 1, expect x: got {"jsonrpc":"2.0","method":"y"}`},
		"garbage":        {func(l transport.Link) { l.Send(transport.Outbound{Frame: []byte(`y`)}) }, `fault: step 1, expect x: `},
		"loss":           {func(l transport.Link) { l.Close(0) }, `fault: step 1, expect x: the link was lost: transport: peer closed the link`},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := inmem.Pipe(inmem.Options{})
			ours.Bind(peertest.Ignore{})
			served := make(chan error, 1)
			go func() { served <- fault.Script{fault.Expect("x"), fault.Lose()}.Serve(context.Background(), theirs) }()
			c.do(ours)
			if err := <-served; err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want an error and the prefix %v", err, c.want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		_, theirs := inmem.Pipe(inmem.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := (fault.Script{fault.Expect("x")}).Serve(ctx, theirs); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
	})
}
