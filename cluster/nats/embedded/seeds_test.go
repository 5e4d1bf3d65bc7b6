package embedded

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/internal/testenv"
)

// freeAddresses returns addresses that nobody uses. Their ports are below those that connections get, so
// that nobody uses them either while their server is away.
func freeAddresses(t *testing.T, n int) (all []string) {
	t.Helper()
	for len(all) < n {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(22_000)))
		if err != nil {
			continue
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all
}

// testKey is the key of the clusters of tests.
var testKey = bytes.Repeat([]byte{7}, cluster.KeySize)

// A trio is three servers of one cluster, in this process.
type trio struct {
	t       *testing.T
	options [3]Options
	logs    [3]*lockedBuffer
	engines [3]cluster.Engine
}

func newTrio(t *testing.T) *trio {
	three := &trio{t: t}
	seeds := freeAddresses(t, 3)
	for n := range 3 {
		three.logs[n] = &lockedBuffer{}
		o := testOptions(t)
		o.Seeds, o.Self, o.Listen, o.Key, o.Log = seeds, seeds[n], seeds[n], testKey, slog.New(slog.NewTextHandler(three.logs[n], nil))
		three.options[n] = o
	}
	t.Cleanup(func() {
		for n := range 3 {
			three.leave(n)
		}
	})
	return three
}

// join joins some of the three at once.
func (three *trio) join(all ...int) {
	three.t.Helper()
	var group sync.WaitGroup
	for _, n := range all {
		group.Go(func() {
			e, err := Join(within(three.t), three.options[n])
			if err != nil {
				three.t.Errorf("server %d: %v\n%s", n, err, three.logs[n].String())
				return
			}
			three.engines[n] = e
		})
	}
	group.Wait()
	if three.t.Failed() {
		three.t.FailNow()
	}
}

func (three *trio) leave(n int) {
	three.t.Helper()
	if three.engines[n] != nil {
		closeEngine(three.t, three.engines[n])
		three.engines[n] = nil
	}
}

// awaitLog waits until a server has said something.
func (three *trio) awaitLog(n int, text string) {
	three.t.Helper()
	for ctx := within(three.t); !strings.Contains(three.logs[n].String(), text); {
		rest(ctx, three.t, 20*time.Millisecond)
	}
}

func (three *trio) bucket(n int) cluster.Bucket {
	three.t.Helper()
	return must[cluster.Bucket](three.t)(three.engines[n].Bucket(within(three.t), cluster.BucketOptions{Name: "b"}))
}

// A server without the key of the cluster becomes none of its servers, and does them no harm.
//
// Guarantees: G-0078.7
func TestServersProveThatTheyHaveTheKey(t *testing.T) {
	t.Parallel()
	three := newTrio(t)
	three.join(0, 1, 2)
	must[uint64](t)(three.bucket(0).Create(within(t), "k", []byte("value"), 0))
	three.leave(2)
	impostor := three.options[2]
	impostor.Folder, impostor.Key, impostor.Log = t.TempDir(), bytes.Repeat([]byte{8}, cluster.KeySize), slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if e, err := Join(ctx, impostor); !errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("with another key Join got %v, want ErrUnavailable", err)
		if err == nil {
			closeEngine(t, e)
		}
	}
	three.awaitLog(0, "TLS route handshake error")
	must[uint64](t)(three.bucket(1).Put(within(t), "k", []byte("later")))
	three.join(2)
	wantGet(t, three.bucket(2), "k", "later")
	attached := must[cluster.Engine](t)(Attach(within(t), Options{Folder: three.options[0].Folder, Cluster: "test"}))
	defer closeEngine(t, attached)
	wantGet(t, must[cluster.Bucket](t)(attached.Bucket(within(t), cluster.BucketOptions{Name: "b"})), "k", "later")
	for _, folder := range []string{three.options[0].Folder, three.options[0].folder()} {
		if mode := must[os.FileInfo](t)(os.Stat(folder)).Mode().Perm(); mode != 0o700 {
			t.Errorf("folder %s has mode %#o", folder, mode)
		}
	}
}

// Two servers do not have one entry.
//
// Guarantees: G-0078.7
func TestAnEntryIsForOneServer(t *testing.T) {
	t.Parallel()
	o := newTrio(t).options[0]
	s := must[*Server](t)(Start(o))
	defer s.Close()
	other := o
	other.Folder, other.Listen = testenv.Dir(t), freeAddresses(t, 1)[0]
	if again, err := Start(other); err == nil || !strings.Contains(err.Error(), "is "+o.Self+": end it") {
		t.Errorf("a second server of an entry got %v", err)
		if err == nil {
			again.Close()
		}
	}
	other.Self = o.Seeds[1]
	second := must[*Server](t)(Start(other))
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// Who connects to the address for servers without TLS, or with a certificate that the key of the
// cluster has not issued, is told nothing.
//
// Guarantees: G-0078.7
func TestStrangersAreToldNothing(t *testing.T) {
	t.Parallel()
	o := newTrio(t).options[0]
	s := must[*Server](t)(Start(o))
	defer s.Close()
	stranger := must[*tls.Config](t)(Options{Cluster: "test", Key: bytes.Repeat([]byte{8}, cluster.KeySize)}.routeTLS())
	stranger.InsecureSkipVerify = true
	other := must[*tls.Config](t)(Options{Cluster: "other", Key: testKey}.routeTLS())
	other.InsecureSkipVerify = true
	if a, b := must[string](t)(o.routeToken()), must[string](t)(Options{Cluster: "other", Key: testKey}.routeToken()); a == b {
		t.Error("two clusters with one key have the same password")
	}
	plain := func(c net.Conn) net.Conn { return c }
	secure := func(config *tls.Config) func(c net.Conn) net.Conn {
		return func(c net.Conn) net.Conn { return tls.Client(c, config) }
	}
	for what, wrap := range map[string]func(net.Conn) net.Conn{
		"no TLS": plain, "no certificate": secure(&tls.Config{InsecureSkipVerify: true}), //nolint:gosec // as a stranger would
		"another key": secure(stranger), "another cluster": secure(other),
	} {
		raw := must[net.Conn](t)(net.Dial("tcp", o.Listen))
		raw.SetDeadline(time.Now().Add(limit))
		c := wrap(raw)
		io.WriteString(c, "INFO {}\r\nPING\r\n")
		if said, _ := io.ReadAll(c); len(said) > 0 && !isAlert(said) {
			t.Errorf("with %s the server has said %q", what, said)
		}
		c.Close()
	}
	friend := must[*tls.Config](t)(o.routeTLS())
	c := must[*tls.Conn](t)(tls.Dial("tcp", o.Listen, friend))
	defer c.Close()
	c.SetDeadline(time.Now().Add(limit))
	said := make([]byte, 5)
	if _, err := io.ReadFull(c, said); err != nil || string(said) != "INFO " {
		t.Errorf("with the key the server has said %q: %v", said, err)
	}
	io.WriteString(c, `CONNECT {"user":"bowline","pass":"another","name":"x"}`+"\r\nPING\r\n")
	if said, _ := io.ReadAll(c); !bytes.Contains(said, []byte("Authorization Violation")) {
		t.Errorf("with another password the server has said %q", said)
	}
}

// isAlert reports whether it is an alert of TLS, without encryption.
func isAlert(said []byte) bool { return len(said) == 7 && said[0] == 21 }

// A server says what it waits for, and is there as soon as more than half are.
//
// Guarantees: G-0078.9
func TestServersWaitForAMajority(t *testing.T) {
	t.Parallel()
	three := newTrio(t)
	seeds := three.options[0].Seeds
	var first sync.WaitGroup
	first.Go(func() { three.join(0) })
	three.awaitLog(0, "waiting for 1 more of 3 nodes: "+seeds[1]+", "+seeds[2]+`"`)
	three.join(1)
	first.Wait()
	three.awaitLog(0, "2 of 3 nodes are there")
}

// What a server says while others come and go.
//
// Guarantees: G-0078.9
func TestWhatAServerSays(t *testing.T) {
	t.Parallel()
	three := []string{"a:1", "b:1", "c:1"}
	five := append(slices.Clone(three), "d:1", "e:1")
	type look struct {
		after time.Duration // since the look before
		there string
		busy  bool
		said  string // "" for nothing
	}
	const s = time.Second
	for name, c := range map[string]struct {
		seeds []string
		isNew bool
		looks []look
	}{
		"alone": {three, false, []look{
			{s, "a", true, "waiting for 1 more of 3 nodes: b:1, c:1"}, {s, "a", true, ""}, {8 * s, "a", true, ""},
			{s, "a", true, "waiting for 1 more of 3 nodes: b:1, c:1"}, {s, "ac", true, ""},
			{s, "ac", false, "2 of 3 nodes are there"}, {s, "ac", false, ""},
		}},
		"a majority is lost for a while": {three, false, []look{
			{s, "abc", false, ""}, {s, "ab", false, ""}, {s, "a", false, "waiting for 1 more of 3 nodes: b:1, c:1"}, {s, "ab", false, "2 of 3 nodes are there"},
		}},
		"a new cluster": {three, true, []look{
			{s, "ab", true, ""}, {2 * s, "ab", true, ""}, {s, "ab", true, "waiting for 1 more of 3 nodes: c:1 (a cluster that is new or has lost its data needs 3 at first)"},
			{s, "abc", true, ""}, {s, "abc", false, "3 of 3 nodes are there"},
		}},
		"a new cluster of five": {five, true, []look{
			{s, "ab", true, "waiting for 1 more of 5 nodes: c:1, d:1, e:1"}, {s, "abc", true, ""},
			{9 * s, "abc", true, "waiting for 1 more of 5 nodes: d:1, e:1 (a cluster that is new or has lost its data needs 4 at first)"},
		}},
		"data was lost": {three, false, []look{
			{s, "ab", true, ""}, {14 * s, "ab", true, ""}, {s, "ab", true, "waiting for 1 more of 3 nodes: c:1 (a cluster that is new or has lost"},
		}},
		"an election": {three, false, []look{{s, "ab", true, ""}, {9 * s, "ab", true, ""}, {s, "ab", false, ""}, {9 * s, "ab", true, ""}}},
	} {
		says, now := saying{seeds: c.seeds, isNew: c.isNew}, time.Now()
		for n, look := range c.looks {
			now = now.Add(look.after)
			there := map[string]bool{}
			for _, letter := range look.there {
				there[serverName(string(letter)+":1")] = true
			}
			level, said := says.next(now, there, look.busy)
			want := slog.LevelInfo // 0, as of nothing
			if strings.HasPrefix(look.said, "waiting") {
				want = slog.LevelWarn
			}
			if !strings.HasPrefix(said, look.said) || (said == "") != (look.said == "") || level != want {
				t.Errorf("%s, look %d: it has said %v %q, want %v %q", name, n, level, said, want, look.said)
			}
		}
	}
}

// A line is passed on once a minute, and few different ones are.
func TestLinesOfAServerAreBounded(t *testing.T) {
	t.Parallel()
	text := &lockedBuffer{}
	l := &logger{log: slog.New(slog.NewTextHandler(text, nil))}
	for n := range 1000 {
		l.Errorf("%s - rid:%d - TLS route handshake error: EOF", "127.0.0.1:"+strconv.Itoa(n), n)
	}
	if lines := strings.Count(text.String(), "\n"); lines != 1 || !strings.Contains(text.String(), "has another key") {
		t.Errorf("of one line a thousand times it has passed on %d:\n%s", lines, text.String())
	}
	for n := range 1000 {
		l.Warnf("line %d", n)
	}
	if lines := strings.Count(text.String(), "\n"); lines != maxLines {
		t.Errorf("of a thousand lines it has passed on %d", lines)
	}
	if passed, dropped := l.passes("line 1", time.Now().Add(time.Minute)); !passed || dropped != 1001-maxLines {
		t.Errorf("after a minute a line is passed on: %v, and %d were dropped", passed, dropped)
	}
	if passed, dropped := l.passes("line 1", time.Now().Add(2*time.Minute-time.Millisecond)); passed || dropped != 0 {
		t.Errorf("less than a minute after that the same line is passed on: %v, and %d were dropped", passed, dropped)
	}
}

// What a server says has the level that it has for an operator. That lines were dropped is said with the next one.
func TestLevelsOfLines(t *testing.T) {
	t.Parallel()
	text := &lockedBuffer{}
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	l := &logger{log: slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: plain})), minute: time.Now().Add(-time.Hour), dropped: 7}
	l.Noticef("Server is %s", "ready")
	l.Warnf("Waiting for routing to be established...")
	l.Warnf("slow consumer %d", 1)
	l.Warnf("slow consumer %d", 1)
	l.Errorf("no space")
	l.Debugf("nothing")
	l.Tracef("nothing")
	const want = `level=WARN msg="NATS: more lines in a minute than are shown" dropped=7
level=DEBUG msg="NATS: Server is ready"
level=DEBUG msg="NATS: Waiting for routing to be established..."
level=WARN msg="NATS: slow consumer 1"
level=ERROR msg="NATS: no space"
`
	if got := text.String(); got != want {
		t.Errorf("it has passed on\n%s\nwant\n%s", got, want)
	}
	if err := l.failure(); err != nil {
		t.Errorf("the server has failed: %v", err)
	}
	l.Fatalf("cannot listen on port %d", 1)
	l.Fatalf("and ends")
	if err := l.failure(); err == nil || err.Error() != "cannot listen on port 1" {
		t.Errorf("the server has failed: %v, want the first reason", err)
	}
}

// Who has the key of another cluster, or knows one secret of this one, knows none of its others. Each entry has a folder of its own.
func TestSecretsAndFoldersOfServers(t *testing.T) {
	t.Parallel()
	known := map[string]string{}
	for _, o := range []Options{{Cluster: "a", Key: testKey}, {Cluster: "b", Key: testKey}, {Cluster: "a", Key: append([]byte{testKey[0] + 1}, testKey[1:]...)}} {
		for _, purpose := range []string{"token", "authority"} {
			secret := string(must[[]byte](t)(o.derive(purpose)))
			if other, again := known[secret]; again || len(secret) != 32 {
				t.Errorf("the %s of %s has %d bytes, and is that of %s", purpose, o.Cluster, len(secret), other)
			}
			known[secret] = purpose + " of " + o.Cluster
		}
	}
	for self, want := range map[string]string{"a.b:1": "server-a.b_1", "[::1]:4248": "server-__1_4248", "[fe80::1%eth0]:1": "server-fe80__1_eth0_1"} {
		if got := (Options{Folder: "f", Seeds: []string{self}, Self: self}).folder(); got != filepath.Join("f", want) {
			t.Errorf("the server %s has the folder %s, want %s", self, got, want)
		}
	}
	if got := (Options{Folder: "f"}).folder(); got != "f" {
		t.Errorf("the only server has the folder %s", got)
	}
}

// Attach uses the server that runs on this machine, with and without seeds, and starts none. Who does not want to wait for one any more
// gets the cause of that.
func TestAttach(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	if e, err := Attach(within(t), o); !errors.Is(err, ErrNotRunning) {
		t.Errorf("without a folder Attach got %v, %v, want ErrNotRunning", e, err)
	}
	left, leave := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	leave(enough)
	if e, err := Attach(left, o); !errors.Is(err, enough) {
		t.Errorf("with a context that has ended Attach got %v, %v, want its cause", e, err)
	}
	e := join(t, o)
	must[uint64](t)(must[cluster.Bucket](t)(e.Bucket(within(t), cluster.BucketOptions{Name: "b"})).Create(within(t), "k", []byte("value"), 0))
	attached := must[cluster.Engine](t)(Attach(within(t), Options{Folder: o.Folder, Cluster: "test", Log: o.Log, Seeds: []string{"a:1"}, Self: "b:1", Listen: "c", Routes: []string{"d"}}))
	wantGet(t, must[cluster.Bucket](t)(attached.Bucket(within(t), cluster.BucketOptions{Name: "b"})), "k", "value")
	closeEngine(t, attached)
	closeEngine(t, e)
	if e, err := Attach(within(t), o); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the end of the server Attach got %v, %v, want ErrNotRunning", e, err)
	}
}
