package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/nats"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// limit ends tests that hang.
const limit = time.Minute

func testOptions(t *testing.T) Options {
	t.Helper()
	return Options{Folder: filepath.Join(testenv.Dir(t), "cluster"), Cluster: "test", Log: slog.New(slog.DiscardHandler)}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, errors.New("the test has no more time"))
	t.Cleanup(cancel)
	return ctx
}

func join(t *testing.T, o Options) cluster.Engine {
	t.Helper()
	e, err := Join(within(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeEngine(t, e) })
	return e
}

func closeEngine(t *testing.T, e cluster.Engine) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Errorf("Close got %v", err)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// rest waits between looks at what a test waits for.
func rest(ctx context.Context, t *testing.T, d time.Duration) {
	t.Helper()
	if err := wait.Sleep(ctx, d); err != nil {
		t.Fatal(err)
	}
}

// buckets opens a bucket on file and one in memory.
func buckets(t *testing.T, e cluster.Engine) (onFile, inMemory cluster.Bucket) {
	t.Helper()
	onFile = must[cluster.Bucket](t)(e.Bucket(within(t), cluster.BucketOptions{Name: "file"}))
	inMemory = must[cluster.Bucket](t)(e.Bucket(within(t), cluster.BucketOptions{Name: "memory", Memory: true, TTL: time.Hour}))
	return onFile, inMemory
}

// awaitWrite writes until a write succeeds, and returns when that was.
func awaitWrite(t *testing.T, b cluster.Bucket) time.Time {
	t.Helper()
	ctx := within(t)
	for {
		_, err := b.Put(ctx, "written", nil)
		if err == nil {
			return time.Now()
		}
		if !errors.Is(err, cluster.ErrUnavailable) {
			t.Fatal(err)
		}
		rest(ctx, t, 10*time.Millisecond)
	}
}

func awaitConnected(t *testing.T, e cluster.Engine, want bool) {
	t.Helper()
	ctx := within(t)
	for {
		connected, changed := e.Connected()
		if connected == want {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("connected is %v, want %v", connected, want)
		}
	}
}

func wantGet(t *testing.T, b cluster.Bucket, key, want string) {
	t.Helper()
	entry, err := b.Get(within(t), key)
	if err != nil || string(entry.Value) != want {
		t.Errorf("%s is %q (%v), want %q", key, entry.Value, err, want)
	}
}

func wantNone(t *testing.T, b cluster.Bucket, key string) {
	t.Helper()
	if entry, err := b.Get(within(t), key); !errors.Is(err, cluster.ErrNotFound) {
		t.Errorf("%s is %q (%v), want none", key, entry.Value, err)
	}
}

// A member whose program names no logger logs to that of the process.
func TestTheLoggerOfTheProcess(t *testing.T) {
	log, before := new(lockedBuffer), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	o := testOptions(t)
	o.Log = nil
	join(t, o)
	if text := log.String(); !strings.Contains(text, "the NATS server of the cluster runs in this process") || !strings.Contains(text, "cluster=test") {
		t.Errorf("the log says %s", text)
	}
}

// Buckets reserve as much as the options allow, in memory and on file, and no more.
func TestHowMuchBucketsReserve(t *testing.T) {
	for _, given := range [][2]int64{{0, 0}, {64 << 20, 32 << 20}} {
		o := testOptions(t)
		o.MaxMemory, o.MaxFile = given[0], given[1]
		e := join(t, o)
		for memory, most := range map[bool]int64{true: cmp.Or(given[0], 256<<20), false: cmp.Or(given[1], 8<<30)} {
			if _, err := e.Bucket(within(t), cluster.BucketOptions{Name: fmt.Sprint("more", memory), Memory: memory, MaxBytes: most + 1}); err == nil {
				t.Errorf("%v: in memory %v, a bucket reserves more than %d bytes", given, memory, most)
			}
			if _, err := e.Bucket(within(t), cluster.BucketOptions{Name: fmt.Sprint("most", memory), Memory: memory, MaxBytes: most}); err != nil {
				t.Errorf("%v: in memory %v, a bucket does not reserve %d bytes: %v", given, memory, most, err)
			}
		}
	}
}

// takeover is how long it may take until another process runs the server.
const takeover = 2 * time.Second

// Guarantees: G-0078.6
func TestAnotherMemberStartsTheServer(t *testing.T) {
	o := testOptions(t)
	first, second, third := join(t, o), join(t, o), join(t, o)
	onFile, inMemory := buckets(t, second)
	for _, b := range []cluster.Bucket{onFile, inMemory} {
		must[uint64](t)(b.Create(within(t), "k", []byte("before"), 0))
	}
	missed := make(chan struct{}, 10)
	stop := must[func()](t)(third.Subscribe(within(t), "s", func(m cluster.Message) {
		if m.Missed {
			missed <- struct{}{}
		}
	}))
	defer stop()
	began := time.Now()
	closeEngine(t, first)
	if took := awaitWrite(t, onFile).Sub(began); took > takeover {
		t.Errorf("the server was back after %v", took)
	}
	testenv.Receive(t, missed, "a subscriber learns that it missed something")
	wantGet(t, onFile, "k", "before")
	wantNone(t, inMemory, "k")
	must[uint64](t)(inMemory.Create(within(t), "k", []byte("after"), 0))
	third2, memory3 := buckets(t, third)
	wantGet(t, third2, "k", "before")
	wantGet(t, memory3, "k", "after")
	if address := third.LocalAddress(); address != "127.0.0.1" {
		t.Errorf("the local address is %s", address)
	}
}

// dialState connects to the server of a folder, wherever it is.
func dialState(folder string) func(ctx context.Context, _, _ string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		s, err := readState(folder)
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, "tcp", s.Address)
	}
}

// client connects to the server of a folder from outside.
func client(t *testing.T, folder string) cluster.Engine {
	t.Helper()
	s := must[state](t)(readState(folder))
	e, err := nats.Connect(within(t), nats.Options{
		URLs: []string{"nats://127.0.0.1"}, Cluster: "test", Token: s.Token, Dial: dialState(folder), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeEngine(t, e) })
	return e
}

// The process that runs the server is killed, several times.
//
// Guarantees: G-0078.6
func TestTheServerSurvivesItsProcess(t *testing.T) {
	const rounds = 4
	o := testOptions(t)
	processes := map[int]*process{}
	for range 2 {
		p := startMember(t, o)
		processes[p.command.Process.Pid] = p
	}
	e := client(t, o.Folder)
	onFile, inMemory := buckets(t, e)
	for round := range rounds {
		p := startMember(t, o)
		processes[p.command.Process.Pid] = p
		key := "k" + string(rune('0'+round))
		for _, b := range []cluster.Bucket{onFile, inMemory} {
			must[uint64](t)(b.Create(within(t), key, []byte("kept"), 0))
		}
		holder := must[state](t)(readState(o.Folder)).Process
		began := time.Now()
		processes[holder].kill()
		delete(processes, holder)
		awaitConnected(t, e, false)
		must[struct{}](t)(struct{}{}, awaitOther(within(t), o.Folder, holder))
		if took := time.Since(began); took > takeover {
			t.Errorf("another process runs the server after %v", took)
		}
		awaitWrite(t, onFile)
		t.Logf("another process runs the server, and a client has written, after %v", time.Since(began))
		wantGet(t, onFile, key, "kept")
		wantNone(t, inMemory, key)
	}
	for _, p := range processes {
		p.end()
	}
	if processes := len(processes); processes != 2 {
		t.Errorf("%d processes are left", processes)
	}
}

// awaitOther waits until another process has started the server.
func awaitOther(ctx context.Context, folder string, than int) error {
	for {
		s, err := readState(folder)
		if err != nil || s.Process != than && s.Address != "" {
			return err
		}
		if err := wait.Sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// Guarantees: G-0078.7
func TestOnlyThisUserReachesTheServer(t *testing.T) {
	o := testOptions(t)
	e := join(t, o)
	onFile, _ := buckets(t, e)
	must[uint64](t)(onFile.Create(within(t), "k", []byte("value"), 0))
	for _, folder := range []string{".", dataName} {
		info := must[os.FileInfo](t)(os.Stat(filepath.Join(o.Folder, folder)))
		if mode := info.Mode().Perm(); mode != 0o700 {
			t.Errorf("folder %s has mode %#o", folder, mode)
		}
	}
	for _, name := range []string{lockName, stateName} {
		info := must[os.FileInfo](t)(os.Stat(filepath.Join(o.Folder, name)))
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %#o", name, mode)
		}
	}
	s := must[state](t)(readState(o.Folder))
	host, _, err := net.SplitHostPort(s.Address)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		t.Errorf("the server listens at %s", s.Address)
	}
	_, err = nats.Connect(within(t), nats.Options{URLs: []string{"nats://" + s.Address}, Cluster: "test", Token: s.Token + "x"})
	if !errors.Is(err, cluster.ErrDenied) {
		t.Errorf("with another token Connect got %v, want ErrDenied", err)
	}
}

func TestStartIsForOne(t *testing.T) {
	o := testOptions(t)
	s := must[*Server](t)(Start(o))
	if _, err := Start(o); !errors.Is(err, ErrHeld) {
		t.Errorf("a second Start got %v, want ErrHeld", err)
	}
	before := must[state](t)(readState(o.Folder))
	if before != s.state || before.Process != os.Getpid() || before.Address != s.server.Addr().String() {
		t.Errorf("the folder says %+v of a server at %s", before, s.server.Addr())
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	before.Process = 1 // that of another process
	if err := writeState(o.Folder, before); err != nil {
		t.Fatal(err)
	}
	if info := must[os.FileInfo](t)(os.Stat(filepath.Join(o.Folder, stateName))); info.Mode().Perm() != 0o600 {
		t.Errorf("the token is in a file of mode %v", info.Mode())
	}
	next := must[state](t)(newState(o.Folder))
	if next != (state{Name: before.Name, Token: before.Token, Process: os.Getpid()}) {
		t.Errorf("the next server would begin with %+v, want the name and the token of %+v", next, before)
	}
	s = must[*Server](t)(Start(o))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	// The lock is free again when a server could not be started.
	if err := os.WriteFile(filepath.Join(o.Folder, stateName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := Start(o); err == nil || errors.Is(err, ErrHeld) {
			t.Errorf("with a damaged state Start got %v", err)
		}
	}
}

func TestBadOptionsAndFiles(t *testing.T) {
	three := []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}
	seeds := func(all ...string) func(*Options) {
		return func(o *Options) { o.Seeds, o.Listen, o.Key = all, three[0], testKey }
	}
	const none, alone, form = "no folder", "Self, Listen and Routes are for servers that have Seeds", " is no address of a server, such as host:4248"
	for want, changes := range map[string][]func(*Options){
		none: {func(o *Options) { o.Folder = "" }},
		`the name of a cluster has 1 to 64 letters, digits, "-" and "_", and is not "a.b"`: {func(o *Options) { o.Cluster = "a.b" }},
		"2 seeds; a cluster of servers has at least three, so that it can lose one":        {seeds(three[:2]...)},
		"the key of the cluster has 31 bytes, and not 32":                                  {func(o *Options) { seeds(three...)(o); o.Key = testKey[1:] }},
		"the key of the cluster has 33 bytes, and not 32":                                  {func(o *Options) { seeds(three...)(o); o.Key = append(testKey[:32:32], 0) }},
		`"127.0.0.1:4" is none of the seeds`:                                               {func(o *Options) { seeds(three...)(o); o.Self = "127.0.0.1:4" }, func(o *Options) { seeds(three...)(o); o.Listen = "127.0.0.1:4" }},
		alone:                                                                              {func(o *Options) { o.Listen = three[0] }, func(o *Options) { o.Self = three[0] }, func(o *Options) { o.Routes = three }},
		`""` + form:                                                                        {func(o *Options) { seeds(three...)(o); o.Self, o.Listen = three[0], "" }},
		`"a"` + form:                                                                       {seeds(append(three, "a")...), func(o *Options) { seeds(three...)(o); o.Routes = []string{"a"} }},
		`":4"` + form:                                                                      {seeds(append(three, ":4")...)},
		`"a:0"` + form:                                                                     {seeds(append(three, "a:0")...)},
		`"a:65536"` + form:                                                                 {seeds(append(three, "a:65536")...)},
		`"a/..:1"` + form:                                                                  {seeds(append(three, "a/..:1")...)},
		"one of the seeds is there twice":                                                  {seeds(append(three, three[0])...)},
		"a limit below zero":                                                               {func(o *Options) { o.MaxMemory = -1 }, func(o *Options) { o.MaxFile = -1 }},
	} {
		for n, change := range changes {
			o := testOptions(t)
			change(&o)
			if _, err := Join(within(t), o); !errors.Is(err, cluster.ErrInvalid) || err.Error() != "embedded: join: "+cluster.ErrInvalid.Error()+": "+want {
				t.Errorf("%d: Join got %v, want ErrInvalid: %s", n, err, want)
			}
			if _, err := Start(o); !errors.Is(err, cluster.ErrInvalid) || err.Error() != "embedded: "+cluster.ErrInvalid.Error()+": "+want {
				t.Errorf("%d: Start got %v, want ErrInvalid: %s", n, err, want)
			}
		}
	}
	for what, text := range map[string]string{
		"an empty state": "", "no JSON": "{", "no token": `{"name":"a"}`, "a long state": `{"name":"a","token":"` + string(make([]byte, maxState)) + `"}`,
	} {
		o := testOptions(t)
		for _, err := range []error{os.MkdirAll(o.Folder, 0o700), os.WriteFile(filepath.Join(o.Folder, stateName), []byte(text), 0o600)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Join(within(t), o); err == nil {
			t.Errorf("%s was accepted", what)
		}
	}
	o := testOptions(t)
	if err := os.MkdirAll(o.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(o.Folder, 0o777); err != nil { //nolint:gosec // that is what is refused
		t.Fatal(err)
	}
	if _, err := Join(within(t), o); err == nil {
		t.Error("a folder to which others can write was accepted")
	}
	o.Seeds, o.Listen, o.Key = three, three[0], testKey
	if _, err := Join(within(t), o); err == nil || errors.Is(err, cluster.ErrUnavailable) {
		t.Errorf("a folder of servers to which others can write got %v", err)
	}
}
