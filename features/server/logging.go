package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/typed"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// setLogLevel stores the level from which a legacy client wants log messages.
func setLogLevel(ctx context.Context, c *call, params *protocol.SetLogLevelParams) (*protocol.EmptyResult, error) {
	if err := refusal.Missing(protocol.MethodSetLogLevel, "level", string(params.Level)); err != nil {
		return nil, err
	}
	if params.Level.Severity() < 0 {
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "unknown level %q", refusal.Shorten(string(params.Level), refusal.LongestName))
	}
	level := protocol.LogLevel(strings.Clone(string(params.Level))) // so that the session does not keep the request
	if before := c.Session.level.Swap(&level); before == nil || *before != level {
		c.peer.keep()
		if on := c.peer.server.options.OnLogLevel; on != nil {
			on(ctx, c.Session)
		}
	}
	return &protocol.EmptyResult{}, nil
}

// Logger returns a logger whose messages go to the client of the present request. The
// client chooses the level: by logging/setLevel in the legacy revisions, otherwise in
// the request itself. A client that chose no level gets no messages. Messages are
// sent in order and before the answer. The logger never waits for the client: messages are
// dropped while the connection is busy, and beyond Options.LogRate. The next message
// says how many were. Never log credentials or personal data to a client.
// Outside of a request the logger does nothing.
func Logger(ctx context.Context) *slog.Logger {
	r := RequestFrom(ctx)
	if r == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(&clientLog{call: r.call})
}

// Logger returns a logger whose messages go to the client of the session, for
// messages that belong to no request. Otherwise it works like the function Logger.
func (s *Session) Logger() *slog.Logger { return slog.New(&clientLog{session: s}) }

// Log sends a log message that the program has got from another server to the client of the present request, as it is. Otherwise it works
// like a message of Logger: the client gets it if it wants its level, within the rate, and Log never waits.
func Log(ctx context.Context, m *protocol.LogMessageParams) {
	if r := RequestFrom(ctx); r != nil {
		(&clientLog{call: r.call}).pass(ctx, m)
	}
}

// Log does what the function Log does, for messages that belong to no request.
func (s *Session) Log(ctx context.Context, m *protocol.LogMessageParams) {
	(&clientLog{session: s}).pass(ctx, m)
}

// LogLevel returns the level from which the client of the present request wants log messages; "" for none.
func LogLevel(ctx context.Context) protocol.LogLevel {
	if r := RequestFrom(ctx); r != nil {
		return (&clientLog{call: r.call}).level()
	}
	return ""
}

// LogLevel returns the level from which the client wants log messages; "" for none.
func (s *Session) LogLevel() protocol.LogLevel { return (&clientLog{session: s}).level() }

// LogHandler returns a slog.Handler that passes every record to next. If the record's
// context is that of a request, it also sends the record to the client; see Logger.
func LogHandler(next slog.Handler) slog.Handler { return &bothLogs{next: next} }

// A clientLog is a slog.Handler that logs to a client.
// It is read-only after it was made, as slog requires: WithAttrs and WithGroup return copies. What changes is with
// the call or the session: the level, and the budget.
type clientLog struct {
	call    *call    // the call that the messages belong to; nil: they belong to the session
	session *Session // the session that the messages belong to; nil: they belong to the call
	groups  []string
	attrs   []groupedAttr
}

// A groupedAttr is an attribute, with the groups that were open when it was added.
type groupedAttr struct {
	groups []string
	slog.Attr
}

// level returns the level that the client wants; empty for none.
// It is read for each message, so a change by the client holds at once, also for a logger that the program has kept.
func (l *clientLog) level() protocol.LogLevel {
	session := l.session
	if l.call != nil {
		if l.call.modern {
			return l.call.level
		}
		session = l.call.Session
	}
	if session != nil {
		if level := session.level.Load(); level != nil {
			return *level
		}
	}
	return ""
}

// logLevel returns MCP's level for a slog.Level.
func logLevel(level slog.Level) protocol.LogLevel {
	switch {
	case level < slog.LevelInfo:
		return protocol.LogDebug
	case level < slog.LevelInfo+2:
		return protocol.LogInfo
	case level < slog.LevelWarn:
		return protocol.LogNotice
	case level < slog.LevelError:
		return protocol.LogWarning
	case level < slog.LevelError+4:
		return protocol.LogError
	case level < slog.LevelError+8:
		return protocol.LogCritical
	case level < slog.LevelError+12:
		return protocol.LogAlert
	default:
		return protocol.LogEmergency
	}
}

// Enabled implements slog.Handler.
func (l *clientLog) Enabled(_ context.Context, level slog.Level) bool {
	return l.wants(logLevel(level))
}

func (l *clientLog) wants(level protocol.LogLevel) bool {
	wanted := l.level()
	return wanted != "" && level.Severity() >= wanted.Severity()
}

// pass sends a message of another server, if the client wants its level.
func (l *clientLog) pass(ctx context.Context, m *protocol.LogMessageParams) {
	if l.wants(m.Level) {
		_ = l.send(ctx, m) // who has gone needs no log
	}
}

// Handle implements slog.Handler. A message without attributes is sent as text,
// any other as an object whose member "msg" is the text.
func (l *clientLog) Handle(ctx context.Context, record slog.Record) error {
	raw, err := typed.Encode(l.data(record))
	if err != nil {
		raw, err = protocol.Marshal(record.Message) // text can be encoded
	}
	if err != nil {
		return err
	}
	return l.send(ctx, &protocol.LogMessageParams{Level: logLevel(record.Level), Logger: l.server().options.LoggerName, Data: raw})
}

// send sends a message.
//
// One beyond the rate is dropped, and so is one while the link is busy: it does not wait for room. The client is
// told how many, before the next message that it gets.
func (l *clientLog) send(ctx context.Context, m *protocol.LogMessageParams) (err error) {
	rate, budget := l.server().options.LogRate, l.budget()
	ok, dropped := budget.take(rate)
	if !ok {
		return nil
	}
	// First, so that the client finds the gap where it is. If this one cannot be sent, the next message tells it
	// again, with one more.
	if dropped != (droppedLogs{}) {
		said, _ := protocol.Marshal(dropped.text(rate))
		err = l.tell(ctx, &protocol.LogMessageParams{Level: m.Level, Logger: m.Logger, Data: said})
	}
	if err == nil {
		dropped = droppedLogs{} // the client knows of them
		err = l.tell(ctx, m)
	}
	if errors.Is(err, transport.ErrBusy) {
		dropped.busy++
		budget.giveBack(dropped)
	}
	return err
}

// data returns what a record says: its text, or an object of the text and all attributes.
func (l *clientLog) data(record slog.Record) any {
	if record.NumAttrs()+len(l.attrs) == 0 {
		return record.Message
	}
	members := map[string]any{slog.MessageKey: record.Message}
	for _, a := range l.attrs {
		addAttr(members, a.groups, a.Attr)
	}
	record.Attrs(func(a slog.Attr) bool {
		addAttr(members, l.groups, a)
		return true
	})
	return members
}

func (l *clientLog) server() *host {
	if l.call != nil {
		return l.call.peer.server
	}
	return l.session.peer.server
}

func (l *clientLog) tell(ctx context.Context, params *protocol.LogMessageParams) error {
	if l.call != nil {
		return l.call.tell(ctx, protocol.NotificationMessage, params)
	}
	return l.session.peer.tell(ctx, protocol.NotificationMessage, params)
}

// budget returns the budget that counts the messages of the client.
func (l *clientLog) budget() *logBudget {
	if l.call == nil {
		return l.session.logBudget()
	}
	if l.call.Session != nil {
		return l.call.Session.logBudget()
	}
	l.call.mu.Lock()
	defer l.call.mu.Unlock()
	if l.call.logs == nil {
		l.call.logs = new(logBudget)
	}
	return l.call.logs
}

// addAttr adds an attribute below its groups.
// The rules are those of slog.Handler: an empty attribute is ignored, and a group without a name is part of what
// surrounds it.
func addAttr(members map[string]any, groups []string, a slog.Attr) {
	value := a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return
	}
	members = below(members, groups)
	switch {
	case value.Kind() == slog.KindGroup && a.Key == "":
		for _, inner := range value.Group() {
			addAttr(members, nil, inner)
		}
	case value.Kind() == slog.KindGroup:
		for _, inner := range value.Group() {
			addAttr(members, []string{a.Key}, inner)
		}
	case value.Kind() == slog.KindAny:
		members[a.Key] = loggable(value.Any())
	case value.Kind() == slog.KindDuration:
		members[a.Key] = value.String()
	default:
		members[a.Key] = value.Any()
	}
}

// below returns the object of a group within others, and makes those that are not there. A group
// takes the place of an attribute that has its name.
func below(members map[string]any, groups []string) map[string]any {
	for _, group := range groups {
		within, ok := members[group].(map[string]any)
		if !ok {
			within = make(map[string]any)
			members[group] = within
		}
		members = within
	}
	return members
}

// loggable returns a value that can be encoded. It replaces an error by its text.
func loggable(value any) any {
	if err, ok := value.(error); ok {
		return err.Error()
	}
	// Tried out, because one attribute that cannot be encoded must not take the others with it.
	if _, err := typed.Encode(value); err != nil {
		return slog.AnyValue(value).String()
	}
	return value
}

// WithAttrs implements slog.Handler.
func (l *clientLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *l
	with.attrs = slices.Clone(l.attrs)
	for _, a := range attrs {
		with.attrs = append(with.attrs, groupedAttr{l.groups, a})
	}
	return &with
}

// WithGroup implements slog.Handler.
func (l *clientLog) WithGroup(name string) slog.Handler {
	if name == "" {
		return l
	}
	with := *l
	with.groups = append(slices.Clone(l.groups), name)
	return &with
}

// bothLogs passes records to a handler, and to the client of their context.
type bothLogs struct {
	next slog.Handler
	with []func(slog.Handler) slog.Handler // attributes and groups, in order
}

// client adds attributes and groups again for each record: whose client it is, only the context of the record says.
func (b *bothLogs) client(ctx context.Context) slog.Handler {
	h := Logger(ctx).Handler()
	for _, with := range b.with {
		h = with(h)
	}
	return h
}

// Enabled implements slog.Handler.
func (b *bothLogs) Enabled(ctx context.Context, level slog.Level) bool {
	return b.next.Enabled(ctx, level) || Logger(ctx).Enabled(ctx, level)
}

// Handle implements slog.Handler. It returns the error of the next handler: a
// client that cannot be reached is no reason to lose a record.
func (b *bothLogs) Handle(ctx context.Context, record slog.Record) error {
	if client := b.client(ctx); client.Enabled(ctx, record.Level) {
		_ = client.Handle(ctx, record.Clone())
	}
	if !b.next.Enabled(ctx, record.Level) {
		return nil
	}
	return b.next.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (b *bothLogs) WithAttrs(attrs []slog.Attr) slog.Handler {
	add := func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) }
	return &bothLogs{b.next.WithAttrs(attrs), append(slices.Clone(b.with), add)}
}

// WithGroup implements slog.Handler.
func (b *bothLogs) WithGroup(name string) slog.Handler {
	add := func(h slog.Handler) slog.Handler { return h.WithGroup(name) }
	return &bothLogs{b.next.WithGroup(name), append(slices.Clone(b.with), add)}
}
