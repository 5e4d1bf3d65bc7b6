package specification

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/transcript"
)

// A Checker checks the messages that pass through a transport against the schema
// of the revision in force. Its Observe is for transcript.Tap.
type Checker struct {
	Server      bool // true: the transport is the server's; false: the client's
	ThisSide    bool // check the messages that this side sends
	OtherSide   bool // check the messages that the other side sends
	OnViolation func(error)

	mu    sync.Mutex
	links map[int]*linkState
}

// A linkState has the state of one link that is needed to check its messages.
type linkState struct {
	version string // the revision that initialize has negotiated
	pending map[requestKey]request
}

// A requestKey identifies a request that is not answered yet. The stream is part of
// it because a server over HTTP receives the ids of many clients on one link, each
// client's on its own stream.
type requestKey struct {
	id       string
	stream   transport.Stream
	byClient bool
}

type request struct {
	method, version string
	task            bool // the request asks for a task, as in 2025-11-25
}

// A message has the members of any kind of message.
type message struct {
	ID     any            `json:"id"`
	Method string         `json:"method"`
	Params map[string]any `json:"params"`
	Result map[string]any `json:"result"`
	Error  map[string]any `json:"error"`
}

// Observe checks the frame of an entry.
func (c *Checker) Observe(e transcript.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Kind {
	case transcript.Opened:
		if c.links == nil {
			c.links = make(map[int]*linkState)
		}
		c.links[e.Link] = &linkState{pending: make(map[requestKey]request)}
	case transcript.Lost:
		delete(c.links, e.Link)
	case transcript.Sent, transcript.Received:
		link, sent := c.links[e.Link], e.Kind == transcript.Sent
		if link == nil {
			return
		}
		var frames []json.RawMessage
		if json.Unmarshal(e.Frame, &frames) != nil { // the frame is not a batch
			frames = []json.RawMessage{e.Frame}
		}
		for _, frame := range frames {
			err := link.check(e.Stream, frame, sent != c.Server, !c.Server)
			if err != nil && (sent && c.ThisSide || !sent && c.OtherSide) {
				c.OnViolation(fmt.Errorf("%w\n%.2000s", err, frame))
			}
		}
	}
}

// check checks one message, and updates the state of the link.
func (c *linkState) check(stream transport.Stream, frame []byte, byClient, atClient bool) error {
	if atClient {
		stream = transport.Main // all ids are of one client, whatever the stream of the answer
	}
	var m message
	var whole map[string]any
	if err := errors.Join(json.Unmarshal(frame, &whole), json.Unmarshal(frame, &m)); err != nil {
		return err
	}
	id, hasID := whole["id"]
	switch {
	case m.Method != "" && hasID:
		r := request{method: m.Method, version: c.versionOf(&m), task: m.Params["task"] != nil}
		c.pending[requestKey{idOf(id), stream, byClient}] = r
		return checkRequest(r, whole, byClient)
	case m.Method != "":
		return checkNotification(c.versionOf(&m), m.Method, whole, byClient)
	}
	key := requestKey{idOf(id), stream, !byClient}
	r, known := c.pending[key]
	delete(c.pending, key)
	switch {
	case m.Error != nil && !known:
		r.version = protocol.LatestLegacy
		return checkError(r, &m, whole)
	case m.Error != nil:
		return checkError(r, &m, whole)
	case !known:
		return errors.New("specification: it answers no request")
	}
	if version, ok := m.Result["protocolVersion"].(string); ok && r.method == protocol.MethodInitialize && protocol.IsLegacy(version) {
		c.version, r.version = version, version
	}
	return checkResult(r, m.Result)
}

func idOf(id any) string { return fmt.Sprintf("%T %v", id, id) }

// versionOf returns the revision that applies to a request or notification.
func (c *linkState) versionOf(m *message) string {
	meta, _ := m.Params["_meta"].(map[string]any)
	stated, modern := meta[protocol.MetaProtocolVersion].(string)
	_, isStream := meta[protocol.MetaSubscriptionID]
	requested, _ := m.Params["protocolVersion"].(string)
	switch {
	case modern && protocol.IsModern(stated):
		return stated
	case modern || isStream:
		return protocol.Latest
	case m.Method == protocol.MethodInitialize && protocol.IsLegacy(requested):
		return requested
	case c.version != "":
		return c.version
	case strings.HasPrefix(m.Method, "notifications/") && m.Method != protocol.NotificationInitialized:
		return protocol.Latest
	default:
		return protocol.LatestLegacy
	}
}

// checkMethod fails if the revision does not have the method, or if only the
// other side may send it. It reports whether the schema of the revision defines
// the method.
func checkMethod(version, method string, byClient bool) (defined bool, err error) {
	info, known := protocol.MethodInfo(method)
	sender := protocol.ByServer
	if byClient {
		sender = protocol.ByClient
	}
	switch {
	case !known: // the program defined this method
		return false, nil
	case !info.In(version):
		return false, fmt.Errorf("specification: %s has no %s", version, method)
	case info.Sender&sender == 0:
		return false, fmt.Errorf("specification: %s comes from the wrong side", method)
	}
	return schemaFor(version, method).methods[method] != "", nil
}

func checkRequest(r request, whole map[string]any, byClient bool) error {
	defined, err := checkMethod(r.version, r.method, byClient)
	switch {
	case err != nil:
		return err
	case defined:
		of := schemaFor(r.version, r.method)
		return of.Check(of.methods[r.method], whole)
	default:
		return Of(r.version).Check("JSONRPCRequest", whole)
	}
}

func checkNotification(version, method string, whole map[string]any, byClient bool) error {
	defined, err := checkMethod(version, method, byClient)
	switch {
	case err != nil:
		return err
	case defined:
		of := schemaFor(version, method)
		return of.Check(of.methods[method], whole)
	default:
		return Of(version).Check("JSONRPCNotification", whole)
	}
}

func checkResult(r request, result map[string]any) error {
	of := schemaFor(r.version, r.method)
	definition := strings.TrimSuffix(of.methods[r.method], "Request") + "Result"
	switch kind := result["resultType"]; {
	case protocol.IsModern(r.version) && kind == protocol.ResultInputRequired:
		return of.Check("InputRequiredResult", result)
	case r.version == protocol.Latest && kind == protocol.ResultTask && r.method == protocol.MethodCallTool:
		return extensions().Check("CreateTaskResult", result)
	case protocol.IsModern(r.version) && kind != protocol.ResultComplete && of == Of(r.version):
		definition = "Result" // the result of another extension
	case r.task && result["task"] != nil:
		definition = "CreateTaskResult"
	case of.Definitions()[definition] == nil:
		definition = "Result"
	}
	return of.Check(definition, result)
}

// errorsOf has the names of the definitions for errors with more than a code and a
// text, by revision and code.
var errorsOf = map[string]map[float64]string{
	protocol.Version20251125: {protocol.CodeURLElicitationRequired: "URLElicitationRequiredError"},
	protocol.Version20260728: {
		protocol.CodeHeaderMismatch:     "HeaderMismatchError",
		protocol.CodeMissingCapability:  "MissingRequiredClientCapabilityError",
		protocol.CodeUnsupportedVersion: "UnsupportedProtocolVersionError",
	},
}

func checkError(r request, m *message, whole map[string]any) error {
	of := Of(r.version)
	if m.ID == nil { // JSON-RPC requires this answer if the id cannot be read
		delete(whole, "id")
		of = Of(protocol.LatestLegacy) // that revision defines it
	}
	code, _ := m.Error["code"].(float64)
	if definition, ok := errorsOf[r.version][code]; ok {
		return of.Check(definition, whole)
	}
	if of.Definitions()["JSONRPCErrorResponse"] != nil {
		return of.Check("JSONRPCErrorResponse", whole)
	}
	return of.Check("JSONRPCError", whole)
}
