package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Errors name their cause once, in words. The guide shows each text.
//
// Guarantees: G-0068.1, G-0068.2, G-0068.3
func TestTextsOfErrorsAreThoseOfTheGuide(t *testing.T) {
	raw, err := os.ReadFile("../../docs/guide/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	call := func(cause conn.Cause, delivery conn.Delivery, err error) error {
		return &conn.CallError{Method: protocol.MethodCallTool, ID: 7, Cause: cause, Delivery: delivery, Err: err}
	}
	dial := func(err error) error {
		address := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}
		return &transport.UnreachableError{Address: "127.0.0.1:9", Err: &net.OpError{Op: "dial", Net: "tcp", Addr: address, Err: os.NewSyscallError("connect", err)}}
	}
	nowhere := &transport.UnreachableError{Address: "mcp.invalid", Err: &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "mcp.invalid", Server: "127.0.0.53:53"}}}
	shaking := func(err error) conn.Reason {
		return conn.Reason{Kind: conn.HandshakeFailed, Err: &conn.CallError{Method: protocol.MethodDiscover, Cause: conn.Refused, Delivery: conn.NotSent, Err: err}}
	}
	looping := conn.Reason{Kind: conn.CrashLooping, Err: shaking(dial(syscall.ECONNREFUSED))}
	exited := conn.Reason{Kind: conn.Exited, Err: &transport.ExitError{Command: "adder", Status: 3, Stderr: "no API key\n"}}
	away := func(why conn.Reason) error {
		return call(conn.Refused, conn.NotSent, &conn.StateError{State: conn.Backoff, Reason: why})
	}
	twice := &conn.CallError{Method: protocol.MethodCallTool, Cause: conn.LinkLost, Delivery: conn.Unknown, Err: exited, Attempts: make([]conn.Attempt, 1)}
	since := time.Date(2026, 11, 26, 12, 0, 7, 0, time.UTC)
	gaveUp := &client.ConnectError{Attempts: 3, Since: since, Last: looping, Err: errors.New("no server within 5s")}
	failed := &client.ConnectError{Attempts: 1, Since: since, Last: exited, Err: exited}
	for want, err := range map[string]error{
		"tools/call: unreachable: connection refused (127.0.0.1:9); not executed":                                                      away(looping),
		"tools/call: unreachable: no such host (mcp.invalid); not executed":                                                            away(shaking(nowhere)),
		`tools/call: not connected: "adder" exited with status 3: no API key; not executed`:                                            away(exited),
		"tools/call: not connected: handshake failed: server/discover: HTTP status 404: not found; not executed":                       away(shaking(&transport.StatusError{Status: 404, Body: "not found"})),
		"tools/call: not connected yet; not executed":                                                                                  call(conn.Refused, conn.NotSent, &conn.StateError{State: conn.Initializing, Reason: conn.Reason{Kind: conn.LinkOpened}}),
		"tools/call: HTTP status 404: not found; not executed":                                                                         call(conn.Refused, conn.NotSent, &transport.StatusError{Status: 404, Body: "not found"}),
		`tools/call: connection lost: "adder" exited with status 3: no API key; it may have been executed`:                             call(conn.LinkLost, conn.Unknown, exited),
		`tools/call: connection lost: "adder" exited with status 3: no API key; it may have been executed (2 attempts)`:                twice,
		"tools/call: connection lost: no sign of life for 15s; it may have been executed":                                              call(conn.LinkLost, conn.Unknown, conn.Reason{Kind: conn.LivenessLost, Err: errors.New("no sign of life for 15s")}),
		"tools/call: timed out; it may have been executed":                                                                             call(conn.TimedOut, conn.Unknown, conn.ErrTimedOut),
		"tools/call: timed out: context deadline exceeded; not executed":                                                               call(conn.TimedOut, conn.NotSent, context.DeadlineExceeded),
		"tools/call: cancelled; it may have been executed":                                                                             call(conn.Cancelled, conn.Unknown, context.Canceled),
		"tools/call: the connection is closed; not executed":                                                                           call(conn.ShutDown, conn.NotSent, conn.Reason{Kind: conn.Drained}),
		"tools/call: the incarnation that this call was for no longer exists; not executed":                                            call(conn.Refused, conn.NotSent, conn.ErrStale),
		"tools/call: jsonrpc: error -32602: unknown tool":                                                                              call(conn.PeerError, conn.Sent, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown tool"}),
		"client: connect: unreachable: connection refused (127.0.0.1:9); gave up after 3 attempts since 12:00:07: no server within 5s": gaveUp,
		`client: connect: "adder" exited with status 3: no API key`:                                                                    failed,
		`client: connect: start "adder": exec: "adder": executable file not found in $PATH`:                                            connectFails(conn.Reason{Kind: conn.ExecutableMissing, Err: &transport.StartError{Command: "adder", Err: &exec.Error{Name: "adder", Err: exec.ErrNotFound}}}),
		"client: connect: no handshake within 10s":                                                                                     connectFails(conn.Reason{Kind: conn.InitTimedOut, Err: errors.New("no handshake within 10s")}),
		"client: connect: auth required: server/discover: HTTP status 401":                                                             connectFails(conn.Reason{Kind: conn.AuthRequired, Err: shaking(&transport.StatusError{Status: 401}).Err}),
	} {
		if got := err.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if !strings.Contains(string(raw), "`"+want+"`") {
			t.Errorf("docs/guide/errors.md does not show %s", want)
		}
	}
	failed.Attempts = 3
	if want := `client: connect: "adder" exited with status 3: no API key, after 3 attempts since 12:00:07`; failed.Error() != want {
		t.Errorf("got  %s\nwant %s", failed, want)
	}
	if why := new(conn.Reason); !errors.As(gaveUp.Last, why) || why.Kind != conn.CrashLooping || !errors.Is(gaveUp, syscall.ECONNREFUSED) {
		t.Errorf("got the kind %s, want crash-looping with its cause", why.Kind)
	}
}

func connectFails(why conn.Reason) error {
	return &client.ConnectError{Attempts: 1, Last: why, Err: why}
}

// A server that nobody runs is unreachable in every text, while the Reason stays crash-looping.
//
// Guarantees: G-0068.1, G-0068.2, G-0001.8
func TestRefusedConnectionIsUnreachable(t *testing.T) {
	listener := listenAlone(t)
	address := listener.Addr().String()
	listener.Close()
	failing := make(chan struct{}, 100)
	o := client.Options{Conn: conn.Tuning{BackoffMin: time.Millisecond, BackoffMax: time.Millisecond, Log: slog.New(slog.DiscardHandler), Final: func(why conn.Reason) bool {
		failing <- struct{}{}
		return false
	}}}
	c := client.New(clientInfo, o)
	defer c.Close(context.Background())
	session, err := c.Start(t.Context(), "nobody", &streamable.Client{URL: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		<-failing
	}
	status := session.Status()
	want := "unreachable: connection refused (" + address + ")"
	if status.LastFailure.Kind != conn.CrashLooping || status.LastFailure.Error() != want || !errors.Is(status.LastFailure, syscall.ECONNREFUSED) {
		t.Errorf("got %s: %v, want crash-looping: %s", status.LastFailure.Kind, status.LastFailure, want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = client.New(clientInfo, o).Connect(ctx, &streamable.Client{URL: "http://" + address})
	pattern := regexp.MustCompile(`^client: connect: ` + regexp.QuoteMeta(want) + `; gave up after \d+ attempts? since \d\d:\d\d:\d\d: context deadline exceeded$`)
	if err == nil || !pattern.MatchString(err.Error()) {
		t.Errorf("Connect: got  %v\nwant %s", err, pattern)
	}
}

// A request that was sent and refused by its status is not called "not sent".
//
// Guarantees: G-0068.3
func TestRefusedStatusIsNotExecuted(t *testing.T) {
	site := httptest.NewServer(responds(404, "text/plain", "no such page"))
	defer site.Close()
	_, err := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy}).Connect(timeoutContext(t), &streamable.Client{URL: site.URL})
	const want = "client: connect: handshake failed: initialize: HTTP status 404: no such page"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// What a Restored event says of a server that refuses something names it.
//
// Guarantees: G-0030.2
func TestTextsOfWhatIsNotRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures []string
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		refuse := func(f frame, before func(frame) []string) []string {
			if f.Link == 2 {
				return []string{f.fault(-32603, `null`)}
			}
			return before(f)
		}
		s.on(protocol.MethodSetLogLevel, refuse)
		s.on(protocol.MethodSubscribe, refuse)
		session := openFake(t, s, client.Options{LogLevel: protocol.LogError, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if restored, ok := e.(*client.Restored); ok {
				for _, err := range restored.Failures {
					subject, _, _ := strings.Cut(err.Error(), ": ")
					failures = append(failures, subject)
				}
			}
		}})
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "mem:a"}); err != nil {
			t.Fatal(err)
		}
		reconnect(t, s, session)
		if want := []string{"log level error", `subscription to "mem:a"`}; !slices.Equal(failures, want) {
			t.Errorf("got failures of %q, want those of %q", failures, want)
		}
	})
}
