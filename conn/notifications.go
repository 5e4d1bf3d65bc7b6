package conn

import (
	"context"

	"github.com/bowline-mcp/bowline/conn/internal/inbox"
)

// A notification waits, with the context that its handler gets.
type notification struct {
	*Incoming
	ctx context.Context
}

// Name, Key and Droppable implement inbox.Item, as Size of Incoming does.
func (n notification) Name() string    { return n.Method }
func (n notification) Key() string     { return n.label }
func (n notification) Droppable() bool { return n.droppable }

// notifications are the peer's notifications that wait for the handler (ADR-0006). They outlive
// a loop, so what they tell goes to the loop that runs then.
type notifications struct{ of *record }

// Handle implements inbox.Owner.
func (n notifications) Handle(next notification) { n.of.handle(next) }

// Eased implements inbox.Owner.
func (n notifications) Eased() { n.of.conn.post(event{kind: eased}) }

// Quiet implements inbox.Owner.
func (n notifications) Quiet() { n.of.conn.post(event{kind: quiet}) }

// queue returns the inbox of the notifications, and makes it for the first one that waits. Only
// the loop calls it.
func (r *record) queue() *inbox.Inbox[notification] {
	waiting := r.notifications.Load()
	if waiting == nil {
		waiting = inbox.New[notification](r.options.MaxNotifications, r.options.MaxHeld, notifications{r})
		r.notifications.Store(waiting)
	}
	return waiting
}

// handle runs the handler of a notification.
func (r *record) handle(n notification) {
	err := guard(func() error { r.own.handler.ServeNotification(n.ctx, n.Incoming); return nil })
	r.reportPanic(n.Method, err)
}
