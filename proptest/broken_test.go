package proptest_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// brokenVariable makes the test binary run one suite on a transport that is
// broken on purpose, and so fail.
const brokenVariable = "BOWLINE_PROPTEST_BROKEN"

// A violation is one way to break a transport, and the suite that detects it.
type violation struct {
	name   string
	apply  func(*brokenLink)
	suite  func(*testing.T, func(*testing.T, conn.Handler) transport.Transport)
	output string // part of the failure's message
}

func violations() []violation {
	withEcho := func(suite func(*testing.T, transport.Transport, proptest.Options)) func(*testing.T, func(*testing.T, conn.Handler) transport.Transport) {
		return func(t *testing.T, peer func(*testing.T, conn.Handler) transport.Transport) {
			suite(t, peer(t, proptest.EchoHandler()), proptest.Options{})
		}
	}
	soak := func(t *testing.T, peer func(*testing.T, conn.Handler) transport.Transport) {
		proptest.Soak(t, peer, proptest.Options{Calls: 5_000})
	}
	soakOfAsks := func(t *testing.T, peer func(*testing.T, conn.Handler) transport.Transport) {
		proptest.Soak(t, peer, proptest.Options{Calls: 5_000, Asks: true})
	}
	soakInRealTime := func(t *testing.T, peer func(*testing.T, conn.Handler) transport.Transport) {
		proptest.Soak(t, peer, proptest.Options{Calls: 160, Concurrent: 10, RealTime: true, Window: time.Millisecond, Conn: conn.Options{Tuning: conn.Tuning{RequestTimeout: 10 * time.Millisecond}}})
	}
	withoutTransport := func(suite func(*testing.T)) func(*testing.T, func(*testing.T, conn.Handler) transport.Transport) {
		return func(t *testing.T, _ func(*testing.T, conn.Handler) transport.Transport) { suite(t) }
	}
	brokenWatch := func(watch func(map[string]string, func(map[string]string) bool) bool) func(*testing.T) {
		return storeContract(func() *brokenStore { return &brokenStore{watch: watch} })
	}
	return []violation{
		{"the third call gets the result of another", func(b *brokenLink) { b.receive = swapResult }, withEcho(proptest.Correlation), "which is the result of another call"},
		{"the third call gets the result of another, in a soak", func(b *brokenLink) { b.receive = swapResult }, soak, `call {"call":3} got {"call":4}`},
		{"a goroutine is left", func(b *brokenLink) { b.close = leakGoroutine }, withEcho(proptest.NoLeaks), "blocked goroutines remain"},
		{"a request that was not cancelled is refused", func(b *brokenLink) { b.receive = refuseCall }, withEcho(proptest.CancelIdempotent), "the peer refused call"},
		{"close takes too long", func(b *brokenLink) { b.close = closeTooLate }, withEcho(proptest.StopAnywhere), "still running after their context ended: closing the link"},
		{"a link that is lost is not replaced", func(b *brokenLink) { b.maxOpens = 1 }, withEcho(proptest.Restart), "another link never came"},
		{"requests are sent twice", func(b *brokenLink) { b.send = sendTwice }, soak, "was sent 1 times, and answered 2 times"},
		{"sent requests are reported as unsent", func(b *brokenLink) { b.reportUnsent = true }, soak, "it was not sent, and executed"},
		{"nothing is answered", func(b *brokenLink) { b.send = dropFrame }, soakInRealTime, "0 calls were answered, and not 20"},
		{"answers do not come from the peer", func(b *brokenLink) { b.send = inventResult }, soak, "it was answered, and not executed"},
		{"the peer gets the answer to another ask", func(b *brokenLink) { b.send = swapAnswer }, soakOfAsks, `the peer sent ask {"ask":3}, and got {"ask":4}`},
		{"each ask of the peer is delivered twice", func(b *brokenLink) { b.receive = (&repeatedAsks{link: b}).receive }, soakOfAsks, "asks were served again, and"},
		{"a link's Close does not return", nil, withoutTransport(linkContract(neverReturn, 100*time.Millisecond)), "Close did not return"},
		{"the other side learns of a link by its first message", nil, withoutTransport(allOf(acceptedLate, 10*time.Millisecond)), "Open succeeded, and accept was not called within 10ms. Call it when the link opens;"},
		{"a link leaves a goroutine", nil, withoutTransport(linkContract(leakOneGoroutine(), time.Minute)), "goroutines are left, started by github.com/bowline-mcp/bowline/proptest_test.leakGoroutine:"},
		{"a frame of a second stream has the wrong number", nil, withoutTransport(streamContract(renumber, ignore)), "arrived instead of [0 1"},
		{"a second stream does not wait for credit", nil, withoutTransport(streamContract(deliverTwice, ignore)), "frames delivered against "},
		{"a frame follows the end of a second stream", nil, withoutTransport(streamContract(deliverAfterEnd, ignore)), "a frame came after its end"},
		{"a second stream ends twice", nil, withoutTransport(streamContract(loseAfterEnd, ignore)), "was lost after its end"},
		{"a frame of a second stream follows the loss of the link", nil, withoutTransport(streamContract(deliver, deliver)), "Receive after Lost"},
		{"every claim is granted", nil, withoutTransport(brokenClaim(grantEveryClaim)), "16 of 16 claims have the name"},
		{"names are compared without case", nil, withoutTransport(brokenClaim(ignoreCase)), `"A" is free, and a claim by holder 1 got`},
		{"a claim is made after its context has ended", nil, withoutTransport(brokenClaim(ignoreContext)), "made after its context had ended"},
		{"a release ends the claim of another", nil, withoutTransport(storeContract(releasesAny)), `"n" is first's, and a claim by another got <nil>`},
		{"a watch begins without the present names", nil, withoutTransport(brokenWatch(emptyFirst)), "and a watch began with map[]"},
		{"a watch reports earlier holders again", nil, withoutTransport(brokenWatch(oldHolders)), "were reported as ["},
	}
}

// linkContract runs LinkContract on links in memory whose Close calls closes first.
func linkContract(closes func(time.Duration) time.Duration, guard time.Duration) func(*testing.T) {
	return func(t *testing.T) {
		if err := flag.Set("rapid.shrinktime", "0s"); err != nil {
			t.Fatal(err)
		}
		proptest.LinkContract(t, func(*testing.T) (a, b transport.Link) {
			a, b = inmem.Pipe(inmem.Options{})
			return &brokenLink{Link: a, close: closes}, b
		}, proptest.ContractOptions{Guard: guard})
	}
}

// allOf runs All with a guard.
func allOf(listen func(*testing.T, func(transport.Link)) transport.Transport, guard time.Duration) func(*testing.T) {
	return func(t *testing.T) {
		proptest.All(t, proptest.Harness{Listen: listen, Options: proptest.Options{Guard: guard}})
	}
}

// acceptedLate returns a transport whose other side learns of a link by its first message.
func acceptedLate(_ *testing.T, accept func(transport.Link)) transport.Transport {
	return opener(func(context.Context) (transport.Link, error) {
		a, b := inmem.Pipe(inmem.Options{})
		learn := sync.OnceFunc(func() { accept(b) })
		return &brokenLink{Link: a, send: func(l *brokenLink, o transport.Outbound) error {
			learn()
			return l.Link.Send(o)
		}}, nil
	})
}

// Each suite fails on a transport that violates what the suite checks.
func TestSuitesSeeBreaches(t *testing.T) {
	for _, b := range violations() {
		t.Run(b.name, func(t *testing.T) {
			if os.Getenv(brokenVariable) != "" {
				b.suite(t, b.peer)
				return
			}
			t.Parallel()
			if output := runBroken(t, t.TempDir(), b.name, "-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=0s"); !strings.Contains(output, b.output) {
				t.Errorf("the failure is not the expected one:\n%s", output)
			}
		})
	}
}

// A seed finds and shrinks the same failure again. So does the file that rapid has written.
func TestFailureIsReplayed(t *testing.T) {
	t.Parallel()
	dir, name := t.TempDir(), violations()[0].name
	first := failureOf(runBroken(t, dir, name, "-rapid.seed=7"))
	files, err := filepath.Glob(filepath.Join(dir, "testdata", "rapid", "*", "*.fail"))
	if err != nil || len(files) != 1 {
		t.Fatalf("rapid wrote the files %v (%v)", files, err)
	}
	for _, replay := range []string{"-rapid.seed=7", "-rapid.failfile=" + files[0]} {
		if again := failureOf(runBroken(t, dir, name, replay, "-rapid.nofailfile")); !slices.Equal(again, first) {
			t.Errorf("the first failure was\n%s\nand with %s\n%s", strings.Join(first, "\n"), replay, strings.Join(again, "\n"))
		}
	}
	for _, line := range []string{"draw calls: 3", "draw faults: []fault.Fault{}"} {
		if !slices.Contains(first, line) {
			t.Errorf("the history was not shrunk:\n%s", strings.Join(first, "\n"))
		}
	}
}

// failureOf returns the lines of a failed history, and of its failure.
func failureOf(output string) (lines []string) {
	_, history, _ := strings.Cut(output, "Failed test output:")
	for _, line := range strings.Split(history, "\n") {
		if drawn := historyLine.FindString(line); drawn != "" {
			lines = append(lines, drawn)
		}
	}
	return lines
}

var historyLine = regexp.MustCompile(`draw .*|call \{.*`)

// runBroken runs a suite on a broken transport in another process, and returns what
// the process has printed.
func runBroken(t *testing.T, dir, name string, args ...string) (output string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	run := "^TestSuitesSeeBreaches$/^" + regexp.QuoteMeta(strings.ReplaceAll(name, " ", "_")) + "$"
	child := exec.CommandContext(ctx, self, append([]string{"-test.run=" + run, "-rapid.shrinktime=5s", "-test.failfast"}, args...)...)
	child.Env, child.Dir = append(os.Environ(), brokenVariable+"=1", "GORACE=atexit_sleep_ms=0"), dir
	printed, err := child.CombinedOutput()
	if err == nil {
		t.Errorf("the suite did not fail:\n%s", printed)
	}
	return string(printed)
}

// peer returns a transport in memory that is broken.
func (b violation) peer(t *testing.T, h conn.Handler) transport.Transport {
	inner := peerWith(t, h)
	opens := 0
	return opener(func(ctx context.Context) (transport.Link, error) {
		link, err := inner.Open(ctx)
		if err != nil {
			return nil, err
		}
		broken := &brokenLink{Link: link}
		b.apply(broken)
		if opens++; broken.maxOpens > 0 && opens > broken.maxOpens {
			link.Close(0)
			return nil, fmt.Errorf("no other link may be opened")
		}
		return broken, nil
	})
}

type opener func(context.Context) (transport.Link, error)

func (o opener) Open(ctx context.Context) (transport.Link, error) { return o(ctx) }

// A brokenLink is a link that violates the contract.
type brokenLink struct {
	transport.Link
	send         func(*brokenLink, transport.Outbound) error // nil: correctly
	receive      func(frame []byte) []byte
	close        func(time.Duration) time.Duration
	maxOpens     int  // how many links may be opened; 0: any number
	reportUnsent bool // report sent requests as unsent

	mu       sync.Mutex
	receiver transport.Receiver
	sent     []transport.Tag
}

func (b *brokenLink) Bind(r transport.Receiver) {
	b.receiver = r
	b.Link.Bind(brokenReceiver{r, b})
}

func (b *brokenLink) Send(o transport.Outbound) error {
	b.mu.Lock()
	if o.Tag != 0 {
		b.sent = append(b.sent, o.Tag)
	}
	b.mu.Unlock()
	if b.send != nil {
		return b.send(b, o)
	}
	return b.Link.Send(o)
}

func (b *brokenLink) Close(grace time.Duration) error {
	if b.close != nil {
		grace = b.close(grace)
	}
	return b.Link.Close(grace)
}

type brokenReceiver struct {
	transport.Receiver
	*brokenLink
}

func (b brokenReceiver) Receive(in transport.Inbound) {
	if b.receive != nil {
		in.Frame = b.receive(in.Frame)
	}
	b.Receiver.Receive(in)
}

func (b brokenReceiver) Lost(loss transport.Loss) {
	if b.mu.Lock(); b.reportUnsent {
		loss.Unsent = b.sent
	}
	b.mu.Unlock()
	b.Receiver.Lost(loss)
}

func swapResult(frame []byte) []byte {
	return bytes.Replace(frame, []byte(`{"call":3}`), []byte(`{"call":4}`), 1)
}

func refuseCall(frame []byte) []byte {
	return bytes.Replace(frame, []byte(`"result":{"call":2}`), []byte(`"error":{"code":-32800,"message":"cancelled"}`), 1)
}

func sendTwice(b *brokenLink, o transport.Outbound) error {
	if err := b.Link.Send(o); err != nil || o.Tag == 0 {
		return err
	}
	b.Link.Send(transport.Outbound{Frame: bytes.Clone(o.Frame)})
	return nil
}

func swapAnswer(b *brokenLink, o transport.Outbound) error {
	o.Frame = bytes.Replace(o.Frame, []byte(`"result":{"ask":3}`), []byte(`"result":{"ask":4}`), 1)
	return b.Link.Send(o)
}

// repeatedAsks delivers each request of the peer twice.
type repeatedAsks struct{ link *brokenLink }

func (a *repeatedAsks) receive(frame []byte) []byte {
	if bytes.Contains(frame, []byte(`"method":"ask"`)) {
		go a.link.receiver.Receive(transport.Inbound{Frame: bytes.Clone(frame)})
	}
	return frame
}

func dropFrame(*brokenLink, transport.Outbound) error { return nil }

func inventResult(b *brokenLink, o transport.Outbound) error {
	params := regexp.MustCompile(`\{"call":\d+\}`).Find(o.Frame)
	if o.Tag == 0 || o.Tag%10 > 0 || params == nil {
		return b.Link.Send(o)
	}
	go b.receiver.Receive(transport.Inbound{Frame: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":%s}`, o.Tag, params)})
	return nil
}

// neverReturn does not return if it gets a positive grace.
func neverReturn(grace time.Duration) time.Duration {
	if grace > 0 {
		select {}
	}
	return grace
}

func leakGoroutine(grace time.Duration) time.Duration {
	go func() { <-make(chan struct{}) }()
	return grace
}

// leakOneGoroutine leaves one goroutine for all links that are closed.
func leakOneGoroutine() func(time.Duration) time.Duration {
	var once sync.Once
	return func(grace time.Duration) time.Duration {
		once.Do(func() { leakGoroutine(grace) })
		return grace
	}
}

func closeTooLate(grace time.Duration) time.Duration {
	timer := time.NewTimer(time.Minute)
	<-timer.C
	return grace
}
