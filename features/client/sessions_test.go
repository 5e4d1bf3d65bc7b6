package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
)

// A session that Connect still waits for is nobody's yet: it is not found, not listed, not measured and not reported. Close ends it, too.
func TestSessionsThatAreNotGivenYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := &fakeServer{answer: func(frame) []string { return nil }}
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		defer s.close()
		defer silent.close()
		c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy, FailFast: true, Calls: client.CallOptions{Retries: 7}})
		for _, name := range []string{"b", "a"} {
			session, err := c.Start(t.Context(), name, s)
			if err != nil {
				t.Fatal(err)
			}
			if err := session.AwaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		named := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy, Conn: conn.Tuning{Name: "waits"}})
		failed := make(chan error, 2)
		for _, one := range []*client.Client{c, named} {
			go func() {
				_, err := one.Connect(t.Context(), silent)
				failed <- err
			}()
		}
		synctest.Wait()
		var names []string
		for sample := range c.Samples() {
			names = append(names, sample.Name)
		}
		if !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("got samples of %q, want those of a and b", names)
		}
		for range c.Samples() {
			break
		}
		for session := range c.Sessions() {
			if session.Calls().Retries != 7 {
				t.Errorf("the calls of %s have the options %+v, want those of the client", session.Name(), session.Calls())
			}
		}
		if _, found := named.Session("waits"); found || len(named.Report().Children) > 0 {
			t.Error("a session that Connect waits for is found, or reported")
		}
		for range named.Sessions() {
			t.Error("a session that Connect waits for is listed")
		}
		if err := c.AwaitReady(t.Context()); err != nil {
			t.Error(err)
		}
		if state := named.Report().State; state != supervisor.Running {
			t.Errorf("a client without sessions is %v, want %v", state, supervisor.Running)
		}
		for _, one := range []*client.Client{c, named} {
			if err := one.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-failed; err == nil {
				t.Error("Connect has succeeded after Close")
			}
		}
	})
}

// AwaitReady of a client names each session that is not ready, and its error matches theirs.
func TestAwaitReadyNamesTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := &fakeServer{answer: func(frame) []string { return nil }}
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		defer s.close()
		defer silent.close()
		c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy})
		defer c.Close(t.Context())
		for name, to := range map[string]*fakeServer{"good": s, "silent": silent, "mute": silent} {
			if _, err := c.Start(t.Context(), name, to); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.AwaitReady(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"silent"`) || !strings.Contains(err.Error(), `"mute"`) || strings.Contains(err.Error(), `"good"`) {
			t.Errorf("got %v, want one error each of silent and mute, and none of good", err)
		}
	})
}

// A call that has to come again ends with its context, and says that the server has got it.
func TestComingAgainEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := grantingServer()
		s.on(protocol.MethodCallTool, func(f frame, _ func(frame) []string) []string {
			return []string{f.result(`{"resultType":"input_required","requestState":"s"}`)}
		})
		session := openFake(t, s, client.Options{ProtocolVersion: protocol.Latest})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "x"})
		var failed *client.CallError
		if !errors.As(err, &failed) || failed.Cause != conn.TimedOut || failed.Delivery == conn.NotSent || failed.Method != protocol.MethodCallTool || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want a *client.CallError that has timed out, of a call that was sent", err)
		}
		if n := len(s.received(protocol.MethodCallTool)); n < 3 || n > 6 {
			t.Errorf("the server got %d requests within a second, want those after 0.1, 0.2 and 0.4 s", n)
		}
	})
}

// The delay of a call that comes again grows to two seconds and not beyond.
func TestComingAgainIsNotDelayedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		s := grantingServer()
		s.on(protocol.MethodCallTool, func(f frame, before func(frame) []string) []string {
			if at = append(at, time.Now()); len(at) == 25 {
				return before(f)
			}
			return []string{f.result(fmt.Sprintf(`{"resultType":"input_required","requestState":"%d"}`, len(at)))}
		})
		session := openFake(t, s, client.Options{ProtocolVersion: protocol.Latest, MaxRounds: 100})
		if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "x"}); err != nil {
			t.Fatal(err)
		}
		wait := 100 * time.Millisecond
		for i := 1; i < len(at); i++ {
			if got := at[i].Sub(at[i-1]); got < wait*4/5 || got > wait*6/5 {
				t.Errorf("round %d came after %v, want %v and a fifth more or less", i, got, wait)
			}
			wait = min(2*wait, 2*time.Second)
		}
	})
}
