package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/limits"
	"github.com/bowline-mcp/bowline/gateway/internal/names"
	"github.com/bowline-mcp/bowline/gateway/internal/pool"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// longestWait is how long a call waits for a server that is away.
const longestWait = 10 * time.Second

// MetaOutcome is the member of _meta with the Outcome of a call that its server has not answered.
const MetaOutcome = "io.github.bowline-mcp/outcome"

// An Outcome says what became of a request that its server has not answered.
type Outcome struct {
	Server      string        `json:"server"` // as in the file; empty: the gateway itself is away
	State       conn.State    `json:"state"`  // of the connection with it
	Reason      string        `json:"reason,omitempty"`
	NextAttempt time.Time     `json:"nextAttempt,omitzero"`
	Delivery    conn.Delivery `json:"delivery"` // "not sent": the server has certainly not executed it

	RetryAfter float64 `json:"retryAfterS,omitzero"` // seconds, after which a limit of the file, or a server over HTTP, takes the next one

	Login string `json:"login,omitzero"` // the page at which the user of this call has to log in first. It works once: nobody else should get it
}

// awayError is the error of a request that its server has not answered.
type awayError struct {
	Outcome
	why     string   // why this request failed, if that is not why the server is away
	limited bool     // the server was not asked: the request is beyond a limit of the file
	noLogin bool     // the server wants a login
	noUser  bool     // which this user has not, and others may have
	scopes  []string // that it wants the login for; nil: it has not said
}

// Error says what is wrong with the server, when that may change, and whether a retry is safe.
func (e *awayError) Error() string {
	var text strings.Builder
	switch {
	case e.noUser:
		fmt.Fprintf(&text, "the server %q needs the login of this user, %s", e.Server, e.login())
	case e.limited:
		fmt.Fprintf(&text, "the server %q was not asked: %s", e.Server, e.Reason)
		e.retry(&text)
	case e.State == conn.Ready:
		fmt.Fprintf(&text, "the server %q has not answered: %s", e.Server, e.why)
		e.retry(&text)
	case e.State == conn.Closing: // a word of connections: who has stopped the server reads "stopped" everywhere else
		fmt.Fprintf(&text, "the server %q is away: %s", e.Server, cmp.Or(e.Reason, e.why))
	default:
		fmt.Fprintf(&text, "the server %q is away (%s)", e.Server, e.State)
		if e.Reason != "" {
			text.WriteString(": " + e.Reason)
		}
	}
	if !e.NextAttempt.IsZero() {
		fmt.Fprintf(&text, "; the next attempt is in %s", max(time.Until(e.NextAttempt), 0).Round(time.Second))
	}
	if e.Delivery == conn.NotSent {
		text.WriteString(". It was not executed")
	} else {
		text.WriteString(". It may have been executed")
	}
	return text.String()
}

// login says what the user has to do, or why he is not logged in.
func (e *awayError) login() string {
	if e.Login != "" {
		return "who has to open " + e.Login + " in a browser, and log in there; then try again"
	}
	return "who is not logged in there: " + e.Reason
}

func (e *awayError) retry(text *strings.Builder) {
	if e.RetryAfter > 0 {
		fmt.Fprintf(text, "; try again in %.0f s", math.Ceil(e.RetryAfter))
	}
}

// toolResult is the answer to a call of a tool.
func (e *awayError) toolResult() (json.RawMessage, error) {
	raw, err := protocol.Marshal(e.Outcome)
	if err != nil {
		return nil, err
	}
	result := &protocol.CallToolResult{Content: protocol.Contents{protocol.Text(e.Error())}, IsError: true}
	result.Meta = protocol.Meta{MetaOutcome: raw}
	return protocol.Marshal(result)
}

// fault is the answer to any other request.
func (e *awayError) fault() error {
	data, err := protocol.Marshal(map[string]Outcome{MetaOutcome: e.Outcome})
	if err != nil {
		return err
	}
	var code int64 = jsonrpc.CodeInternalError
	if e.limited {
		code = jsonrpc.CodeOverloaded
	}
	return &jsonrpc.Error{Code: code, Message: e.Error(), Data: data}
}

// beyond is the answer to a request that a limit of the file does not let pass.
func (g *Gateway) beyond(u *upstream, refused *limits.Refusal) *awayError {
	away := stopped(u.Name, refused.Why)
	away.limited, away.RetryAfter = true, refused.After.Seconds()
	if session, running := g.set.Session(u.Name); running {
		away.State = session.Status().State
	}
	return away
}

// crowded says that a client gets no connection of its own with a server.
func crowded(u *upstream, err error) *awayError {
	away := stopped(u.Name, err.Error())
	away.limited = errors.Is(err, pool.ErrFull)
	return away
}

// stateLost says that a stateful tool is not called, since earlier calls of the client have left nothing where it would run.
func stateLost(u *upstream) *awayError {
	away := stopped(u.Name, "it has lost what earlier calls of this client have left there, since it was started again, or the connection was; begin again")
	away.State, away.limited = conn.Ready, true
	return away
}

// removed says that a server has left the file since its name was looked up.
func removed(name string) *awayError { return stopped(name, "the file does not have it any more") }

func stopped(name, why string) *awayError {
	return &awayError{Outcome: Outcome{Server: name, State: conn.Closing, Reason: why, Delivery: conn.NotSent}}
}

// ready returns the session with a server that is ready. It starts one that is asleep, wakes one that waits before its next attempt, and
// waits for it.
func (g *Gateway) ready(ctx context.Context, u *upstream, c *connection) (*client.Session, *awayError) {
	why := "it was stopped, and answers when it is started again"
	if err := g.lifecycle.start(ctx, u, c); err != nil {
		why = err.Error()
	} else if wrong := u.failed.Load(); wrong != nil {
		why = *wrong
	}
	session, running := g.lifecycle.session(u, c)
	if !running {
		return nil, stopped(u.Name, why)
	}
	status := session.Status()
	if status.State != conn.Ready {
		status = await(ctx, c, session, status)
	}
	if status.State != conn.Ready {
		return nil, &awayError{Outcome: outcomeOf(u.Name, status, conn.NotSent), noLogin: status.LastFailure.Kind == conn.AuthRequired}
	}
	return session, nil
}

// reach returns the session with a server that is ready, and on which a request may run.
func (g *Gateway) reach(ctx context.Context, u *upstream, c *connection) (*client.Session, *awayError) {
	session, away := g.ready(ctx, u, c)
	if away != nil {
		return nil, away
	}
	session, ok := u.ofRun(ctx, session)
	if !ok {
		return nil, stopped(u.Name, "the task was on another connection, which has ended")
	}
	if session, lost := inState(ctx, u, session); !lost {
		return session, nil
	}
	return nil, stateLost(u)
}

// findLater looks for a tool or prompt that nobody offers, and that may be one of a server which has not said yet what it has. It waits for such a server as
// a call waits for one that is away, and not beyond a time. If nobody has it then, it returns what is wrong with the first of them, with what the name may mean there. What a client may
// not see takes the same way as what does not exist: neither may be there.
func (g *Gateway) findLater(ctx context.Context, until time.Time, kind catalogue.Kind, name string) (item catalogue.Item, found bool, away *awayError) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for _, may := range g.sight.now(ctx).MayMean(kind, name) {
		u := g.upstream(may.Server)
		if u == nil {
			continue
		}
		wrong := g.awaitOffer(ctx, u, kind)
		if item, found := g.sight.now(ctx).Find(kind, name); found {
			return item, true, nil
		}
		if away == nil && wrong != nil {
			item, away = may, wrong
		}
	}
	return item, false, away
}

// awaitOffer waits until a server has said what it has of a kind.
func (g *Gateway) awaitOffer(ctx context.Context, u *upstream, kind catalogue.Kind) *awayError {
	if _, away := g.ready(ctx, u, &u.shared); away != nil {
		return away
	}
	err := g.awaitList(ctx, u.Name, kind)
	if err == nil {
		return nil
	}
	return &awayError{Outcome: Outcome{Server: u.Name, State: conn.Ready, Reason: err.Error(), Delivery: conn.NotSent}, why: err.Error()}
}

// await waits until a server is ready, for as long as there is hope. It returns what it was at last.
func await(ctx context.Context, c *connection, session *client.Session, status conn.Status) conn.Status {
	deadline := time.Now().Add(longestWait)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for woken := wake(c, session, status); status.State != conn.Ready; status = session.Status() {
		if !woken && isHopeless(status, deadline) {
			break
		}
		woken = false
		select {
		case <-status.Changed():
		case <-ctx.Done():
			return status
		}
	}
	return status
}

// isHopeless reports whether waiting until the deadline is of no use.
func isHopeless(s conn.Status, deadline time.Time) bool {
	return s.State == conn.Closing || needsPerson(s) || s.State == conn.Backoff && s.NextAttempt.After(deadline)
}

// needsPerson reports whether somebody has to do something before another attempt can succeed.
func needsPerson(s conn.Status) bool {
	kind := s.LastFailure.Kind
	return s.State == conn.Backoff && (kind == conn.AuthRequired || kind == conn.ExecutableMissing)
}

// wake makes a server try again now, and reports whether it does. Calls must not make a broken server start in a loop.
func wake(c *connection, session *client.Session, s conn.Status) bool {
	if s.State != conn.Backoff || needsPerson(s) || !c.mayWake(time.Now()) {
		return false
	}
	session.Wake()
	return true
}

// failed says what became of a request that has failed with err.
func (g *Gateway) failed(u *upstream, c *connection, err error) *awayError {
	e := &awayError{Outcome: Outcome{Server: u.Name, State: conn.Closing, Delivery: conn.Unknown}, why: err.Error(), noLogin: errors.Is(err, transport.ErrAuthRequired)}
	if session, running := g.lifecycle.session(u, c); running {
		e.Outcome = outcomeOf(u.Name, session.Status(), conn.Unknown)
	}
	if call := (*conn.CallError)(nil); errors.As(err, &call) {
		e.Delivery, e.why = call.Delivery, withoutDelivery(err, call)
	}
	if login := (*auth.LoginError)(nil); errors.As(err, &login) {
		e.scopes = login.Scopes
	}
	if status := (*transport.StatusError)(nil); errors.As(err, &status) {
		e.RetryAfter = status.RetryAfter.Seconds()
	}
	return e
}

// withoutDelivery is the text of err, of which call is a part, without whether the request may have been executed: the answer says that at its end.
func withoutDelivery(err error, call *conn.CallError) string {
	answered := *call
	answered.Delivery = conn.Sent
	return strings.Replace(err.Error(), call.Error(), answered.Error(), 1)
}

func outcomeOf(name string, s conn.Status, d conn.Delivery) Outcome {
	o := Outcome{Server: name, State: s.State, NextAttempt: s.NextAttempt, Delivery: d}
	if s.LastFailure.Kind != "" {
		o.Reason = s.LastFailure.Error()
	}
	return o
}

// faultOf returns the error with which a server has answered, or the gateway in its place, which goes to the client as it is; nil if nobody has. Over HTTP that
// of an overloaded server comes with a status, which ends the call for another cause.
func faultOf(err error) error {
	if far := (*tooFarError)(nil); errors.As(err, &far) {
		return far.fault
	}
	var call *conn.CallError
	var status *transport.StatusError
	var fault *jsonrpc.Error
	if !errors.As(err, &call) || !errors.As(call.Err, &fault) {
		return nil
	}
	if call.Cause != conn.PeerError && !(errors.As(call.Err, &status) && status.Overloaded()) {
		return nil
	}
	return &jsonrpc.Error{Code: fault.Code, Message: fault.Message, Data: fault.Data}
}

// notFound is the answer for a resource that nobody has.
func notFound(ctx context.Context, uri string) error {
	data, err := protocol.Marshal(protocol.ResourceNotFoundData{URI: uri})
	if err != nil {
		return err
	}
	return &jsonrpc.Error{Code: codeNotFound(ctx), Message: "resource not found: " + quoted(uri), Data: data}
}

// inEra returns the error of a server with the code that the client's revision has for a resource that is not there.
func inEra(ctx context.Context, err error, uri string) error {
	var fault *jsonrpc.Error
	var of protocol.ResourceNotFoundData
	if !errors.As(err, &fault) {
		return err
	}
	modern := fault.Code == jsonrpc.CodeInvalidParams && protocol.Unmarshal(fault.Data, &of) == nil && of.URI == uri
	if modern || fault.Code == protocol.CodeResourceNotFound {
		return &jsonrpc.Error{Code: codeNotFound(ctx), Message: fault.Message, Data: fault.Data}
	}
	return err
}

func codeNotFound(ctx context.Context) int64 {
	if protocol.IsModern(server.RequestFrom(ctx).Client.ProtocolVersion) {
		return jsonrpc.CodeInvalidParams
	}
	return protocol.CodeResourceNotFound
}

// quoted returns a text of a client as it may appear in an error.
func quoted(text string) string { return names.Quote(text, 128) }
