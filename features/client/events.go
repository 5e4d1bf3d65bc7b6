package client

import (
	"encoding/json"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
)

// An Event is something that a session learns without asking: a *Lost, *Restored, *ToolsChanged,
// *PromptsChanged, *ResourcesChanged, *ResourceUpdated, *SubscriptionRefused, *LogMessage,
// *ElicitationComplete, *SchemaRefused, *NotAnswered or *Notification. Later versions may add more,
// so a switch over events needs a default.
type Event interface {
	// key identifies events of which only one needs to wait; the zero key is for others.
	key() eventKey
}

// An eventKey is the kind of an event, and what the event is about.
type eventKey struct{ kind, about string }

// Lost says that the server was lost: its process ended, its connection broke, or its
// session expired. Calls fail or wait until a Restored event. A session that is
// closed or gives up has no Lost event; see Session.Wait.
type Lost struct {
	Reason Reason
	Next   time.Time // when the session will try again; zero if it is already trying
}

// Restored says that the server is back. The session has already restored the log
// level, subscriptions, and reports of changes. The server may be another process,
// another version or another program. What your program knows about lists and
// resources may be outdated, because changes in the meantime are not reported one by
// one.
//
// A session of Client.Start also begins with a Restored event. A session of
// Client.Connect does so only if something could not be set up on its first server.
type Restored struct {
	Away     time.Duration // the time since the Lost event, or since Start
	Failures []error       // what could not be restored, one error each
}

// ToolsChanged says that the list of tools may have changed. It also comes when a
// modern server begins to report changes to a session that has already used it, for
// instance after Connect, because an earlier change was not reported. PromptsChanged
// and ResourcesChanged behave the same way.
type ToolsChanged struct{}

// PromptsChanged says that the list of prompts may have changed.
type PromptsChanged struct{}

// ResourcesChanged says that the lists of resources and templates may have changed.
type ResourcesChanged struct{}

// ResourceUpdated says that a resource that the session subscribed to, or one below
// it, may have changed.
type ResourceUpdated struct{ URI string }

// SubscriptionRefused says that the server does not report changes of a resource any more, although it had accepted the
// Subscribe: a modern server is asked again when its reports end, and when what the session wants changes. The session
// still asks each later server, and Subscribe asks this one. Err is not nil. What a new server refuses is in
// Restored.Failures instead. If the server reports the resource again, a ResourceUpdated says so.
type SubscriptionRefused struct {
	URI string
	Err error
}

// LogMessage is a message of the server's log.
type LogMessage struct {
	Level  protocol.LogLevel
	Logger string          // empty if the server does not say
	Data   json.RawMessage // any value: a text, or an object
}

// ElicitationComplete says that the user has finished on a page that Options.ElicitURL
// was asked to open (2025-11-25).
type ElicitationComplete struct{ ID string }

// SchemaRefused says that the results of a tool are not checked, because this client
// refuses its output schema: it is too costly, malformed, in a dialect that package schema
// does not support, or has a pattern that Go cannot compile. Calls of the tool succeed.
// The event comes once for each schema: when the tool is listed, if the schema has a $dynamicRef or a $ref to another document (for
// 100 tools of a page at most, and only where schema.CheckReferences finds it), and otherwise when Call gets a result of the tool. Close delivers that
// of a Call that has returned before; that of a Call which Close lets finish may be lost.
// There is none for an input schema, by which a client checks nothing: the server checks the arguments.
type SchemaRefused struct {
	Tool string
	Err  error // schema.ErrTooLarge, for instance
}

// NotAnswered says that a legacy server was told that the user gave no answer ("cancel"),
// although Options.Elicit or ElicitURL was called: it returned an error, or an answer that
// does not fit the form. In 2026-07-28 the call fails with an *InputError instead. An event
// is not queued while an earlier one waits. Close delivers it, too, unless OnEvent has been busy
// since before Close began: then OnEvent may itself wait for the call in which the server asked.
type NotAnswered struct{ Err error }

// Notification is a notification for which this package has no event type.
type Notification struct {
	Method string
	Params json.RawMessage // undecoded; nil if there are none
}

func (*Lost) key() eventKey { return eventKey{kind: "lost"} }

func (*Restored) key() eventKey { return eventKey{kind: "restored"} }

func (*ToolsChanged) key() eventKey {
	return eventKey{kind: protocol.NotificationToolsListChanged}
}

func (*PromptsChanged) key() eventKey {
	return eventKey{kind: protocol.NotificationPromptsListChanged}
}

func (*ResourcesChanged) key() eventKey {
	return eventKey{kind: protocol.NotificationResourcesListChanged}
}

func (e *ResourceUpdated) key() eventKey {
	return eventKey{protocol.NotificationResourcesUpdated, e.URI}
}

func (e *SubscriptionRefused) key() eventKey { return eventKey{"subscription refused", e.URI} }

func (*LogMessage) key() eventKey { return eventKey{} }

func (e *ElicitationComplete) key() eventKey {
	return eventKey{protocol.NotificationElicitationComplete, e.ID}
}

func (e *SchemaRefused) key() eventKey { return eventKey{"schema refused", e.Tool} }

func (*NotAnswered) key() eventKey { return eventKey{kind: "not answered"} }

func (*Notification) key() eventKey { return eventKey{} }
