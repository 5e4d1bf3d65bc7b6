package nats

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// A ServerError says that a server does not have what an Engine needs.
type ServerError struct {
	Server string // its URL, without a password
	Reason string // what is missing, and what to do
}

func (e *ServerError) Error() string { return "nats: the server " + e.Server + " " + e.Reason }

// Connect returns an Engine that is connected to a server. While no server can be reached, it
// tries until ctx ends; then the error matches cluster.ErrUnavailable. It fails at once if the
// options are invalid (cluster.ErrInvalid), if a server refuses the credentials (cluster.ErrDenied)
// or its certificate is not trusted, and if it does not have what an Engine needs (*ServerError).
// The caller closes the Engine.
func Connect(ctx context.Context, o Options) (cluster.Engine, error) {
	o, secure, err := o.check()
	if err != nil {
		return nil, fmt.Errorf("nats: connect: %w", err)
	}
	e := newEngine(o)
	if err := e.connect(ctx, secure); err != nil {
		e.Close()
		if o.Dial == nil { // otherwise the URLs are only names
			return nil, fmt.Errorf("nats: connect to %s: %w", o.redacted(), err)
		}
		return nil, fmt.Errorf("nats: connect: %w", err)
	}
	return e, nil
}

func (e *engine) connect(ctx context.Context, secure bool) error {
	defer context.AfterFunc(ctx, e.stopDialing)() // then nobody needs the engine
	for attempt := 1; ; attempt++ {
		err := e.open(secure)
		if err == nil {
			return e.examine(ctx)
		}
		if final(err) {
			return err
		}
		if attempt == 1 && e.options.Dial == nil {
			e.log.Warn("NATS cannot be reached yet", "servers", e.options.redacted(), "err", err)
		}
		if paused := wait.Sleep(ctx, reconnectDelay(attempt)); paused != nil {
			return fmt.Errorf("%w: %w; the last attempt: %w", cluster.ErrUnavailable, paused, err)
		}
	}
}

// open makes the connection, which then lasts until the engine is closed.
func (e *engine) open(secure bool) error {
	n := e.options.natsOptions(e.dialing, secure)
	n.DisconnectedErrCB = func(_ *natsgo.Conn, err error) { e.disconnected(err) }
	n.ReconnectedCB = func(*natsgo.Conn) { e.reconnected() }
	n.ClosedCB = func(*natsgo.Conn) { e.gone() }
	n.AsyncErrorCB = func(_ *natsgo.Conn, sub *natsgo.Subscription, err error) { e.failed(sub, err) }
	conn, err := n.Connect()
	if err != nil {
		return explain(context.Background(), err)
	}
	js, err := jetstream.New(conn, jetstream.WithClientTrace(&jetstream.ClientTrace{
		RequestSent:      func(string, []byte) { e.sent.Add(1) },
		ResponseReceived: func(string, []byte, natsgo.Header) { e.received.Add(1) },
	}))
	if err != nil {
		conn.Close()
		return err
	}
	e.attach(conn, js)
	return nil
}

// answerWithin is how long a server may take to say what it has, before it is asked again.
const answerWithin = time.Second

// final reports whether another attempt would get the same error.
func final(err error) bool {
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	return errors.Is(err, cluster.ErrDenied) || errors.As(err, &certificate) || errors.As(err, &authority) ||
		errors.Is(err, natsgo.ErrSecureConnWanted) || errors.Is(err, natsgo.ErrSecureConnRequired)
}

// examine returns what a server does not have. It waits until JetStream is ready.
func (e *engine) examine(ctx context.Context) error {
	lacks := func(format string, args ...any) error {
		return &ServerError{Server: e.conn.ConnectedUrlRedacted(), Reason: fmt.Sprintf(format, args...)}
	}
	if version := e.conn.ConnectedServerVersion(); !atLeast(version, 2, 11) {
		return lacks("has version %s; use 2.11 or newer", version)
	}
	if most := e.conn.MaxPayload(); most < cluster.MaxMessage+room {
		return lacks("accepts messages of %d bytes; set max_payload to 1MB, its default", most)
	}
	for attempt := 1; ; attempt++ {
		err := e.account(ctx)
		switch {
		case errors.Is(err, jetstream.ErrJetStreamNotEnabled):
			return lacks("has no JetStream; enable it with jetstream {} in its configuration, or -js")
		case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
			return lacks("has no JetStream for the account of these credentials; enable it for the account")
		case err == nil || errors.Is(err, cluster.ErrDenied):
			return err
		}
		if paused := wait.Sleep(ctx, min(reconnectDelay(attempt), answerWithin)); paused != nil {
			return fmt.Errorf("%w: %w; JetStream is not ready: %w", cluster.ErrUnavailable, paused, err)
		}
	}
}

// account asks for JetStream. While the servers elect a leader, nobody answers.
func (e *engine) account(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return e.try(ctx, func(op *operation) error {
		_, err := e.js.AccountInfo(op)
		return err
	}, subjectOf("$JS.API.INFO"))
}

// atLeast reports whether a version such as 2.15.3 is one or newer.
func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	ofMajor, err1 := strconv.Atoi(parts[0])
	ofMinor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (ofMajor > major || ofMajor == major && ofMinor >= minor)
}
