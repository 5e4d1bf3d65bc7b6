package relay

import (
	"bufio"
	"context"
	"errors"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A peer is the test's side of a connection: a host, or a gateway.
type peer struct {
	t     *testing.T
	c     net.Conn
	lines chan string // closed at the end
}

// newPeer returns both sides of a connection.
func newPeer(t *testing.T) (p *peer, other net.Conn) {
	ours, other := net.Pipe()
	p = &peer{t, ours, make(chan string, 64)}
	go func() {
		defer close(p.lines)
		lines := bufio.NewScanner(ours)
		for lines.Buffer(nil, 2*mostAgain); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	return p, other
}

func (p *peer) send(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		if _, err := p.c.Write([]byte(line + "\n")); err != nil {
			p.t.Fatal(err)
		}
	}
}

// want reads as many lines as there are fragments, and checks that each has its own. It returns the last one.
func (p *peer) want(fragments ...string) (line string) {
	p.t.Helper()
	for _, fragment := range fragments {
		ok := false
		select {
		case line, ok = <-p.lines:
		case <-time.After(time.Minute): // of the test's own clock
		}
		if !ok || !strings.Contains(line, fragment) {
			p.t.Fatalf("%q (%v), want %q", line, ok, fragment)
		}
	}
	return line
}

// nothing checks that nothing more has come.
func (p *peer) nothing() {
	p.t.Helper()
	synctest.Wait()
	select {
	case line, ok := <-p.lines:
		if ok {
			p.t.Errorf("there came %s", line)
		}
	default:
	}
}

// A theatre has a relay between a host and gateways that the test plays.
type theatre struct {
	host     *peer
	gateways chan *peer // that were reached
	ended    chan error

	mu       sync.Mutex
	attempts int
	broken   error // of the next attempts
	said     []string
}

// fail makes the next attempts fail; nil: they succeed.
func (s *theatre) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

// wantAttempts checks how often a gateway was reached for, and what was said last.
func (s *theatre) wantAttempts(n int, said string) {
	s.host.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempts != n || !strings.Contains(s.said[len(s.said)-1], said) {
		s.host.t.Errorf("%d attempts, %q", s.attempts, s.said)
	}
}

func (s *theatre) say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, text)
}

// reach is Relay.Reach.
func (s *theatre) reach(ctx context.Context) (transport.Link, error) {
	s.mu.Lock()
	s.attempts++
	broken := s.broken
	s.mu.Unlock()
	if broken != nil {
		return nil, broken
	}
	gateway, other := newPeer(s.host.t)
	s.gateways <- gateway
	return stdio.Pair(other, other).Open(ctx)
}

// play runs a test with a relay, and ends it by the end of its host. The first attempts to reach a gateway fail with an error, if there is one.
func play(t *testing.T, broken error, f func(t *testing.T, s *theatre)) {
	synctest.Test(t, func(t *testing.T) {
		host, other := newPeer(t)
		s := &theatre{host: host, gateways: make(chan *peer, 8), ended: make(chan error, 1), broken: broken}
		link, err := (&stdio.Server{In: other, Out: other}).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := &Relay{Say: s.say, Reach: s.reach}
		go func() { s.ended <- r.Run(context.WithoutCancel(t.Context()), link) }()
		f(t, s)
		host.c.Close()
		later(time.Minute)
		select {
		case <-s.ended:
		default:
			t.Error("the relay has not ended")
		}
	})
}

// later lets time pass, on the test's own clock.
func later(d time.Duration) { <-time.NewTimer(d).C }

const (
	initialize  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"host","version":"7"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	agreement   = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},"serverInfo":{"name":"g","version":"1"}}`
)

func result(id, value string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":` + value + `}`
}

func request(id, method, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`
}

// idOf returns the id of a message, as JSON.
func idOf(line string) string {
	return regexp.MustCompile(`"id":("[^"]*"|\d+)`).FindStringSubmatch(line)[1]
}

// begin lets the host initialize a session with a gateway.
func (s *theatre) begin() (gateway *peer) {
	s.host.send(initialize)
	gateway = <-s.gateways
	gateway.want(initialize)
	gateway.send(result("1", agreement))
	s.host.want(agreement)
	s.host.send(initialized)
	gateway.want(initialized)
	return gateway
}

// TestTheSessionOfAHostGoesOn ends a gateway while the host and the gateway wait for each other. The next gateway gets the initialize of the host,
// and all that shall hold; the host sees that a call has failed, and what it may have missed.
//
// Guarantees: G-0092.3
func TestTheSessionOfAHostGoesOn(t *testing.T) {
	play(t, nil, func(t *testing.T, s *theatre) {
		first := s.begin()
		s.host.send(request("2", "logging/setLevel", `{"level":"info"}`), request("3", "resources/subscribe", `{"uri":"a:b"}`))
		first.want(`"id":2`, `"id":3`)
		first.send(result("2", "{}"), result("3", "{}"))
		s.host.want(`"id":2`, `"id":3`)
		first.send(request("1", "elicitation/create", `{"message":"first?"}`))
		question := idOf(s.host.want("first?"))
		s.host.send(request("4", "tools/call", `{"name":"x"}`), request("5", "tools/list", `{"_meta":{"progressToken":9}}`), request("6", "tools/call", `{"name":"y"}`))
		s.host.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":6}}`)
		first.want(`"id":4`, `"id":5`, `"id":6`, "notifications/cancelled")
		later(time.Hour)
		first.c.Close()

		s.host.want(`"id":4`, `"notifications/cancelled","params":{"requestId":`+question)
		second := <-s.gateways
		greeting := second.want(`"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"host","version":"7"}}`)
		second.nothing()
		s.host.send(result(question, `{"action":"late"}`))
		second.send(result(idOf(greeting), agreement))
		second.want(initialized)
		level, subscription := idOf(second.want(`"method":"logging/setLevel","params":{"level":"info"}`)), idOf(second.want(`"method":"resources/subscribe","params":{"uri":"a:b"}`))
		second.want(request("5", "tools/list", `{"_meta":{"progressToken":9}}`))
		second.send(result(level, "{}"), result(subscription, "{}"), result("5", `{"tools":[]}`))
		s.host.want("notifications/tools/list_changed", `"method":"notifications/resources/updated","params":{"uri":"a:b"}`, result("5", `{"tools":[]}`))

		second.send(request("1", "elicitation/create", `{"message":"second?"}`), request("2", "ping", "{}"))
		again := idOf(s.host.want("second?"))
		if again == question {
			t.Errorf("two questions have the id %s", again)
		}
		s.host.send(result(again, `{"action":"accept"}`))
		second.want(result("1", `{"action":"accept"}`)) // and not the late answer
		ping := idOf(s.host.want("ping"))
		second.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		s.host.want(`{"requestId":` + ping + `}`)
	})
}

// TestWhatALeavingGatewayHasRefused checks that a call which a gateway has refused since it shuts down, and so has not executed, goes to the next one, or says that it
// was not executed. A gateway that lives passes the same refusal of a server on.
//
// Guarantees: G-0092.3
func TestWhatALeavingGatewayHasRefused(t *testing.T) {
	refusal := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32050,"message":"overloaded: shutting down"}}`
	}
	call := func(id string) string { return request(id, "tools/call", `{"name":"x"}`) }
	play(t, nil, func(t *testing.T, s *theatre) {
		first := s.begin()
		s.host.send(call("2"), call("3"))
		first.want(call("2"), call("3"))
		first.send(refusal("2"))
		first.send(`{"jsonrpc":"2.0","id":` + idOf(first.want(methodLeaving)) + `,"error":{"code":-32601,"message":"method not found"}}`)
		s.host.want(refusal("2")) // a server's
		later(time.Hour)

		s.host.send(call("4"), request("5", "tools/call", `{"name":"`+strings.Repeat("x", mostAgain)+`"}`))
		first.want(call("4"), `"id":5`)
		first.send(refusal("4"), refusal("5"))
		first.send(refusal(idOf(first.want(methodLeaving))))
		s.host.want(refusal("5")) // nobody keeps it
		s.host.send(call("6"))
		first.want(call("6"))
		first.send(refusal("6"))
		s.host.nothing()
		first.nothing()
		first.send(result("3", `{"content":[]}`)) // which it lets finish
		s.host.want(`"id":3,"result"`)
		first.c.Close()
		second := <-s.gateways
		second.send(result(idOf(second.want("initialize")), agreement))
		second.want(initialized, call("4"), call("6"))
		second.send(result("4", `{"content":[]}`), refusal("6"))
		s.host.want("list_changed", `"id":4,"result"`)
		later(time.Hour)

		s.fail(errors.New("no such file"))
		second.want(methodLeaving)
		second.c.Close()
		if text := s.host.want(`"id":6`); !strings.Contains(text, `"delivery":"not sent"`) {
			t.Error(text)
		}
		s.host.nothing()
	})
}

// TestAServerThatEndsRefusesNoCall has a server, as a gateway has one, end while it finishes a call. It refuses the next call of the host, which goes to the server after it.
//
// Guarantees: G-0092.3
func TestAServerThatEndsRefusesNoCall(t *testing.T) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		t.Run(version, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { endWhileCalled(t, version) }) })
	}
}

func endWhileCalled(t *testing.T, version string) {
	finish := make(chan struct{})
	servers := make(chan *server.Server, 2)
	reach := func(ctx context.Context) (transport.Link, error) {
		s := server.New(protocol.Implementation{Name: "g", Version: "1"}, server.Options{})
		server.AddTool(s, protocol.Tool{Name: "wait"}, func(context.Context, struct{}) (string, error) {
			<-finish
			return "done", nil
		})
		ours, theirs := net.Pipe()
		link, err := stdio.Pair(theirs, theirs).Open(context.WithoutCancel(ctx))
		if err != nil {
			return nil, err
		}
		go func() { _ = s.ServeLink(context.WithoutCancel(ctx), link) }() // it ends with its server
		servers <- s
		return stdio.Pair(ours, ours).Open(ctx)
	}
	host, other := newPeer(t)
	link, err := (&stdio.Server{In: other, Out: other}).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- (&Relay{Say: func(text string) { t.Error(text) }, Reach: reach}).Run(context.WithoutCancel(t.Context()), link)
	}()
	meta := ""
	if version == protocol.Latest {
		meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"` + version + `","io.modelcontextprotocol/clientInfo":{"name":"host","version":"7"},"io.modelcontextprotocol/clientCapabilities":{}}`
	} else {
		host.send(initialize)
		host.want(`"id":1,"result"`)
		host.send(initialized)
	}
	call := func(id string) { host.send(request(id, "tools/call", `{"name":"wait"`+meta+`}`)) }
	call("2")
	later(time.Minute) // the server has proven itself
	first := <-servers
	closed := make(chan error, 1)
	go func() { closed <- first.Close(t.Context()) }()
	synctest.Wait()
	call("3")
	host.nothing()
	close(finish)
	host.want(`"id":2,"result"`)
	if version != protocol.Latest {
		host.want("list_changed")
	}
	host.want(`"id":3,"result"`)
	host.c.Close()
	<-ended
	if err := errors.Join(<-closed, (<-servers).Close(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestARequestIsSentAgainOnce checks that a request which ends each gateway does not end them all. A subscription goes on.
//
// Guarantees: G-0092.3
func TestARequestIsSentAgainOnce(t *testing.T) {
	const read, listen = "resources/read", "subscriptions/listen"
	play(t, nil, func(t *testing.T, s *theatre) {
		s.host.send(request("1", read, `{"uri":"a:b"}`), request("2", listen, "{}"))
		for range 2 {
			gateway := <-s.gateways
			gateway.want(read, listen)
			later(time.Hour)
			gateway.c.Close()
		}
		s.host.want(`"id":1,"error"`)
		(<-s.gateways).want(listen)
		s.host.nothing()
	})
}

// TestBatches checks that each message of a batch is passed on and answered, also when the gateway is lost and when there is none. A revision
// without batches has none, and what is no batch is for the gateway.
//
// Guarantees: G-0092.3, G-0092.5
func TestBatches(t *testing.T) {
	batch := func(of ...string) string { return "[" + strings.Join(of, ",") + "]" }
	call := func(id string) string { return request(id, "tools/call", `{"name":"x"}`) }
	play(t, nil, func(t *testing.T, s *theatre) {
		s.host.send(initialize)
		gateway := <-s.gateways
		gateway.want(initialize)
		gateway.send(result("1", strings.ReplaceAll(agreement, "2025-11-25", revision.Since(revision.Batches))))
		s.host.want("protocolVersion")
		gateway.send(request("7", "roots/list", "{}"))
		question := idOf(s.host.want("roots/list"))
		s.host.send(batch(initialized, call("2"), result(question, `{"roots":[]}`), call("3")))
		gateway.want(initialized, call("2"), result("7", `{"roots":[]}`), call("3"))
		gateway.send(result("3", `{"content":[]}`))
		s.host.want(`"id":3`)
		s.host.send("[]", batch(call("4"), "5"))
		gateway.want("[]", batch(call("4"), "5"))
		later(time.Hour)
		s.fail(errors.New("no such file"))
		gateway.c.Close()
		s.host.want(`"id":2`)
		s.host.send(batch(call("5"), initialized, call("6")))
		s.host.want(`"id":5`, `"id":6`)
		s.host.nothing()
	})
	play(t, nil, func(t *testing.T, s *theatre) {
		gateway := s.begin()
		s.host.send(batch(call("2")))
		gateway.want(batch(call("2")))
	})
}

// TestWhatALostCallSays checks the answers to calls of tools and to other requests, of both eras.
//
// Guarantees: G-0092.3
func TestWhatALostCallSays(t *testing.T) {
	const modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	play(t, nil, func(t *testing.T, s *theatre) {
		gateway := <-s.gateways
		s.host.send(request("1", "tools/call", `{"name":"x",`+modern+`}`), request("2", "tools/call", `{"name":"x"}`), request("3", "tools/call", `{"name":"x","task":{}}`), request("4", "tasks/cancel", `{}`))
		gateway.want(`"id":1`, `"id":2`, `"id":3`, `"id":4`)
		later(time.Hour)
		s.fail(errors.New("no such file"))
		gateway.c.Close()
		if text := s.host.want(`"id":1`); !strings.Contains(text, `"resultType":"complete"`) || !strings.Contains(text, `"isError":true`) || !strings.Contains(text, `"delivery":"unknown"`) || !strings.Contains(text, "It may have been executed") {
			t.Error(text)
		}
		if text := s.host.want(`"id":2`); strings.Contains(text, "resultType") || !strings.Contains(text, `"isError":true`) {
			t.Error(text)
		}
		s.host.want(`"id":3,"error":{"code":-32603`, `"id":4,"error":{"code":-32603`)
		s.host.send(request("5", "tools/call", `{"name":"x",`+modern+`}`), initialized, result(`"q1"`, "{}"))
		if text := s.host.want(`"id":5`); !strings.Contains(text, "no such file") || !strings.Contains(text, `"delivery":"not sent"`) || !strings.Contains(text, "It was not executed") {
			t.Error(text)
		}
		s.host.nothing()
	})
}

// TestAModernHostGoesOnListening checks that its subscription goes to the next gateway, and that it learns what it may have missed.
//
// Guarantees: G-0092.3
func TestAModernHostGoesOnListening(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/subscriptionId":1}`
	const acknowledged = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{` + meta + `,"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:b"]}}}`
	listen := request("1", "subscriptions/listen", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"notifications":{"toolsListChanged":true}}`)
	play(t, nil, func(t *testing.T, s *theatre) {
		s.host.send(listen)
		first := <-s.gateways
		first.want(listen)
		first.send(acknowledged)
		s.host.want(acknowledged)
		later(time.Hour)
		first.c.Close()
		second := <-s.gateways
		second.want(listen)
		second.send(acknowledged)
		s.host.want(`"notifications/tools/list_changed","params":{`+meta, `"notifications/resources/updated","params":{`+meta+`,"uri":"a:b"`)
		s.host.nothing()
	})
}

// TestNoGatewayIsReached checks that a request is told why, that the next one tries again, and that a gateway that ends at once is not
// started in a loop.
//
// Guarantees: G-0092.5
func TestNoGatewayIsReached(t *testing.T) {
	play(t, errors.New("mcp.json: a mistake"), func(t *testing.T, s *theatre) {
		s.host.send(initialize)
		s.host.want(`"id":1,"error":{"code":-32603,"message":"the gateway is away: mcp.json: a mistake`)
		s.host.send(request("2", "ping", "{}"))
		s.host.want(`"id":2,"error"`)
		s.wantAttempts(1, "a mistake")
		later(time.Minute)
		s.fail(nil)
		first := s.begin()
		first.c.Close()
		later(time.Minute)
		s.wantAttempts(2, "at once")
		s.host.send(request("3", "ping", "{}"))
		second := <-s.gateways
		greeting := idOf(second.want("initialize"))
		second.send(result(greeting, strings.ReplaceAll(agreement, "2025-11-25", "2025-06-18")))
		s.host.want(`start the host again`)
	})
	play(t, nil, func(t *testing.T, s *theatre) { // a gateway that does not answer
		first := s.begin()
		later(time.Hour)
		first.c.Close()
		second := <-s.gateways
		second.want("initialize")
		s.host.send(request("3", "tools/call", "{}"))
		s.host.want("has not answered initialize")
	})
}

// TestTheHostLeaves checks that what it has asked is answered before its relay ends, if that does not take long.
//
// Guarantees: G-0092.5
func TestTheHostLeaves(t *testing.T) {
	for name, answers := range map[string]bool{"answered": true, "never answered": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, host := net.Pipe()
				out, other := newPeer(t)
				link, err := (&stdio.Server{In: in, Out: other}).Open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				gateway, inside := newPeer(t)
				r := &Relay{Say: func(string) {}, Reach: func(ctx context.Context) (transport.Link, error) { return stdio.Pair(inside, inside).Open(ctx) }}
				ended := make(chan error, 1)
				go func() { ended <- r.Run(t.Context(), link) }()
				_, _ = host.Write([]byte(request("1", "tools/call", `{"name":"x"}`) + "\n"))
				gateway.want(`"id":1`)
				host.Close()
				began := time.Now()
				if answers {
					gateway.send(result("1", `{"content":[]}`))
					out.want(result("1", `{"content":[]}`))
				}
				if err := <-ended; err != nil || answers != (time.Since(began) < time.Second) || time.Since(began) > 10*time.Second {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				out.c.Close()
				gateway.c.Close()
			})
		})
	}
}

// TestAHostThatHasLeftIsNotServedForLong checks that a relay ends, also if its host has closed its side and reads nothing, or if it has lost its
// gateway and the next one does not answer.
//
// Guarantees: G-0092.5
func TestAHostThatHasLeftIsNotServedForLong(t *testing.T) {
	for name, leave := range map[string]func(host net.Conn, gateways chan *peer){
		"reads nothing": func(host net.Conn, gateways chan *peer) {
			gateway := <-gateways
			go func() {
				for { // more than the link to the host has room for
					if _, err := gateway.c.Write([]byte(initialized + "\n")); err != nil {
						return
					}
				}
			}()
			synctest.Wait()
			host.Close()
		},
		"loses its gateway": func(host net.Conn, gateways chan *peer) {
			gateway := <-gateways
			host.Write([]byte(initialize + "\n"))
			gateway.want(initialize)
			gateway.send(result("1", agreement))
			host.Write([]byte(request("2", "tools/list", "{}") + "\n"))
			gateway.want(`"id":2`)
			host.Close()
			later(4 * time.Second)
			gateway.c.Close()
			(<-gateways).want("initialize")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, host := net.Pipe()
				out, unread := net.Pipe()
				link, err := (&stdio.Server{In: in, Out: out}).Open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				s := &theatre{host: &peer{t: t}, gateways: make(chan *peer, 8)}
				ended := make(chan error, 1)
				go func() { ended <- (&Relay{Say: s.say, Reach: s.reach}).Run(t.Context(), link) }()
				leave(host, s.gateways)
				later(9 * time.Second) // 5 for what was asked, and what it takes to close two links
				select {
				case <-ended:
				default:
					t.Error("the relay has not ended")
				}
				unread.Close()
			})
		})
	}
}
