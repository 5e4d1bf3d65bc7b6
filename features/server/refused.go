package server

import (
	"context"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// Audits implements transport.Auditor.
func (s *Server) Audits() bool { return s.options.Audit != nil }

// Refused implements transport.Auditor, for the HTTP handlers: it passes what they have refused
// to Options.Audit.
func (s *Server) Refused(refused transport.Refusal) {
	r := Record{
		Time: refused.Since, Duration: time.Since(refused.Since), Origin: refused.Origin,
		Outcome: OutcomeInvalid, Code: refused.Code, Status: refused.Status, Err: refused.Err,
	}
	if m := refused.Message; m != nil {
		method, _ := protocol.MethodInfo(m.Method)
		r.Method, r.ID, r.Name = m.Method, m.ID, method.NameOf(m.Params)
	}
	const notFound, tooLarge, internalError = 404, 413, 500 // of net/http, which not every program with a server links
	switch status := refused.Status; {
	case refused.Denied:
		r.Outcome = OutcomeDenied
	case status == notFound, status == tooLarge, status >= internalError:
		r.Outcome = OutcomeRefused
	}
	ctx := context.Background()
	if refused.Origin.Value != nil {
		ctx = originContext{ctx, refused.Origin}
	}
	s.guarded("Audit", func() { s.options.Audit(ctx, r) }) // the response does not depend on the record
}

// An originContext has the values of an HTTP request.
type originContext struct {
	context.Context
	origin *transport.Origin
}

func (c originContext) Value(key any) any { return c.origin.Value(key) }
