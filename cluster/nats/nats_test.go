package nats

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// coded returns an error of the JetStream API.
func coded(code int) error { return &jetstream.APIError{ErrorCode: jetstream.ErrorCode(code)} }

// What a server says becomes an error of package cluster, which keeps what it has said.
func TestErrorsOfAServer(t *testing.T) {
	all := []error{cluster.ErrConflict, cluster.ErrFull, cluster.ErrUnavailable, cluster.ErrDenied, cluster.ErrNotFound}
	ended, end := context.WithCancelCause(t.Context())
	why := errors.New("the caller has left")
	end(why)
	lost, lose := context.WithCancelCause(t.Context())
	lose(errLost)
	settings, lacks := error(&cluster.SettingsError{Bucket: "b"}), error(&ServerError{Server: "s"})
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want []error // of all; the error itself is always one of those that match
	}{
		"another revision":                  {t.Context(), coded(10071), []error{cluster.ErrConflict}},
		"another revision, with replicas":   {t.Context(), coded(10164), []error{cluster.ErrConflict}},
		"no resources":                      {t.Context(), coded(10023), []error{cluster.ErrFull}},
		"no memory":                         {t.Context(), coded(10028), []error{cluster.ErrFull}},
		"no storage":                        {t.Context(), coded(10047), []error{cluster.ErrFull}},
		"no room in the stream":             {t.Context(), coded(10077), []error{cluster.ErrFull}},
		"no room for so large a stream":     {t.Context(), coded(10122), []error{cluster.ErrFull}},
		"no leader":                         {t.Context(), coded(10008), []error{cluster.ErrUnavailable}},
		"something else":                    {t.Context(), errors.New("?"), []error{cluster.ErrUnavailable}},
		"wrong credentials":                 {t.Context(), natsgo.ErrAuthorization, []error{cluster.ErrUnavailable, cluster.ErrDenied}},
		"credentials that have expired":     {t.Context(), natsgo.ErrAuthExpired, []error{cluster.ErrUnavailable, cluster.ErrDenied}},
		"credentials that were revoked":     {t.Context(), natsgo.ErrAuthRevoked, []error{cluster.ErrUnavailable, cluster.ErrDenied}},
		"an account that has expired":       {t.Context(), natsgo.ErrAccountAuthExpired, []error{cluster.ErrUnavailable, cluster.ErrDenied}},
		"no permission":                     {t.Context(), fmt.Errorf("%w to publish", natsgo.ErrPermissionViolation), []error{cluster.ErrUnavailable, cluster.ErrDenied}},
		"other settings":                    {t.Context(), settings, nil},
		"a server that lacks something":     {t.Context(), lacks, nil},
		"no such key":                       {t.Context(), fmt.Errorf("%w: k", cluster.ErrNotFound), []error{cluster.ErrNotFound}},
		"no JetStream":                      {t.Context(), jetstream.ErrJetStreamNotEnabled, nil},
		"a caller that has left meanwhile":  {ended, why, []error{cluster.ErrUnavailable}},
		"a connection that is lost at last": {lost, errLost, []error{cluster.ErrUnavailable}},
	} {
		got := explain(c.ctx, c.err)
		if !errors.Is(got, c.err) {
			t.Errorf("%s: %v, which loses %v", name, got, c.err)
		}
		var matched []error
		for _, one := range all {
			if errors.Is(got, one) {
				matched = append(matched, one)
			}
		}
		if !sameErrors(matched, c.want) {
			t.Errorf("%s: %v matches %v, want %v", name, got, matched, c.want)
		}
	}
	if got := explain(ended, natsgo.ErrTimeout); !errors.Is(got, why) || errors.Is(got, natsgo.ErrTimeout) {
		t.Errorf("after the end of a context, %v, want its cause", got)
	}
	if got := explain(lost, natsgo.ErrTimeout); got != errLost {
		t.Errorf("after the end of the connection, %v, want that it was lost, said once", got)
	}
	if got := explain(ended, nil); got != nil {
		t.Errorf("%v of what has succeeded", got)
	}
}

func sameErrors(a, b []error) bool {
	left := map[error]bool{}
	for _, err := range a {
		left[err] = true
	}
	for _, err := range b {
		if !left[err] {
			return false
		}
		delete(left, err)
	}
	return len(left) == 0
}

// What had no effect, and may succeed soon, is tried again, and nothing else. A stream that nobody answers for is looked for.
func TestWhatIsTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		err         error
		again, lost bool
	}{
		"nothing":              {nil, false, false},
		"too few servers":      {coded(10005), true, false},
		"no leader":            {coded(10008), true, false},
		"not the leader":       {coded(10009), true, false},
		"a server is off":      {coded(10118), true, false},
		"a server is starting": {coded(10163), true, false},
		"another revision":     {coded(10071), false, false},
		"no room":              {coded(10077), false, false},
		"no answer to a read":  {errNoAnswer, true, false},
		"none to a write":      {errUnknown, false, false},
		"nobody answers":       {fmt.Errorf("x: %w", natsgo.ErrNoResponders), true, true},
		"no stream answers":    {jetstream.ErrNoStreamResponse, true, true},
		"there is no stream":   {jetstream.ErrStreamNotFound, true, true},
		"something else":       {errors.New("?"), false, false},
	} {
		if again(c.err) != c.again || lost(c.err) != c.lost {
			t.Errorf("%s: it is tried again: %t, and the stream looked for: %t", name, again(c.err), lost(c.err))
		}
	}
}

func TestVersionsOfServers(t *testing.T) {
	for version, want := range map[string]bool{
		"2.11.0": true, "2.11": true, "2.12.1-preview": true, "3.0.0": true, "3.1": true, "10.2.0": true,
		"2.10.29": false, "1.99.0": false, "2.9.0": false, "2": false, "": false, "2.x.0": false, "x.11.0": false,
	} {
		if atLeast(version, 2, 11) != want {
			t.Errorf("%q is 2.11 or newer: %t", version, !want)
		}
	}
}

// The pause before each attempt doubles up to five seconds. Up to a fifth of it is left out.
func TestPausesOfAttempts(t *testing.T) {
	for attempt, most := range map[int]time.Duration{1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 6: 3200 * time.Millisecond, 7: 5 * time.Second, 8: 5 * time.Second, 1000: 5 * time.Second} {
		for range 100 {
			if d := reconnectDelay(attempt); d > most || d <= most-most/5 {
				t.Fatalf("before attempt %d it waits for %v, want %v less up to a fifth", attempt, d, most)
			}
		}
	}
}

// TLS is used if anything asks for it, and with servers on other machines unless the options say that it need not be.
func TestWhenTLSIsUsed(t *testing.T) {
	const local, remote, secure = "nats://127.0.0.1:4222", "nats://nats.internal:4222", "tls://127.0.0.1:4222"
	for _, c := range []struct {
		urls          []string
		plain         bool
		want, learned bool // whether TLS is used, and whether further servers are learned
	}{
		{[]string{local}, false, false, false}, {[]string{local}, true, false, true}, {[]string{remote}, false, true, true}, {[]string{remote}, true, false, true},
		{[]string{local, remote}, false, true, true}, {[]string{remote, local}, false, true, true}, {[]string{secure, local}, true, true, true}, {[]string{local, secure}, true, true, true},
	} {
		o, secure, err := Options{URLs: c.urls, Cluster: "c", Plain: c.plain}.check()
		if err != nil || secure != c.want {
			t.Errorf("%v, plain: %t: TLS is used: %t, %v", c.urls, c.plain, secure, err)
		}
		if n := o.natsOptions(t.Context(), secure); n.Secure != c.want || n.IgnoreDiscoveredServers == c.learned {
			t.Errorf("%v, plain: %t: TLS is used: %t; others are learned: %t", c.urls, c.plain, n.Secure, !n.IgnoreDiscoveredServers)
		}
	}
}

// A server knows the node's cluster by the name and the inbox of the connection, which is made again for ever, and keeps nothing to send later.
func TestWhatTheConnectionIsToldOfTheOptions(t *testing.T) {
	n := Options{Cluster: "c", User: "u", Password: "p", Token: "t"}.natsOptions(t.Context(), false)
	if n.User != "u" || n.Password != "p" || n.Token != "t" || n.Name != "bowline c" || n.InboxPrefix != "_INBOX_bl_c" || !n.NoEcho {
		t.Errorf("the server is told %q %q %q, the name %q, the inbox %q; no echo: %t", n.User, n.Password, n.Token, n.Name, n.InboxPrefix, n.NoEcho)
	}
	if !n.AllowReconnect || n.MaxReconnect != -1 || n.ReconnectBufSize != -1 || !n.IgnoreAuthErrorAbort || n.CustomReconnectDelayCB == nil {
		t.Errorf("it is made again: %t, %d times; it keeps %d bytes; it goes on after refusals: %t", n.AllowReconnect, n.MaxReconnect, n.ReconnectBufSize, n.IgnoreAuthErrorAbort)
	}
}

// A connection on which a write has failed is closed, so that no other one waits. It is made within two seconds, unless the engine is closed before.
func TestConnectionsOfTheEngine(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	ctx, end := context.WithCancel(t.Context())
	var limit time.Duration
	dial := dialer{ctx, func(ctx context.Context, network, address string) (net.Conn, error) {
		deadline, _ := ctx.Deadline()
		limit = time.Until(deadline)
		if network != "tcp" || address != "server:1" {
			t.Errorf("dialled %s %s", network, address)
		}
		return near, ctx.Err()
	}}
	conn, err := dial.Dial("tcp", "server:1")
	if err != nil || limit <= 0 || limit > dialTimeout {
		t.Fatalf("got %v, within %v", err, limit)
	}
	if err := errors.Join(conn.SetWriteDeadline(time.Unix(1, 0)), far.SetReadDeadline(time.Unix(1, 0))); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("x")); err == nil {
		t.Error("a write after its deadline has succeeded")
	}
	if _, err := far.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after a write has failed the other side gets %v, want the end", err)
	}
	end()
	if _, err := dial.Dial("tcp", "server:1"); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the engine it dials: %v", err)
	}
}

// What the leader says of a key: a value, a mark that it was deleted, the server's mark that it has expired, or nothing.
func TestTheLatestOfAKey(t *testing.T) {
	with := func(header, value string) string {
		lines := base64.StdEncoding.EncodeToString([]byte("NATS/1.0\r\n" + header + ": " + value + "\r\n\r\n"))
		return fmt.Sprintf(`{"message":{"seq":7,"hdrs":%q,"data":"dmFsdWU="}}`, lines)
	}
	for name, c := range map[string]struct {
		answer   string
		revision uint64
		exists   bool
		code     int // of the error
	}{
		"a value":               {`{"message":{"seq":7,"data":"dmFsdWU="}}`, 7, true, 0},
		"one with a header":     {with(roomHeader, "--"), 7, true, 0},
		"a mark":                {with(operationHeader, purged), 7, false, 0},
		"the mark of a server":  {with(jetstream.MarkerReasonHeader, "MaxAge"), 7, false, 0},
		"nothing":               {`{"error":{"code":404,"err_code":10037}}`, 0, false, 0},
		"a server without time": {`{"error":{"code":503,"err_code":10008}}`, 0, false, 10008},
	} {
		revision, value, exists, err := decodeLatest([]byte(c.answer))
		if revision != c.revision || exists != c.exists || code(err) != c.code || exists && string(value) != "value" {
			t.Errorf("%s: revision %d, %q, exists: %t, %v", name, revision, value, exists, err)
		}
	}
	if _, _, _, err := decodeLatest([]byte("{")); err == nil {
		t.Error("half an answer was read")
	}
}
