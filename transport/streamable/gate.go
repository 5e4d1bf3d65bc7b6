package streamable

import (
	"fmt"
	"net/http"
	"strings"

	httpheader "github.com/bowline-mcp/bowline/internal/header"
	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A kind says what a request is, as far as the gate knows it: at first its method. A POST gets its final kind when its body was read.
type kind uint16

const (
	otherMethod kind = 1 << iota
	get
	del
	post             // its body was not read yet
	modernRequest    // since 2026-07-28: a message that names its revision itself, or whose headers do
	modernOther      // a notification, or what is refused
	initializing     // 2025-03-26 to 2025-11-25: it begins a session
	sessionRequest   // it belongs to a session, as the next one; perhaps a batch
	sessionOther     // notifications and responses only
	statelessRequest // the same revisions, with HandlerOptions.Stateless; perhaps initialize
	statelessOther
	kinds = iota

	anyKind      kind = 1<<kinds - 1
	anyModern         = modernRequest | modernOther
	anySession        = sessionRequest | sessionOther
	anyStateless      = statelessRequest | statelessOther
	anyLegacy         = initializing | anySession | anyStateless
	opensLink         = modernRequest | initializing | statelessRequest
)

// A check is one reason to refuse a request, or one thing to learn about it which may fail.
type check struct {
	of   kind   // the requests that are checked; others pass
	what string // what holds for a request that passes

	// A check with refuses has one response. Refuses returns its text, or "" if the request passes.
	status  int
	code    int64 // of the JSON-RPC error in the response; 0: the response is plain text
	allow   string
	refuses func(*arrival) string

	// A step learns something, and refuses in several ways. May lists them. Status 0 stands for those that the program determines.
	step func(*arrival) *refusal
	may  []verdict
}

// A verdict is the status of a response, and the code of the JSON-RPC error in it.
type verdict struct {
	status int
	code   int64
}

// These are the verdicts that several steps have.
var (
	busy     = verdict{http.StatusServiceUnavailable, jsonrpc.CodeOverloaded}        // it may be sent again; nothing was executed
	failing  = verdict{http.StatusServiceUnavailable, jsonrpc.CodeInternalError}     // the server does not serve it
	absent   = verdict{http.StatusNotFound, jsonrpc.CodeInvalidRequest}              // the client begins another session
	bad      = verdict{http.StatusBadRequest, jsonrpc.CodeInvalidRequest}            //
	tooLarge = verdict{http.StatusRequestEntityTooLarge, jsonrpc.CodeInvalidRequest} //
	atOther  = verdict{http.StatusMisdirectedRequest, 0}                             // only to another node, which looks further
	denied   = verdict{}                                                             // a Denial of the program
)

// door is what every request passes first, wherever its session is.
var door = []check{
	{of: anyKind, what: "the handler is open, or another node takes its place", step: (*arrival).findsOpen, may: []verdict{busy, atOther}},
	{of: anyKind, what: "no browser sends it for a page of another site, or under a rebound host name", status: http.StatusForbidden, refuses: (*arrival).ofOtherSite},
}

// gate is what a request passes, in this order, at the node that serves it. What a request could learn about others comes after its
// sender is established, and what costs much after what costs little: no body is read from a sender who is not established, and
// nothing is begun that a later check would have to undo, except for a link.
var gate = []check{
	// By the method and the headers.
	{of: otherMethod, what: "its method is one of these", status: http.StatusMethodNotAllowed, allow: "GET, POST, DELETE", refuses: (*arrival).always},
	{of: get | del, what: "it belongs to a session", status: http.StatusMethodNotAllowed, allow: "POST", refuses: (*arrival).withoutSession},
	{of: get, what: "it has no body, for whose end net/http would wait", status: http.StatusBadRequest, refuses: (*arrival).hasBody},
	{of: post, what: "its body is JSON", status: http.StatusUnsupportedMediaType, refuses: (*arrival).otherType},
	{of: post, what: "its client accepts JSON and events", status: http.StatusNotAcceptable, refuses: (*arrival).acceptsLess},
	{of: post, what: "its body is not announced as too large", status: tooLarge.status, code: tooLarge.code, refuses: (*arrival).announcesTooMuch},

	// By the sender, who may be told more from here on. A session that is elsewhere comes here first.
	{of: anyKind, what: "its sender is established, and its session is at this node", step: (*arrival).establish,
		may: []verdict{denied, {http.StatusInternalServerError, 0}, busy, absent, {http.StatusInternalServerError, jsonrpc.CodeInternalError}}},

	// By the body, which also says of which kind the request is.
	{of: post, what: "its body arrives, and is a message or a batch", step: (*arrival).readBody,
		may: []verdict{bad, {http.StatusBadRequest, jsonrpc.CodeParseError}, {http.StatusBadRequest, 0}, {http.StatusRequestTimeout, 0}, tooLarge, busy}},
	{of: anyModern, what: "it is no batch", status: bad.status, code: bad.code, refuses: (*arrival).isBatch},
	{of: anyModern, what: "it is no response", status: bad.status, code: bad.code, refuses: (*arrival).isResponse},
	{of: modernRequest, what: "it names its revision", status: http.StatusBadRequest, code: jsonrpc.CodeInvalidParams, refuses: (*arrival).lacksVersion},
	{of: anyModern, what: "its headers say the same as its body", status: http.StatusBadRequest, code: protocol.CodeHeaderMismatch, refuses: (*arrival).differs},
	{of: anyLegacy, what: "initialize names no session", status: bad.status, code: bad.code, refuses: (*arrival).beginsTwice},
	{of: anyStateless, what: "no session is named, because there are none", status: absent.status, code: absent.code, refuses: (*arrival).namesSession},
	{of: anyLegacy, what: "initialize is not too large to be kept", status: tooLarge.status, code: tooLarge.code, refuses: (*arrival).beginsTooLarge},
	{of: anySession, what: "a session is named", status: bad.status, code: bad.code, refuses: (*arrival).namesNoSession},

	// By its session.
	{of: get | del | anySession, what: "the session is here, and is the sender's, and so is its revision", step: (*arrival).findSession,
		may: []verdict{absent, {http.StatusForbidden, 0}, busy, bad}},
	{of: initializing | anyStateless, what: "its revision has sessions", status: bad.status, code: bad.code, refuses: (*arrival).hasOtherRevision},
	{of: get, what: "its client accepts events", status: http.StatusNotAcceptable, refuses: (*arrival).acceptsNoEvents},
	{of: get, what: "there are GET streams of sessions, or it comes back for a response", status: http.StatusMethodNotAllowed, allow: "POST, DELETE", refuses: (*arrival).listensInVain},
	{of: get, what: "its Last-Event-ID is one", status: http.StatusBadRequest, refuses: (*arrival).namesNoEvent},
	{of: anySession | anyStateless, what: "it is no batch, unless the revision is 2025-03-26", status: bad.status, code: bad.code, refuses: (*arrival).batchesTooLate},
	{of: anySession | anyStateless, what: "if it is a batch, that can be read", step: (*arrival).readBatch,
		may: []verdict{bad, {http.StatusBadRequest, jsonrpc.CodeParseError}, busy}},

	// By what it wants.
	{of: modernRequest, what: "its response need not be a stream, if there are none", status: http.StatusNotFound, code: jsonrpc.CodeMethodNotFound, refuses: (*arrival).needsStream},
	{of: modernRequest, what: "the node that it names, if that is another one, does not serve it", step: (*arrival).sendToNode, may: []verdict{{http.StatusBadGateway, 0}}},
	{of: modernRequest | anyLegacy, what: "its sender may do this", step: (*arrival).allow, may: []verdict{denied}},
	{of: opensLink, what: "there is a server for it", step: (*arrival).choose, may: []verdict{absent, {http.StatusInternalServerError, jsonrpc.CodeInternalError}}},

	// By what there is room for.
	{of: opensLink, what: "its link is open, and speaks its revision", step: (*arrival).openLink, may: []verdict{busy, failing, bad}},
	{of: opensLink | sessionRequest, what: "there is room to serve it, and for its answer", step: (*arrival).openExchange, may: []verdict{busy, absent}},
}

// passes makes the checks in their order. It returns how the first one that fails refuses the request. The request is over if it was
// served elsewhere.
// A check of other kinds passes; the kind of a POST changes on the way, when its body was read.
func (a *arrival) passes(checks []check) *refusal {
	for i := range checks {
		c := &checks[i]
		if c.of&a.kind == 0 {
			continue
		}
		if c.step != nil {
			if refused := c.step(a); refused != nil || a.over {
				return refused
			}
			continue
		}
		if text := c.refuses(a); text != "" {
			return &refusal{status: c.status, code: c.code, allow: c.allow, denied: c.status == http.StatusForbidden, id: a.id(), text: text}
		}
	}
	return nil
}

func (a *arrival) ofOtherSite() string {
	if a.byNode { // that node has checked it, and the host is the one that the client has named there
		return ""
	}
	allowed := web.Allowed{Origins: a.h.options.AllowedOrigins, Hosts: a.h.options.AllowedHosts}
	if err := allowed.Check(a.r); err != nil {
		return err.Error()
	}
	return ""
}

const methodNotAllowed = "method not allowed"

func (a *arrival) always() string { return methodNotAllowed }

// Without a session there is nothing to listen to, and nothing to end.
func (a *arrival) withoutSession() string {
	return textIf(a.session == "" || a.namesModern || a.h.options.Stateless, methodNotAllowed)
}

func (a *arrival) hasBody() string { return textIf(a.r.ContentLength != 0, "a GET has no body") }

func (a *arrival) otherType() string { return web.CheckBody(a.r.Header) }

// It must accept both: what the response becomes is decided only when the server has something to say.
func (a *arrival) acceptsLess() string {
	accepts := accepts(a.r.Header, web.TypeJSON) && accepts(a.r.Header, web.TypeEvents)
	return textIf(!accepts, "Accept must include "+web.TypeJSON+" and "+web.TypeEvents)
}

// It is refused before any of it is read.
func (a *arrival) announcesTooMuch() string {
	if a.r.ContentLength > int64(a.h.options.MaxBody) {
		return a.h.bodies.tooLarge().text
	}
	return ""
}

func (a *arrival) isBatch() string { return textIf(a.body.batch, jsonrpc.ErrBatch.Error()) }

// Only in a session has the server sent requests to which a client could respond.
func (a *arrival) isResponse() string {
	return textIf(a.body.Kind == jsonrpc.KindResult || a.body.Kind == jsonrpc.KindError, "a response is not accepted here")
}

// If only the headers of a request say that it is modern, it must not reach a link that several clients share.
func (a *arrival) lacksVersion() string {
	return textIf(!a.body.modern(), "_meta: "+protocol.MetaProtocolVersion+" is missing")
}

func (a *arrival) differs() string { return mismatch(a.r.Header, a.body) }

func (a *arrival) beginsTwice() string {
	return textIf(a.body.initializes() && a.session != "", "initialize begins a session: "+headerSession+" must not be sent")
}

// The session may be one from before the handler became stateless: 404 makes the client begin again.
func (a *arrival) namesSession() string { return textIf(a.session != "", unknownSession) }

// The session keeps it as long as it lives.
func (a *arrival) beginsTooLarge() string {
	if a.body.initializes() && len(a.body.frame) > web.MaxInitialize {
		return fmt.Sprintf("initialize is above the limit of %d bytes", web.MaxInitialize)
	}
	return ""
}

func (a *arrival) namesNoSession() string {
	return textIf(a.session == "", headerSession+" is missing: initialize first")
}

// hasOtherRevision says which revision the header names that has no sessions.
func (a *arrival) hasOtherRevision() string {
	if version := a.r.Header.Get(headerVersion); version != "" && !protocol.IsLegacy(version) {
		return fmt.Sprintf("%s is %.80q: supported with a session are %s", headerVersion, version, strings.Join(protocol.LegacyVersions(), ", "))
	}
	return ""
}

func (a *arrival) acceptsNoEvents() string {
	return textIf(!accepts(a.r.Header, web.TypeEvents), "Accept must include "+web.TypeEvents)
}

// lastEvent returns the event after which a GET goes on. It is not named if the GET begins a stream.
func (a *arrival) lastEvent() (id eventID, named, ok bool) {
	last := a.r.Header.Get(headerLastEventID)
	id, ok = parseEventID(last)
	return id, last != "", ok
}

// A GET that names an event of a request comes back for its response, which is no GET stream of the
// session.
func (a *arrival) listensInVain() string {
	id, named, ok := a.lastEvent()
	return textIf(a.h.options.NoListening && (!named || ok && id.stream == transport.Main), methodNotAllowed)
}

func (a *arrival) needsStream() string {
	return textIf(a.h.options.JSONOnly && a.body.Method == protocol.MethodListen, "this endpoint answers with JSON only, and "+protocol.MethodListen+" needs a stream of events")
}

func (a *arrival) namesNoEvent() string {
	_, named, ok := a.lastEvent()
	return textIf(named && !ok, headerLastEventID+" is no event id of this server")
}

// A batch may be sent in the first revision of this transport only.
// In a session the negotiated revision decides, and otherwise the header.
func (a *arrival) batchesTooLate() string {
	switch {
	case !a.body.batch:
		return ""
	case a.link != nil:
		return textIf(!a.link.takesBatches(), jsonrpc.ErrBatch.Error())
	default:
		return textIf(!revision.Has(a.statelessVersion(), revision.Batches), jsonrpc.ErrBatch.Error())
	}
}

// statelessVersion returns the revision of a legacy message without a session.
func (a *arrival) statelessVersion() string {
	if version := a.r.Header.Get(headerVersion); version != "" {
		return version
	}
	return revision.WithoutHeader
}

func textIf(refuses bool, text string) string {
	if refuses {
		return text
	}
	return ""
}

// mismatch compares a modern message with the headers that mirror it. It accepts a message that names no revision; other checks
// refuse that.
// Otherwise a proxy that decides by the headers would let pass another message than the one that is
// executed.
func mismatch(header http.Header, m *body) (text string) {
	if m.modern() {
		text = differs(header, headerVersion, textOf(m.meta.Version), verbatim)
	}
	if isRequest := m.Kind == jsonrpc.KindRequest; text == "" && (isRequest || len(header[headerMethod]) > 0) {
		text = differs(header, headerMethod, m.Method, verbatim)
	}
	method, _ := protocol.MethodInfo(m.Method)
	if name := method.NameOf(m.Params); text == "" && (name != "" || method.NameParam != "" && len(header[headerName]) > 0) {
		text = differs(header, headerName, name, httpheader.Decode)
	}
	return text
}
