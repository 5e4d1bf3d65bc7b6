package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
)

type echo struct{ Text string }

// handleEcho makes a node answer "echo", and returns how often it did.
func handleEcho(n testNode) *int {
	done := new(int)
	n.Handle("echo", func(_ context.Context, args json.RawMessage) (any, error) {
		*done++
		var e echo
		if err := json.Unmarshal(args, &e); err != nil {
			return nil, err
		}
		return echo{n.Name() + ": " + e.Text}, nil
	})
	return done
}

// TestAsk checks that an operation is done where it was asked for, and what its errors say.
func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		synctest.Wait()
		handleEcho(a)
		handleEcho(b)
		b.Handle("fail", func(context.Context, json.RawMessage) (any, error) { return nil, errors.New("no luck") })
		b.Handle("panic", func(context.Context, json.RawMessage) (any, error) { panic("oh") })
		b.Handle("long", func(context.Context, json.RawMessage) (any, error) {
			return strings.Repeat("x", cluster.MaxControl), nil
		})
		b.Handle("odd", func(context.Context, json.RawMessage) (any, error) { return func() {}, nil })
		ended := false
		b.Handle("slow", func(ctx context.Context, _ json.RawMessage) (any, error) {
			<-ctx.Done()
			ended = true
			return nil, ctx.Err()
		})
		for _, node := range []string{"a", "b"} {
			var got echo
			if err := a.Ask(t.Context(), node, "echo", echo{"hello"}, &got); err != nil || got.Text != node+": hello" {
				t.Errorf("%v, %v", got, err)
			}
		}
		if err := a.Ask(t.Context(), "b", "echo", echo{"hello"}, nil); err != nil {
			t.Error(err)
		}
		for op, want := range map[string]string{
			"fail":    `cluster: node "b" did not fail: no luck`,
			"unknown": `cluster: node "b" did not unknown: the operation is unknown to this version`,
			"panic":   `cluster: node "b" did not panic: the operation panicked`,
			"long":    `cluster: node "b" did not long: a control message has more than 65536 bytes`,
			"odd":     `cluster: node "b" did not odd: json: unsupported type: func()`,
		} {
			var refused *cluster.ControlError
			if err := a.Ask(t.Context(), "b", op, nil, nil); !errors.As(err, &refused) || err.Error() != want || refused.Node != "b" || refused.Op != op {
				t.Errorf("%v, want %s", err, want)
			}
		}
		if err := a.Ask(t.Context(), "b", "echo", strings.Repeat("x", cluster.MaxControl), nil); err == nil || !strings.Contains(err.Error(), "more than 65536 bytes") {
			t.Errorf("a request that is too long: %v", err)
		}
		if err := a.Ask(t.Context(), "c", "echo", nil, nil); !errors.Is(err, cluster.ErrNoResponder) {
			t.Errorf("a node that does not exist: %v", err)
		}
		began := time.Now()
		if err := a.Ask(t.Context(), "b", "slow", nil, nil); err == nil || time.Since(began) != 2*time.Second {
			t.Errorf("a node that is slow: %v after %v", err, time.Since(began))
		}
		if synctest.Wait(); !ended {
			t.Error("a node goes on with what nobody waits for any more")
		}
		if r := b.Report(); r.RefusedMessages != 1 {
			t.Errorf("%d messages were refused, want that of the unknown operation", r.RefusedMessages)
		}
	})
}

// TestAskAfterRestart checks that a request reaches the process that has the name now, also
// while the watch of the sender still shows the one before.
func TestAskAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		synctest.Wait()
		a.engine.Faults(func(op clustertest.Operation) clustertest.Fault {
			if op.Name == "change" {
				return clustertest.Fault{Delay: 500 * time.Millisecond}
			}
			return clustertest.Fault{}
		})
		closeNode(t, b.Node)
		again := join(t, s, "b")
		handleEcho(again)
		if m, _ := a.Member("b"); m.Epoch != b.Self().Epoch {
			t.Fatal("the watch of a is not late")
		}
		var got echo
		if err := a.Ask(t.Context(), "b", "echo", echo{"hello"}, &got); err != nil || got.Text != "b: hello" {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// TestAskWithAnOldChallenge checks that a node whose watch is late asks again with the challenge that the other node has now.
func TestAskWithAnOldChallenge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		handleEcho(b)
		synctest.Wait()
		renewed := make(chan struct{}, 1)
		b.engine.Faults(func(op clustertest.Operation) clustertest.Fault {
			if op.Name == "update" && len(renewed) == 0 {
				renewed <- struct{}{}
			}
			return clustertest.Fault{}
		})
		a.engine.Faults(func(op clustertest.Operation) clustertest.Fault {
			if op.Name == "change" {
				return clustertest.Fault{Delay: 500 * time.Millisecond}
			}
			return clustertest.Fault{}
		})
		b.ForgetChallenges()
		<-renewed
		synctest.Wait()
		var got echo
		if err := a.Ask(t.Context(), "b", "echo", echo{"hello"}, &got); err != nil || got.Text != "b: hello" {
			t.Errorf("%v, %v", got, err)
		}
		if b.Report().RefusedMessages != 1 {
			t.Error("the challenge of before was accepted")
		}
	})
}

// TestRecordedRequests sends a request that was recorded again: at once, later, to another
// node, and to the next process with the name. None is done.
//
// Guarantees: G-0076.6
func TestRecordedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b, c := join(t, s, "a"), join(t, s, "b"), join(t, s, "c")
		synctest.Wait()
		done, doneByC := handleEcho(b), handleEcho(c)
		attacker := s.Engine()
		send := func(subject string, sealed []byte) {
			t.Helper()
			if _, err := attacker.Request(t.Context(), subject, sealed); err != nil && !errors.Is(err, cluster.ErrNoResponder) {
				t.Error(err)
			}
		}
		subject, recorded := a.Request("b", "echo", echo{"once"})
		_, held := a.Request("b", "echo", echo{"never"})
		send(subject, recorded)
		if *done != 1 {
			t.Fatal("the request was not done")
		}
		send(subject, recorded)
		send(c.ControlSubject(), recorded)
		send("ctl", recorded)
		for range 60 {
			advance(time.Second)
			send(subject, recorded)
		}
		send(subject, held) // it was held back for a minute
		if *done != 1 || *doneByC != 0 {
			t.Errorf("a recorded request was done %d times", *done+*doneByC-1)
		}
		if r := b.Report(); r.RefusedMessages != 63 {
			t.Errorf("%d messages were refused", r.RefusedMessages)
		}
		closeNode(t, b.Node)
		again := join(t, s, "b")
		doneAgain := handleEcho(again)
		send(again.ControlSubject(), recorded)
		send(again.ControlSubject(), held)
		if *doneAgain != 0 {
			t.Error("a recorded request was done by the next process")
		}
		synctest.Wait() // until node a has seen the new process
		if err := a.Ask(t.Context(), "b", "echo", echo{"new"}, nil); err != nil || *doneAgain != 1 {
			t.Errorf("a new request: %v", err)
		}
		if err := attacker.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRecordedResponse checks that a response counts for its own request only.
//
// Guarantees: G-0076.6
func TestRecordedResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		synctest.Wait()
		subject, sealed := a.Request("b", "ping", nil)
		response, err := a.engine.Request(t.Context(), subject, sealed)
		if err != nil {
			t.Fatal(err)
		}
		b.engine.Cut()
		attacker := s.Engine()
		stop, err := attacker.Answer(t.Context(), subject, func(context.Context, []byte) []byte { return response })
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Ask(t.Context(), "b", "ping", nil, nil); err == nil || !strings.Contains(err.Error(), "the response does not open") {
			t.Errorf("a recorded response counts: %v", err)
		}
		stop()
		if err := attacker.Close(); err != nil {
			t.Error(err)
		}
	})
}

// badRequests are bodies that no node sends, sealed or not.
func badRequests(n *cluster.Node) [][]byte {
	_, other := n.Request(n.Name(), "echo", nil)
	sealed := func(text string) []byte { return n.SealRequest([]byte(text)) }
	return [][]byte{
		nil, {0}, {1}, []byte("{}"), []byte(`{"v":1,"op":"echo"}`), bytes.Repeat([]byte{1}, cluster.MaxControl+1),
		append([]byte{2}, other[1:]...), other[:len(other)-1],
		sealed(""), sealed("{"), sealed("[]"), sealed("null"), sealed("{}"), sealed(`{"v":2,"op":"echo"}`), sealed(`{"v":"1"}`),
		sealed(`{"v":1,"op":"echo"}`), sealed(`{"v":1,"op":"echo","id":"x","to":{"a":""}}`), sealed(`{"v":1,"op":7}`),
		sealed(strings.Repeat("[", 10_000)), n.Seal("lease", n.ControlSubject(), []byte(`{"v":1,"op":"echo"}`)),
	}
}

// TestBadRequests checks that requests that are malformed, too large or sealed otherwise get a
// response, are counted, and do nothing.
//
// Guarantees: G-0076.8
func TestBadRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		done := handleEcho(a)
		bad := badRequests(a.Node)
		for _, body := range bad {
			if len(a.Answer(t.Context(), body)) == 0 {
				t.Errorf("no response to %.40q", body)
			}
		}
		if r := a.Report(); r.RefusedMessages != uint64(len(bad)) || *done != 0 {
			t.Errorf("%d of %d messages were refused, %d were done", r.RefusedMessages, len(bad), *done)
		}
	})
}

// FuzzControl gives a node any bytes as a request, and as the content of one that was sealed.
func FuzzControl(f *testing.F) {
	a := cluster.Alone(options("a"))
	for _, body := range badRequests(a) {
		f.Add(body)
	}
	f.Add([]byte(`{"v":1,"id":"1","to":{"a":"x"},"op":"report","args":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, request := range [][]byte{body, a.SealRequest(body)} {
			if len(a.Answer(t.Context(), request)) == 0 {
				t.Error("no response")
			}
		}
	})
}

// TestReports checks that the reports of all nodes are collected, and what a node that does not
// answer costs.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b, c := join(t, s, "a"), join(t, s, "b"), join(t, s, "c")
		synctest.Wait()
		b.OnReport(func(r *cluster.Report) { r.Sessions, r.Exclusive = 3, []string{"x"} })
		advance(2 * time.Second)
		began := time.Now()
		all, err := a.Reports(t.Context())
		if err != nil || len(all) != 3 || time.Since(began) != 0 {
			t.Fatalf("%+v, %v, after %v", all, err, time.Since(began))
		}
		for i, name := range []string{"a", "b", "c"} {
			r := all[i]
			if r.Name != name || r.State != cluster.Ready || r.LeaseAge != 2*time.Second || r.Version != "1.0" || r.Draining || r.ClockDifference != 0 {
				t.Errorf("node %s reports %+v", name, r)
			}
		}
		if all[1].Sessions != 3 || len(all[1].Exclusive) != 1 || all[0].Sessions != 0 {
			t.Errorf("node b reports %+v", all[1])
		}
		c.engine.Cut()
		var silent *cluster.SilentError
		all, err = a.Reports(t.Context())
		if !errors.As(err, &silent) || len(silent.Nodes) != 1 || silent.Nodes[0] != "c" || len(all) != 2 || time.Since(began) > time.Second {
			t.Errorf("%+v, %v, after %v", all, err, time.Since(began))
		}
		a.engine.Cut()
		if all, err = a.Reports(t.Context()); !errors.Is(err, cluster.ErrUnavailable) || len(all) != 1 || all[0].State != cluster.Degraded {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// TestWorkIsDrainedAtTheSameTime checks that nothing that ends waits for the end of something else.
func TestWorkIsDrainedAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := join(t, clustertest.New(clustertest.Options{}), "a")
		began := time.Now()
		for range 3 {
			a.OnDrain(func(context.Context) error { <-time.NewTimer(time.Second).C; return nil })
		}
		if err := a.Drain(t.Context()); err != nil || time.Since(began) != time.Second {
			t.Errorf("the drain took %v: %v", time.Since(began), err)
		}
	})
}

// TestServersEndAtTheSameTime checks that a node with many servers that are slow to end is drained and closed as fast as one with a single server.
//
// Guarantees: G-0079.7
func TestServersEndAtTheSameTime(t *testing.T) {
	for name, end := range map[string]func(*cluster.Node, context.Context) error{"Drain": (*cluster.Node).Drain, "Close": (*cluster.Node).Close} {
		inBubble(t, func(t *testing.T, s *site) {
			a := s.add("a", cluster.UpstreamOptions{})
			for _, server := range []string{"x", "y", "z"} {
				m, user := newMachine(t), *a
				m.lasting = time.Second
				user.upstream = a.Upstream(server, m.on("a"), cluster.UpstreamOptions{})
				user.start(s)
				s.nodes[server] = &user
				s.awaitReady(server)
			}
			if got := a.Report().Exclusive; len(got) != 3 {
				t.Fatalf("the node runs %q", got)
			}
			began := time.Now()
			if err := end(a.Node, t.Context()); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took >= 2*time.Second {
				t.Errorf("%s has taken %v, and each server takes a second to end", name, took)
			}
		})
	}
}

// TestDrain checks that a node that drains says so, calls what shall end its work, and that
// another node can make it do that.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		synctest.Wait()
		drained := make(chan struct{}, 8)
		b.OnDrain(func(context.Context) error { drained <- struct{}{}; return nil })
		b.OnDrain(func(context.Context) error { return errors.New("one call did not end") })
		changes := 0
		a.OnLease(func(key string) {
			if key == "node.b" {
				changes++
			}
		})
		advance(time.Minute)
		if changes != 0 {
			t.Errorf("%d renewals were reported as changes", changes)
		}
		if err := a.DrainNode(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		<-b.Draining()
		synctest.Wait()
		if m, _ := a.Member("b"); !m.Draining || changes != 1 || len(drained) != 1 {
			t.Errorf("a knows b as %+v, after %d changes; drained %d times", m, changes, len(drained))
		}
		if b.Gone("b") || a.Gone("b") || a.Judge(b.Self()) != cluster.Alive {
			t.Error("a node that drains counts as gone")
		}
		if err := b.Drain(t.Context()); err == nil || err.Error() != "one call did not end" {
			t.Errorf("Drain: %v", err)
		}
		select {
		case <-a.Draining():
			t.Error("a drains")
		default:
		}
		if !b.Report().Draining {
			t.Error("the report of b does not say that it drains")
		}
		if err := a.DrainNode(t.Context(), "c"); !errors.Is(err, cluster.ErrNoResponder) {
			t.Errorf("a node that does not exist: %v", err)
		}
	})
}
