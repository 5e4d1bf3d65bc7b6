//bowline:pure

package relay

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// mostAgain is the size of the largest request that is kept to be sent again, in bytes. One that only reads is rarely longer.
const mostAgain = 64 << 10

// A session is what a host has agreed on with its gateways, and what both have under way. In the revisions before 2026-07-28 the host has
// begun it with initialize; later ones have no such beginning, and only requests that are under way.
type session struct {
	begun       bool   // a gateway has answered initialize
	initialize  []byte // its params
	version     string // that was answered
	lists       []string
	initialized []byte            // the notification; nil before the host has sent it
	level       []byte            // params of the last logging/setLevel
	subscribed  map[string][]byte // params of resources/subscribe, by URI

	calls     map[jsonrpc.ID]*call      // requests of the host, by their ids
	questions map[jsonrpc.ID]jsonrpc.ID // the gateway's ids of its requests, by those that the host sees
	numbers   int64                     // of calls, questions and repetitions
	greeting  jsonrpc.ID                // of the initialize that is repeated; zero: none is
	repeated  map[jsonrpc.ID]struct{}   // other requests that are repeated, whose answers the host has
	probe     jsonrpc.ID                // of the request that says whether the gateway is leaving; zero: none is under way
	leaving   bool                      // the gateway refuses everything, and will be gone soon
}

// A call is a request of the host that is under way.
type call struct {
	tag          transport.Tag
	method       string
	modern       bool   // of a revision without sessions
	task         bool   // the answer is not a result of the method, but a task
	params       []byte // nil: it is too long to be sent again
	reads        bool   // it may be sent again, executed or not
	resent       bool   // it was
	refused      []byte // the answer of a gateway that is leaving, which has not executed it
	acknowledged bool   // of subscriptions/listen: the host has been told
}

// callOf returns a request of the host as it decides how its answer looks.
func callOf(m *jsonrpc.Message) *call {
	task, _ := jsonrpc.Member(m.Params, "task")
	return &call{method: m.Method, modern: isModern(m.Params), task: task != nil}
}

func newSession() *session {
	return &session{
		subscribed: make(map[string][]byte), calls: make(map[jsonrpc.ID]*call),
		questions: make(map[jsonrpc.ID]jsonrpc.ID), repeated: make(map[jsonrpc.ID]struct{}),
	}
}

// again are the requests that a gateway may get twice: they read, or say what shall hold.
var again = []string{
	protocol.MethodInitialize, protocol.MethodDiscover, protocol.MethodPing, protocol.MethodListTools, protocol.MethodListPrompts,
	protocol.MethodListResources, protocol.MethodListResourceTemplates, protocol.MethodReadResource, protocol.MethodGetPrompt, protocol.MethodComplete,
	protocol.MethodSetLogLevel, protocol.MethodSubscribe, protocol.MethodUnsubscribe, protocol.MethodListen,
}

// each returns the messages of a frame of the host. A batch is taken apart in the revision that has them, since each of its requests has an
// outcome of its own: its answers come one by one. What is no message stays as it is, for the gateway says what is wrong with it.
func (s *session) each(frame []byte) [][]byte {
	if !revision.Has(s.version, revision.Batches) || !jsonrpc.IsBatch(frame) {
		return [][]byte{frame}
	}
	items, err := jsonrpc.DecodeBatch(frame, jsonrpc.Limits{})
	if err != nil || slices.ContainsFunc(items, func(i jsonrpc.Item) bool { return i.Err != nil }) {
		return [][]byte{frame}
	}
	frames := make([][]byte, len(items))
	for i := range items {
		frames[i] = encode(&items[i].Message)
	}
	return frames
}

// fromHost returns what the gateway gets for a message of the host. An answer to a question of a gateway that is gone is for nobody.
func (s *session) fromHost(frame []byte) []transport.Outbound {
	m, err := jsonrpc.Decode(frame, jsonrpc.Limits{})
	if err != nil {
		return []transport.Outbound{{Frame: frame}} // the gateway says what is wrong with it
	}
	switch m.Kind {
	case jsonrpc.KindRequest:
		return []transport.Outbound{{Frame: frame, Tag: s.begin(&m)}}
	case jsonrpc.KindNotification:
		s.notifiedByHost(&m, frame)
		return []transport.Outbound{{Frame: frame}}
	default:
		id, asked := s.questions[m.ID]
		if !asked {
			return nil
		}
		delete(s.questions, m.ID)
		return []transport.Outbound{{Frame: answer(id, &m)}}
	}
}

// begin records a request of the host.
func (s *session) begin(m *jsonrpc.Message) transport.Tag {
	c := callOf(m)
	c.tag = transport.Tag(s.number())
	c.reads = slices.Contains(again, m.Method)
	if len(m.Params) <= mostAgain {
		c.params = bytes.Clone(m.Params) // the frame belongs to the link
		if c.params == nil {
			c.params = []byte("{}")
		}
	}
	s.calls[m.ID] = c
	return c.tag
}

func (s *session) number() int64 {
	s.numbers++
	return s.numbers
}

// notifiedByHost records a notification of the host. A request that it has cancelled is not answered any more.
func (s *session) notifiedByHost(m *jsonrpc.Message, frame []byte) {
	switch m.Method {
	case protocol.NotificationInitialized:
		s.initialized = bytes.Clone(frame)
	case protocol.NotificationCancelled:
		if id, ok := idIn(m.Params); ok {
			delete(s.calls, id)
		}
	}
}

// fromGateway returns what the host gets for a frame of the gateway.
func (s *session) fromGateway(frame []byte) [][]byte {
	m, err := jsonrpc.Decode(frame, jsonrpc.Limits{})
	switch {
	case err != nil:
		return [][]byte{frame}
	case m.Kind == jsonrpc.KindRequest:
		// Another gateway counts its requests from the beginning, so its ids may be those of questions that the host still answers.
		id := jsonrpc.StringID(fmt.Sprintf("q%d", s.number()))
		s.questions[id] = m.ID
		return [][]byte{jsonrpc.AppendRequest(nil, id, m.Method, m.Params)}
	case m.Kind == jsonrpc.KindNotification:
		return s.notifiedByGateway(&m, frame)
	}
	return s.answered(&m, frame)
}

// answered returns what the host gets for an answer of the gateway.
func (s *session) answered(m *jsonrpc.Message, frame []byte) [][]byte {
	if _, ours := s.repeated[m.ID]; ours {
		delete(s.repeated, m.ID)
		return nil
	}
	if !s.probe.IsZero() && m.ID == s.probe {
		return s.probed(isLeaving(m))
	}
	if c := s.calls[m.ID]; c != nil {
		if isLeaving(m) && c.params != nil {
			c.refused = bytes.Clone(frame)
			return nil
		}
		delete(s.calls, m.ID)
		s.settle(c, m)
	}
	return [][]byte{frame}
}

// methodLeaving is a method that no gateway has. One that is leaving refuses it as it refuses all requests, but for a ping: that is answered until the end.
const methodLeaving = "io.github.bowline-mcp/leaving"

// doubt returns the request that says whether the gateway is leaving, if a request was refused because somebody is.
func (s *session) doubt() []transport.Outbound {
	if s.leaving || !s.probe.IsZero() {
		return nil
	}
	for _, c := range s.calls {
		if c.refused != nil {
			s.probe = s.ours()
			return []transport.Outbound{{Frame: jsonrpc.AppendRequest(nil, s.probe, methodLeaving, nil)}}
		}
	}
	return nil
}

// probed ends the doubt. What a leaving gateway has refused waits for the next one; if it was a server that is leaving, the host has the refusals.
func (s *session) probed(leaving bool) (frames [][]byte) {
	s.probe = jsonrpc.ID{}
	if s.leaving = leaving; leaving {
		return nil
	}
	for _, id := range s.ordered() {
		if c := s.calls[id]; c.refused != nil {
			frames = append(frames, c.refused)
			delete(s.calls, id)
		}
	}
	return frames
}

// settle records what an answer has changed.
func (s *session) settle(c *call, m *jsonrpc.Message) {
	if m.Kind != jsonrpc.KindResult {
		return
	}
	switch uri, _ := jsonrpc.Member(c.params, "uri"); c.method {
	case protocol.MethodInitialize:
		s.begun, s.initialize = true, c.params
		s.version, s.lists = agreed(m.Result)
	case protocol.MethodSetLogLevel:
		s.level = c.params
	case protocol.MethodSubscribe:
		s.subscribed[string(uri)] = c.params
	case protocol.MethodUnsubscribe:
		delete(s.subscribed, string(uri))
	}
}

// notifiedByGateway returns what the host gets for a notification of the gateway.
func (s *session) notifiedByGateway(m *jsonrpc.Message, frame []byte) [][]byte {
	switch m.Method {
	case protocol.NotificationCancelled:
		id, _ := idIn(m.Params)
		for shown, theirs := range s.questions {
			if theirs == id {
				delete(s.questions, shown)
				return [][]byte{cancelled(shown)}
			}
		}
		return nil // the question is answered
	case protocol.NotificationAcknowledged:
		if c := s.listener(m.Params); c != nil && c.acknowledged {
			return changes(m.Params)
		} else if c != nil {
			c.acknowledged = true
		}
	}
	return [][]byte{frame}
}

// listener returns the subscriptions/listen to which a notification belongs; nil if there is none.
func (s *session) listener(params []byte) *call {
	meta, _ := jsonrpc.Member(params, "_meta")
	text, _ := jsonrpc.Member(meta, protocol.MetaSubscriptionID)
	if id, err := jsonrpc.ParseID(text); err == nil {
		return s.calls[id]
	}
	return nil
}

// lost returns what the host gets when a gateway is gone: the answers to its calls, except those that the next gateway gets again, and the end
// of the questions that it was asked. The messages with these tags were certainly not sent.
func (s *session) lost(unsent map[transport.Tag]bool, why string) (frames [][]byte) {
	clear(s.repeated)
	s.greeting, s.probe, s.leaving = jsonrpc.ID{}, jsonrpc.ID{}, false
	for _, id := range s.ordered() {
		c := s.calls[id]
		if c.isRepeated() {
			continue
		}
		delivery := conn.Unknown
		if unsent[c.tag] {
			delivery = conn.NotSent
		}
		delete(s.calls, id)
		frames = append(frames, failure(id, c, delivery, why))
	}
	for _, id := range slices.SortedFunc(maps.Keys(s.questions), func(a, b jsonrpc.ID) int { return cmp.Compare(a.String(), b.String()) }) {
		frames = append(frames, cancelled(id))
	}
	clear(s.questions)
	return frames
}

// isRepeated reports whether the next gateway gets a request that the last one has not answered. It does so once: a request may be what ends its
// gateway, such as by a resource that is too large for the memory, and must not take each of the next ones from all other hosts, too. A
// subscriptions/listen is not answered while all is well, and so it goes on.
func (c *call) isRepeated() bool {
	if c.refused != nil {
		return true
	}
	is := c.params != nil && c.reads && (!c.resent || c.method == protocol.MethodListen)
	c.resent = true
	return is
}

// unreached returns what the host gets when no other gateway can be reached: the answers to the calls that would have been sent again.
func (s *session) unreached(why string) (frames [][]byte) {
	for _, id := range s.ordered() {
		delivery := conn.Unknown
		if s.calls[id].refused != nil {
			delivery = conn.NotSent
		}
		frames = append(frames, failure(id, s.calls[id], delivery, why))
	}
	clear(s.calls)
	return frames
}

// refuse returns the answer to a message of the host while no gateway can be reached; nil if it needs none.
func (s *session) refuse(frame []byte, why string) []byte {
	m, err := jsonrpc.Decode(frame, jsonrpc.Limits{})
	switch {
	case err != nil:
		return nil
	case m.Kind == jsonrpc.KindNotification:
		s.notifiedByHost(&m, frame)
		return nil
	case m.Kind != jsonrpc.KindRequest:
		return nil
	}
	return failure(m.ID, callOf(&m), conn.NotSent, why)
}

// tooLong returns the answer to a request that is longer than any gateway takes; nil if it is no request of the host.
func (s *session) tooLong(tag transport.Tag) []byte {
	for id, c := range s.calls {
		if c.tag == tag {
			delete(s.calls, id)
			return failure(id, c, conn.NotSent, "the request is too long")
		}
	}
	return nil
}

// ordered returns the ids of calls, oldest first.
func (s *session) ordered() []jsonrpc.ID {
	return slices.SortedFunc(maps.Keys(s.calls), func(a, b jsonrpc.ID) int { return cmp.Compare(s.calls[a].tag, s.calls[b].tag) })
}

// busy reports whether the host still waits for an answer. A subscriptions/listen has none before it ends.
func (s *session) busy() bool {
	for _, c := range s.calls {
		if c.method != protocol.MethodListen {
			return true
		}
	}
	return false
}

// hello returns the request that begins the session with another gateway, or nil if it has none. After its answer comes resume.
func (s *session) hello() []byte {
	if !s.begun {
		return nil
	}
	s.greeting = s.ours()
	return jsonrpc.AppendRequest(nil, s.greeting, protocol.MethodInitialize, s.initialize)
}

// ours returns an id that no host uses.
func (s *session) ours() jsonrpc.ID {
	return jsonrpc.StringID(fmt.Sprintf("bowline relay %d", s.number()))
}

// greeted reports whether a frame is the answer to hello. An error says that the session cannot go on.
func (s *session) greeted(frame []byte) (is bool, err error) {
	m, err := jsonrpc.Decode(frame, jsonrpc.Limits{})
	if err != nil || s.greeting.IsZero() || m.ID != s.greeting || m.Kind == jsonrpc.KindRequest {
		return false, nil
	}
	s.greeting = jsonrpc.ID{}
	if m.Kind == jsonrpc.KindError {
		return true, m.Error
	}
	if version, _ := agreed(m.Result); version != s.version {
		return true, fmt.Errorf("the gateway speaks %s now, and the session is of %s: start the host again", version, s.version)
	}
	return true, nil
}

// resume returns what another gateway gets so that everything holds there, and what the host gets since it may have missed changes.
func (s *session) resume() (toGateway []transport.Outbound, toHost [][]byte) {
	repeat := func(method string, params []byte) {
		id := s.ours()
		s.repeated[id] = struct{}{}
		toGateway = append(toGateway, transport.Outbound{Frame: jsonrpc.AppendRequest(nil, id, method, params)})
	}
	if s.initialized != nil && s.begun {
		toGateway = append(toGateway, transport.Outbound{Frame: bytes.Clone(s.initialized)})
		for _, list := range s.lists {
			toHost = append(toHost, jsonrpc.AppendNotification(nil, list, nil))
		}
	}
	if s.level != nil {
		repeat(protocol.MethodSetLogLevel, s.level)
	}
	for _, uri := range slices.Sorted(maps.Keys(s.subscribed)) {
		repeat(protocol.MethodSubscribe, s.subscribed[uri])
		toHost = append(toHost, jsonrpc.AppendNotification(nil, protocol.NotificationResourcesUpdated, []byte(`{"uri":`+uri+`}`)))
	}
	for _, id := range s.ordered() {
		toGateway = append(toGateway, s.calls[id].anew(id))
	}
	return toGateway, toHost
}

// anew returns a call as another gateway gets it.
func (c *call) anew(id jsonrpc.ID) transport.Outbound {
	c.refused = nil
	return transport.Outbound{Frame: jsonrpc.AppendRequest(nil, id, c.method, c.params), Tag: c.tag}
}
