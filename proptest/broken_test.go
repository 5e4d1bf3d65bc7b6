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
// broken on purpose, and fail.
const brokenVariable = "BOWLINE_PROPTEST_BROKEN"

// A breach is one way to break a transport, and the suite that sees it.
type breach struct {
	name  string
	bend  func(*bent)
	suite func(*testing.T, func(*testing.T, conn.Handler) transport.Transport)
	says  string // what the failure says
}

func breaches() []breach {
	over := func(suite func(*testing.T, transport.Transport, proptest.Options)) func(*testing.T, func(*testing.T, conn.Handler) transport.Transport) {
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
		proptest.Soak(t, peer, proptest.Options{Calls: 160, Concurrent: 10, RealTime: true, Window: time.Millisecond, Conn: conn.Options{RequestTimeout: 10 * time.Millisecond}})
	}
	names := func(suite func(*testing.T)) func(*testing.T, func(*testing.T, conn.Handler) transport.Transport) {
		return func(t *testing.T, _ func(*testing.T, conn.Handler) transport.Transport) { suite(t) }
	}
	watching := func(watch func(map[string]string, func(map[string]string) bool) bool) func(*testing.T) {
		return storeContract(func() *bentStore { return &bentStore{watch: watch} })
	}
	return []breach{
		{"the third answer is another's", func(b *bent) { b.receive = anothers }, over(proptest.Correlation), "which is another's"},
		{"the third answer is another's, in a soak", func(b *bent) { b.receive = anothers }, soak, `call {"call":3} got {"call":4}`},
		{"a goroutine is left", func(b *bent) { b.close = leave }, over(proptest.NoLeaks), "blocked goroutines remain"},
		{"a request nobody cancels is refused", func(b *bent) { b.receive = refused }, over(proptest.CancelIdempotent), "the peer refused call"},
		{"close takes too long", func(b *bent) { b.close = tarry }, over(proptest.StopAnywhere), "still running after their context ended: closing the link"},
		{"a link that is lost is not replaced", func(b *bent) { b.opens = 1 }, over(proptest.Restart), "another link never came"},
		{"requests are sent twice", func(b *bent) { b.send = again }, soak, "was sent 1 times, and answered 2 times"},
		{"what was sent is said to be unsent", func(b *bent) { b.lie = true }, soak, "it was not sent, and executed"},
		{"nothing is answered", func(b *bent) { b.send = swallowed }, soakInRealTime, "0 calls were answered, and not 20"},
		{"answers are made up", func(b *bent) { b.send = madeUp }, soak, "it was answered, and not executed"},
		{"the peer is answered what another asked", func(b *bent) { b.send = misanswered }, soakOfAsks, `the peer asked {"ask":3}, and got {"ask":4}`},
		{"what the peer asks comes twice", func(b *bent) { b.receive = (&asked{of: b}).again }, soakOfAsks, "asks were served again, and"},
		{"a link's Close does not return", nil, names(linkContract(hang)), "Close did not return"},
		{"a link leaves a goroutine", nil, names(linkContract(leaveOnce())), "goroutines are left, started by github.com/bowline-mcp/bowline/proptest_test.leave:"},
		{"a frame of a second stream is another", nil, names(streamContract(misnumber, silent)), "arrived where [0 1"},
		{"a second stream does not wait for credit", nil, names(streamContract(twice, silent)), "frames delivered against 1 credits"},
		{"a second stream goes on after its end", nil, names(streamContract(goOn, silent)), "a frame came after its end"},
		{"a second stream ends twice", nil, names(streamContract(endAgain, silent)), "was lost after its end"},
		{"a second stream goes on after the link is lost", nil, names(streamContract(intact, intact)), "Receive after Lost"},
		{"every claim is granted", nil, names(claiming(generous)), "16 of 16 claims have the name"},
		{"names are alike in either case", nil, names(claiming(caseless)), `"A" is free, and a claim by holder 1 got`},
		{"a claim is made too late", nil, names(claiming(patient)), "made after its context had ended"},
		{"a release is of whatever claim", nil, names(storeContract(releasesAny)), `"n" is first's, and a claim by another got <nil>`},
		{"a watch begins with nothing", nil, names(watching(nothingFirst)), "and a watch began with map[]"},
		{"a watch goes backwards", nil, names(watching(backwards)), "were told as ["},
	}
}

// linkContract runs LinkContract on links in memory that close like this.
func linkContract(closes func(time.Duration) time.Duration) func(*testing.T) {
	return func(t *testing.T) {
		if err := flag.Set("rapid.shrinktime", "0s"); err != nil {
			t.Fatal(err)
		}
		proptest.LinkContract(t, func(*testing.T) (a, b transport.Link) {
			a, b = inmem.Pipe(inmem.Options{})
			return &bent{Link: a, close: closes}, b
		}, proptest.ContractOptions{Guard: 100 * time.Millisecond})

	}
}

// Every suite fails on a transport that breaks what it is about.
func TestSuitesSeeBreaches(t *testing.T) {
	for _, b := range breaches() {
		t.Run(b.name, func(t *testing.T) {
			if os.Getenv(brokenVariable) != "" {
				b.suite(t, b.peer)
				return
			}
			t.Parallel()
			if said := fails(t, t.TempDir(), b.name, "-rapid.seed=1", "-rapid.nofailfile"); !strings.Contains(said, b.says) {
				t.Errorf("it said\n%s", said)
			}
		})
	}
}

// A seed gives the same failure again, made as small, and so does the file that
// is left of it.
func TestFailureIsReplayed(t *testing.T) {
	t.Parallel()
	dir, name := t.TempDir(), breaches()[0].name
	first := failureOf(fails(t, dir, name, "-rapid.seed=7"))
	files, err := filepath.Glob(filepath.Join(dir, "testdata", "rapid", "*", "*.fail"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the files left are %v (%v)", files, err)
	}
	for _, replay := range []string{"-rapid.seed=7", "-rapid.failfile=" + files[0]} {
		if again := failureOf(fails(t, dir, name, replay, "-rapid.nofailfile")); !slices.Equal(again, first) {
			t.Errorf("first it was\n%s\nand with %s\n%s", strings.Join(first, "\n"), replay, strings.Join(again, "\n"))
		}
	}
	for _, small := range []string{"draw calls: 3", "draw faults: []fault.Fault{}"} {
		if !slices.Contains(first, small) {
			t.Errorf("the history is not small:\n%s", strings.Join(first, "\n"))
		}
	}
}

// failureOf is the history that has failed, and how it did.
func failureOf(said string) (lines []string) {
	_, history, _ := strings.Cut(said, "Failed test output:")
	for _, line := range strings.Split(history, "\n") {
		if drawn := drew.FindString(line); drawn != "" {
			lines = append(lines, drawn)
		}
	}
	return lines
}

var drew = regexp.MustCompile(`draw .*|call \{.*`)

// fails runs a suite on a broken transport in another process, and returns what
// that has said.
func fails(t *testing.T, dir, name string, args ...string) (said string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	run := "^TestSuitesSeeBreaches$/^" + regexp.QuoteMeta(strings.ReplaceAll(name, " ", "_")) + "$"
	child := exec.CommandContext(ctx, self, append([]string{"-test.run=" + run, "-rapid.shrinktime=5s"}, args...)...)
	child.Env, child.Dir = append(os.Environ(), brokenVariable+"=1", "GORACE=atexit_sleep_ms=0"), dir
	output, err := child.CombinedOutput()
	if err == nil {
		t.Errorf("no suite has failed:\n%s", output)
	}
	return string(output)
}

// peer is a transport in memory that is broken.
func (b breach) peer(t *testing.T, h conn.Handler) transport.Transport {
	inner := served(t, h)
	opens := 0
	return opener(func(ctx context.Context) (transport.Link, error) {
		link, err := inner.Open(ctx)
		if err != nil {
			return nil, err
		}
		bending := &bent{Link: link}
		b.bend(bending)
		if opens++; bending.opens > 0 && opens > bending.opens {
			link.Close(0)
			return nil, fmt.Errorf("there was a link before")
		}
		return bending, nil
	})
}

type opener func(context.Context) (transport.Link, error)

func (o opener) Open(ctx context.Context) (transport.Link, error) { return o(ctx) }

// bent is a link that does wrong.
type bent struct {
	transport.Link
	send    func(*bent, transport.Outbound) error // nil: as it should
	receive func(frame []byte) []byte
	close   func(time.Duration) time.Duration
	opens   int  // no more links than these; 0 for any number
	lie     bool // what was sent is said to be unsent

	mu   sync.Mutex
	to   transport.Receiver
	sent []transport.Tag
}

func (b *bent) Bind(r transport.Receiver) {
	b.to = r
	b.Link.Bind(bending{r, b})
}

func (b *bent) Send(o transport.Outbound) error {
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

func (b *bent) Close(grace time.Duration) error {
	if b.close != nil {
		grace = b.close(grace)
	}
	return b.Link.Close(grace)
}

type bending struct {
	transport.Receiver
	*bent
}

func (b bending) Receive(in transport.Inbound) {
	if b.receive != nil {
		in.Frame = b.receive(in.Frame)
	}
	b.Receiver.Receive(in)
}

func (b bending) Lost(loss transport.Loss) {
	if b.mu.Lock(); b.lie {
		loss.Unsent = b.sent
	}
	b.mu.Unlock()
	b.Receiver.Lost(loss)
}

func anothers(frame []byte) []byte {
	return bytes.Replace(frame, []byte(`{"call":3}`), []byte(`{"call":4}`), 1)
}

func refused(frame []byte) []byte {
	return bytes.Replace(frame, []byte(`"result":{"call":2}`), []byte(`"error":{"code":-32800,"message":"cancelled"}`), 1)
}

func again(b *bent, o transport.Outbound) error {
	if err := b.Link.Send(o); err != nil || o.Tag == 0 {
		return err
	}
	b.Link.Send(transport.Outbound{Frame: bytes.Clone(o.Frame)})
	return nil
}

func misanswered(b *bent, o transport.Outbound) error {
	o.Frame = bytes.Replace(o.Frame, []byte(`"result":{"ask":3}`), []byte(`"result":{"ask":4}`), 1)
	return b.Link.Send(o)
}

// asked delivers each request of the peer's twice.
type asked struct{ of *bent }

func (a *asked) again(frame []byte) []byte {
	if bytes.Contains(frame, []byte(`"method":"ask"`)) {
		go a.of.to.Receive(transport.Inbound{Frame: bytes.Clone(frame)})
	}
	return frame
}

func swallowed(*bent, transport.Outbound) error { return nil }

func madeUp(b *bent, o transport.Outbound) error {
	params := regexp.MustCompile(`\{"call":\d+\}`).Find(o.Frame)
	if o.Tag == 0 || o.Tag%10 > 0 || params == nil {
		return b.Link.Send(o)
	}
	go b.to.Receive(transport.Inbound{Frame: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":%s}`, o.Tag, params)})
	return nil
}

// hang never returns, unless nothing is to be waited for.
func hang(grace time.Duration) time.Duration {
	if grace > 0 {
		select {}
	}
	return grace
}

func leave(grace time.Duration) time.Duration {
	go func() { <-make(chan struct{}) }()
	return grace
}

// leaveOnce leaves one goroutine, however many links are closed.
func leaveOnce() func(time.Duration) time.Duration {
	var once sync.Once
	return func(grace time.Duration) time.Duration {
		once.Do(func() { leave(grace) })
		return grace
	}
}

func tarry(grace time.Duration) time.Duration {
	timer := time.NewTimer(time.Minute)
	<-timer.C
	return grace
}
