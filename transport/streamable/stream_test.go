package streamable

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// Guarantees: G-0022.9
func TestAnswerAsEvents(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-06-18")
	legacy := s.listen("POST", `{"jsonrpc":"2.0","id":7,"method":"notify","params":{"n":300}}`, append(posting(), session))
	modern := s.listen("POST", modernBody("notify", `"n":300,`), append(posting(), modernHeader("notify")...))
	for _, events := range []*listening{legacy, modern} {
		for n := range 300 {
			events.want(noticeLine(n))
		}
	}
}

// Guarantees: G-0022.9
func TestEndWithoutAnAnswer(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	for range 10 {
		events := s.listen("POST", modernBody("end", ""), append(posting(), modernHeader("end")...))
		if got := events.next(); got != "" {
			t.Errorf("got %q", got)
		}
	}
	if n := s.peer(t, 0).count(func(p *peer) int { return len(p.lost) }); n != 0 {
		t.Errorf("%d streams were lost", n)
	}
}

// What was sent before End still goes out.
//
// Guarantees: G-0022.9
func TestEndFlushes(t *testing.T) {
	s := newScriptedSite(t, HandlerOptions{}, newAcceptor(flushAndEnd))
	events := s.listen("POST", modernBody("x", ""), append(posting(), modernHeader("x")...))
	for n := range 50 {
		events.want(noticeLine(n))
	}
	events.wantEnd()
}

// Guarantees: G-0022.3
func TestNothingWithoutCredit(t *testing.T) {
	a := newAcceptor(respond)
	a.stingy = true
	s := newScriptedSite(t, HandlerOptions{}, a)
	first := s.pending(s.ctx, modernBody("echo", ""), modernHeader("echo")...)
	p := s.peer(t, 0)
	p.await(t, "a stream", func(p *peer) bool { return len(p.opened) == 1 })
	second := s.pending(s.ctx, modernBody("echo", ""), modernHeader("echo")...)
	p.await(t, "a stream", func(p *peer) bool { return len(p.opened) == 2 })
	if n := p.count(func(p *peer) int { return len(p.received) }); n != 0 {
		t.Fatalf("%d frames were delivered", n)
	}
	p.post(func() { p.link.Grant(2, 1) })
	if r := s.receive(second); r.status != 200 {
		t.Errorf("%+v", r)
	}
	p.post(func() { p.link.End(1) })
	if r := s.receive(first); r.status != 200 || r.body != "" {
		t.Errorf("%+v", r)
	}
	if n := p.count(func(p *peer) int { return len(p.received) }); n != 1 {
		t.Errorf("%d frames were delivered", n)
	}
}

func TestMainLeadsToTheListener(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-06-18")
	p := s.peer(t, 0)
	to := func(n int) transport.Outbound { return transport.Outbound{Frame: notice(n)} }
	if err := p.send(t, to(0)); !errors.Is(err, transport.ErrNoRoute) {
		t.Fatalf("Send to nobody: %v", err)
	}
	first := s.get(session)
	p.mustSend(t, to(1))
	first.want(noticeLine(1))
	second := s.get(session)
	first.wantEnd()
	for n := range 100 {
		p.mustSend(t, to(n))
		second.want(noticeLine(n))
	}
	second.leave()
	for p.send(t, to(0)) == nil {
		s.post(echoBody, session)
	}
	if err := p.send(t, to(0)); !errors.Is(err, transport.ErrNoRoute) {
		t.Errorf("Send to nobody: %v", err)
	}
	third := s.get(session)
	p.mustSend(t, transport.Outbound{Frame: notice(7), Last: true}) // Main has no end
	p.mustSend(t, to(8))
	for got := third.next(); got != "data: "+noticeLine(7)+"\n"; got = third.next() {
		if got != "data: "+noticeLine(0)+"\n" { // not begun to be written when its listener left
			t.Fatalf("got %q", got)
		}
	}
	third.want(noticeLine(8))
}

// A listener that does not read fills the queue; Writable comes once it reads.
func TestBusyThenWritable(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	reader := s.get(s.initialize("2025-06-18"))
	p := s.peer(t, 0)
	big := func(n int) []byte { return fmt.Appendf(nil, `{"n":%d,"pad":%q}`, n, strings.Repeat("x", 64<<10)) }
	sent := 0
	for ; sent < 1024; sent++ {
		if err := p.send(t, transport.Outbound{Frame: big(sent)}); err != nil {
			if !errors.Is(err, transport.ErrBusy) {
				t.Fatal(err)
			}
			break
		}
	}
	if sent == 1024 {
		t.Fatal("the link is never busy")
	}
	for n := range sent {
		reader.want(string(big(n)))
	}
	p.await(t, "Writable", func(p *peer) bool { return p.writable > 0 })
	p.mustSend(t, transport.Outbound{Frame: big(0)})
	reader.want(string(big(0)))
}

// Who waits for room on Main, when the listener leaves, is told, and then finds
// nobody.
func TestBusyListenerThatLeaves(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-06-18")
	reader := s.get(session)
	p := s.peer(t, 0)
	frame := []byte(strings.Repeat("1", 1<<20))
	var err error
	for err == nil {
		err = p.send(t, transport.Outbound{Tag: 9, Frame: frame})
	}
	if !errors.Is(err, transport.ErrBusy) {
		t.Fatal(err)
	}
	reader.leave()
	p.await(t, "Writable", func(p *peer) bool { return p.writable > 0 })
	for err = p.send(t, transport.Outbound{Frame: frame}); err == nil || errors.Is(err, transport.ErrBusy); {
		s.post(echoBody, session)
		err = p.send(t, transport.Outbound{Frame: frame})
	}
	if !errors.Is(err, transport.ErrNoRoute) {
		t.Errorf("Send returned %v", err)
	}
	p.await(t, "Failed", func(p *peer) bool { return len(p.failed) > 0 })
	for _, f := range p.failed {
		if f.Tag != 9 || f.Unsent {
			t.Errorf("%+v", f)
		}
	}
}

func TestFrameAboveTheLimitIsRefused(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxFrame: 1000})
	s.initialize("2025-06-18")
	var oversized *transport.OversizedError
	if err := s.peer(t, 0).send(t, transport.Outbound{Frame: make([]byte, 1001)}); !errors.As(err, &oversized) || oversized.Limit != 1000 || oversized.Size != 1001 {
		t.Errorf("Send returned %v", err)
	}
}

func TestManyExchangesAtOnce(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-06-18")
	var group sync.WaitGroup
	for caller := range 16 {
		group.Go(func() {
			for n := range 30 {
				want := fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"result":{"n":[%d,%d]}}`, caller, n)
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"echo","params":{"n":[%d,%d]}}`, caller, n)
				if r := s.post(body, session); r.status != 200 || r.body != want {
					t.Errorf("%+v, want %s", r, want)
				}
				if r := s.modern("notify", `"n":3,`); r.status != 200 || strings.Count(r.body, "data: ") != 4 {
					t.Errorf("%+v", r)
				}
				if r := s.post(`{"jsonrpc":"2.0","method":"n"}`, session); r.status != 202 {
					t.Errorf("%+v", r)
				}
			}
		})
	}
	group.Wait()
}
