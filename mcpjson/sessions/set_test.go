//go:build unix

package sessions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// role makes the test binary a server.
const role = "BOWLINE_SESSIONS_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(role) != "" {
		serve()
		return
	}
	testenv.Once()
	goleak.VerifyTestMain(m)
}

type process struct {
	Pid  int    `json:"pid"`
	Said string `json:"said"`
}

// serve runs a server with a tool that describes its process, and a tool that waits for a
// file.
func serve() {
	s := server.New(protocol.Implementation{Name: "life", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "life"}, func(context.Context, struct{}) (process, error) {
		return process{os.Getpid(), os.Getenv("SAID")}, nil
	})
	server.AddTool(s, protocol.Tool{Name: "await"}, func(ctx context.Context, in struct {
		File string `json:"file"`
	}) (process, error) {
		pipe, err := os.Open(in.File) // a FIFO: until somebody writes
		if err == nil {
			err = pipe.Close()
		}
		return process{Pid: os.Getpid()}, err
	})
	if err := s.Serve(context.Background(), &stdio.Server{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// parse reads a file of these servers: $SELF{...} is an entry that starts the test binary as a
// server, with further keys.
func parse(t *testing.T, servers string) *mcpjson.File {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	entry := fmt.Sprintf(`{"command": %q, `, filepath.ToSlash(self))
	text := strings.ReplaceAll(servers, "$SELF{", entry)
	file, err := mcpjson.Parse("mcp.json", []byte(`{"mcpServers": {`+text+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// guard ends the process, with a message that names the test and with the stacks of all goroutines, if the test has not ended in a minute. A lock
// that nobody unlocks stops the end of a test as well, so nothing less would say what hangs.
func guard(t *testing.T) {
	t.Helper()
	limit := time.AfterFunc(time.Minute, func() { panic(t.Name() + " hangs for a minute") })
	t.Cleanup(func() { limit.Stop() })
}

func newSet(t *testing.T, o Options) *Set {
	t.Helper()
	guard(t)
	t.Setenv(role, "yes")
	given := o.Each
	o.Each = func(of *mcpjson.Server, o *client.Options) {
		if given != nil {
			given(of, o)
		}
		if o.Conn.StopGrace == 0 {
			o.Conn.StopGrace = 20 * time.Second // a busy machine takes its time to end a process
		}
	}
	s := New(protocol.Implementation{Name: "test", Version: "1"}, o)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// processOf calls a server's tool that describes its process.
func processOf(t *testing.T, s *Set, name string) process {
	t.Helper()
	session, found := s.Session(name)
	if !found {
		t.Fatalf("there is no session %s", name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answer, err := client.Call[process](ctx, session.With(client.CallOptions{WaitForReady: true}), "life", struct{}{})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return answer
}

func apply(t *testing.T, s *Set, file *mcpjson.File, want Changes) error {
	t.Helper()
	got, err := s.Apply(t.Context(), file)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("changes (-want +got):\n%s%v", diff, err)
	}
	return err
}

// TestApplyDoesOnlyWhatHasChanged checks that other sessions and their calls continue.
//
// Guarantees: G-0041.1, G-0041.2
func TestApplyDoesOnlyWhatHasChanged(t *testing.T) {
	s := newSet(t, Options{})
	err := apply(t, s, parse(t, `"stays": $SELF{"autoApprove": []}, "changes": $SELF{"env": {"SAID": "one"}}, "goes": $SELF{}, "off": $SELF{"disabled": true}`),
		Changes{Started: []string{"stays", "changes", "goes"}})
	if err != nil {
		t.Fatal(err)
	}
	stays, changes := processOf(t, s, "stays"), processOf(t, s, "changes")
	if changes.Said != "one" {
		t.Errorf("the server has %q of its environment", changes.Said)
	}
	processOf(t, s, "goes")
	inFlight, release := await(t, s, "stays")

	err = apply(t, s, parse(t, `"off": $SELF{}, "changes": $SELF{"env": {"SAID": "two"}}, /* still there */ "stays": $SELF{"autoApprove": ["x"], }`),
		Changes{Started: []string{"off"}, Restarted: []string{"changes"}, Stopped: []string{"goes"}})
	if err != nil {
		t.Fatal(err)
	}
	if again := processOf(t, s, "changes"); again.Said != "two" || again.Pid == changes.Pid {
		t.Errorf("the changed server was %+v and is %+v", changes, again)
	}
	if _, found := s.Session("goes"); found {
		t.Error("the removed session is left")
	}
	release()
	if answer := <-inFlight; answer.err != nil || answer.Pid != stays.Pid {
		t.Errorf("the call in flight: %+v, want process %d", answer, stays.Pid)
	}
	var names []string
	for session := range s.Sessions() {
		names = append(names, session.Name())
	}
	if diff := cmp.Diff([]string{"off", "changes", "stays"}, names); diff != "" {
		t.Errorf("sessions (-want +got):\n%s", diff)
	}
	processOf(t, s, "off")
	if report := s.Report().String(); !strings.Contains(report, "3 ready, 1 stopped") {
		t.Errorf("the report is\n%s", report)
	}
}

// fifo is a file whose reader waits for a writer.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type answered struct {
	process
	err error
}

// await starts a call that the server answers after release.
func await(t *testing.T, s *Set, name string) (inFlight <-chan answered, release func()) {
	t.Helper()
	file := fifo(t)
	session, _ := s.Session(name)
	answers := make(chan answered, 1)
	go func() {
		answer, err := client.Call[process](context.Background(), session, "await", map[string]string{"file": file})
		answers <- answered{answer, err}
	}()
	writer, err := os.OpenFile(file, os.O_WRONLY, 0) // returns when the tool has opened it
	if err != nil {
		t.Fatal(err)
	}
	return answers, func() {
		if err := writer.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSettingsOfTheFileTakePrecedence checks that settings of the file replace options of the
// program, for a copy as for the session, and that other options are kept.
//
// Guarantees: G-0041.4
func TestSettingsOfTheFileTakePrecedence(t *testing.T) {
	base := client.Options{
		Calls:     client.CallOptions{Retries: 9, WaitForReady: true, Timeout: time.Minute, MaxTimeout: time.Hour},
		ToolModes: map[string]protocol.ToolMode{"x": protocol.Stateful, "y": protocol.Stateful},
		Conn:      conn.Tuning{RequestTimeout: time.Minute, InitTimeout: time.Minute, BackoffMin: time.Second, BackoffMax: time.Hour, Liveness: time.Minute},
	}
	compare := func(what string, want, got any) {
		t.Helper()
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(conn.Tuning{}, "Hooks", "Wheel", "Gate"), cmpopts.IgnoreFields(client.Options{}, "Supervisor"), cmpopts.IgnoreUnexported(client.CallOptions{}, conn.Tuning{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	for settings, want := range map[string]func(*client.Options){
		``: func(*client.Options) {},
		`"timeout": 9000, "bowline": {"initTimeout": "7s", "maxTimeout": "8s", "backoffMin": "1ms", "backoffMax": "2ms", "liveness": "3s",
			"retries": 0, "waitForReady": false, "progressRestarts": true, "trustAnnotations": true, "toolModes": {"y": "stateless"}}`: func(o *client.Options) {
			o.Conn = conn.Tuning{RequestTimeout: 9 * time.Second, InitTimeout: 7 * time.Second, BackoffMin: time.Millisecond, BackoffMax: 2 * time.Millisecond, Liveness: 3 * time.Second}
			o.Calls = client.CallOptions{Timeout: 9 * time.Second, MaxTimeout: 8 * time.Second, ProgressRestarts: true}
			o.TrustAnnotations = true
			o.ToolModes = map[string]protocol.ToolMode{"x": protocol.Stateful, "y": protocol.Stateless}
		},
		`"bowline": {"liveness": "off", "retries": 2}`: func(o *client.Options) { o.Conn.Liveness, o.Calls.Retries = -1, 2 },
	} {
		var got client.Options
		s := newSet(t, Options{Client: base, Each: func(of *mcpjson.Server, o *client.Options) { got, of.Transport = *o, away{} }})
		if err := apply(t, s, parse(t, `"a": $SELF{`+settings+`}`), Changes{Started: []string{"a"}}); err != nil {
			t.Fatal(err)
		}
		wanted := base
		want(&wanted)
		ofSession := got
		if err := s.StartCopy(t.Context(), "a", "a copy", func() bool { return true }); err != nil {
			t.Fatal(err)
		}
		for of, got := range map[string]client.Options{"session": ofSession, "copy": got} {
			compare(of+" with "+settings, wanted, got)
		}
	}
	if base.ToolModes["y"] != protocol.Stateful {
		t.Error("the program's map was changed")
	}
	var got client.Options
	s := newSet(t, Options{Each: func(of *mcpjson.Server, o *client.Options) { got, of.Transport = *o, away{} }})
	if err := apply(t, s, parse(t, `"a": $SELF{"bowline": {"toolModes": {"y": "stateless"}}}`), Changes{Started: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	compare("modes of the file alone", map[string]protocol.ToolMode{"y": protocol.Stateless}, got.ToolModes)
}

// TestWhatTheSessionsShare starts two servers, and two with what the program has.
//
// Guarantees: G-0041.4
func TestWhatTheSessionsShare(t *testing.T) {
	guard(t)
	own := client.Options{Supervisor: supervisor.New(supervisor.Options{}), Conn: conn.Tuning{Wheel: new(conn.Wheel), Gate: new(conn.Gate)}}
	defer own.Supervisor.Stop(context.Background())
	for name, given := range map[string]client.Options{"its own": {}, "those of the program": own} {
		var got []client.Options
		s := newSet(t, Options{Client: given, Each: func(of *mcpjson.Server, o *client.Options) {
			got = append(got, *o)
			of.Transport, o.Conn.Log = away{}, slog.New(slog.DiscardHandler)
		}})
		if err := apply(t, s, parse(t, `"a": $SELF{}, "b": $SELF{}`), Changes{Started: []string{"a", "b"}}); err != nil {
			t.Fatal(err)
		}
		for session := range s.Sessions() {
			if session.Name() != "a" {
				t.Errorf("%s: the sessions go on with %s although nobody wants more", name, session.Name())
			}
			break
		}
		a, b := got[0], got[1]
		if a.Supervisor == nil || a.Conn.Wheel == nil || a.Conn.Gate == nil || a.Supervisor != b.Supervisor || a.Conn.Wheel != b.Conn.Wheel || a.Conn.Gate != b.Conn.Gate {
			t.Errorf("%s: two sessions do not share supervisor, wheel and gate", name)
		}
		if given.Supervisor != nil && (a.Supervisor != given.Supervisor || a.Conn.Wheel != given.Conn.Wheel || a.Conn.Gate != given.Conn.Gate) {
			t.Errorf("%s are not used", name)
		}
		if report := s.Report(); given.Supervisor == nil && report.Name != "test" || len(report.Children) != 2 {
			t.Errorf("%s: the report is\n%s", name, report)
		}
	}
}

// TestErrorsNameTheServer has a server that is away, and one that cannot be told something, as its copy, and whose call does not end.
//
// Guarantees: G-0041.3, G-0041.7
func TestErrorsNameTheServer(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		quiet := slog.New(slog.DiscardHandler)
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
		defer s.Close(context.Background())
		server.AddTool(s, protocol.Tool{Name: "hang"}, func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		there, told, unsent := true, 0, errors.New("unsent")
		failing := func(next client.Handler) client.Handler {
			return func(ctx context.Context, r *client.Request) (any, error) {
				if r.Method == protocol.NotificationRootsListChanged {
					told++
					return nil, unsent
				}
				return next(ctx, r)
			}
		}
		o := Options{Client: client.Options{ProtocolVersion: protocol.LatestLegacy, Middleware: []client.Middleware{failing}, Conn: conn.Tuning{Log: quiet}}, Each: func(of *mcpjson.Server, _ *client.Options) {
			of.Transport = away{}
			if there {
				of.Transport = inmem.New(s.Accept, inmem.Options{})
			}
		}}
		set := New(protocol.Implementation{Name: "test", Version: "1"}, o)
		if _, err := set.Apply(t.Context(), parse(t, `"hangs": $SELF{}`)); err != nil {
			t.Fatal(err)
		}
		if err := set.StartCopy(t.Context(), "hangs", "hangs 1", func() bool { return true }); err != nil {
			t.Fatal(err)
		}
		there = false
		if _, err := set.Apply(t.Context(), parse(t, `"hangs": $SELF{}, "away": $SELF{}`)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := set.AwaitReady(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), `server "away": `) {
			t.Errorf("AwaitReady: %v", err)
		}
		session, _ := set.Session("hangs")
		ended := make(chan error, 1)
		go func() {
			_, err := session.CallTool(context.Background(), &protocol.CallToolParams{Name: "hang"})
			ended <- err
		}()
		synctest.Wait()
		if err := set.RootsChanged(t.Context()); told != 2 || !errors.Is(err, unsent) || !strings.Contains(err.Error(), `server "hangs": `) || !strings.Contains(err.Error(), `server "hangs 1": `) {
			t.Errorf("RootsChanged has told %d sessions: %v", told, err)
		}
		if _, found := set.Session("hangs 1"); found {
			t.Error("a copy is taken for a server of the file")
		}
		closing, cancelClosing := context.WithTimeout(t.Context(), time.Second)
		defer cancelClosing()
		if err := set.Close(closing); !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), `server "hangs": `) {
			t.Errorf("Close: %v", err)
		}
		if err := <-ended; err == nil {
			t.Error("the call was answered")
		}
	})
}

// TestASetWaitsForNothing has servers that are away: nothing that a Set does waits for them, not even its end.
//
// Guarantees: G-0041.1, G-0041.5
func TestASetWaitsForNothing(t *testing.T) {
	set := New(protocol.Implementation{Name: "test", Version: "1"}, Options{
		Client: client.Options{Conn: conn.Tuning{Log: slog.New(slog.DiscardHandler)}},
		Each:   func(of *mcpjson.Server, _ *client.Options) { of.Transport = away{} },
	})
	files := []*mcpjson.File{parse(t, `"a": $SELF{}, "b": $SELF{}`), parse(t, `"a": $SELF{"env": {"X": "y"}}, "c": $SELF{}`), parse(t, `"c": $SELF{}`)}
	testenv.Within(t, "the Set does its work", func() {
		for _, file := range files {
			if _, err := set.Apply(t.Context(), file); err != nil {
				t.Error(err)
			}
		}
		var names []string
		for session := range set.Sessions() {
			names = append(names, session.Name())
		}
		if len(names) != 1 || names[0] != "c" {
			t.Errorf("the sessions are %v, want c", names)
		}
		if err := errors.Join(set.RootsChanged(t.Context()), set.Close(context.Background())); err != nil {
			t.Error(err)
		}
		if _, found := set.Session("c"); found {
			t.Error("the session is left after Close")
		}
		if _, err := set.Apply(t.Context(), files[0]); !errors.Is(err, client.ErrClosed) {
			t.Errorf("Apply after Close: %v", err)
		}
	})
}
