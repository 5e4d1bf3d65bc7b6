//bowline:pure

package conn

import (
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// shorten replaces a reply for which the peer has no room by one that says so. It reports false
// if that is not shorter. In the array of a batch it replaces each answer that gets shorter, and,
// if that does not help, the whole array. The peer must get an answer of some kind to each
// request: its caller would otherwise wait until the timeout for something that has been dropped.
func (o *outboundFrame) shorten() bool {
	var frame []byte
	var route *transport.Route
	if o.parts != nil {
		frame, route = shortArray(split(o)), resultRoute(jsonrpc.ID{})
	} else {
		frame, route = shortAnswer(o.routed())
	}
	o.parts, o.answers = nil, nil
	if len(frame) >= len(o.frame) && route.Kind == jsonrpc.KindResult {
		frame, route = shortAnswer(*route)
	}
	if len(frame) >= len(o.frame) {
		return false
	}
	o.frame, o.route = frame, route
	return true
}

// shortArray returns the array of a batch with short answers.
func shortArray(answers []outboundFrame) []byte {
	array := []byte{'['}
	for i := range answers {
		if i > 0 {
			array = append(array, ',')
		}
		frame := answers[i].frame
		if short, _ := shortAnswer(answers[i].routed()); len(short) < len(frame) {
			frame = short
		}
		array = append(array, frame...)
	}
	return append(array, ']')
}

// errDropped takes the place of a result for which the peer has no room. It has a code of its
// own, because the request was executed: the peer must not repeat it as it may repeat what was
// refused.
var errDropped = &jsonrpc.Error{Code: jsonrpc.CodeAnswerDropped, Message: "executed, but the answer was dropped: too many answers are not read"}

// reserve takes room for the result that encodes itself, before it takes memory. It reports false if there is none.
func (in *Incoming) reserve() bool {
	if in.Origin == nil {
		return true
	}
	by, can := transport.As[transport.Reserver](in.Origin.Exchange)
	return !can || by.Reserve(in.result.SizeJSON())
}

// shortAnswer returns the error that takes the place of an answer. An error keeps its code: that says more.
func shortAnswer(answer transport.Route) ([]byte, *transport.Route) {
	fault := errDropped
	if answer.Kind == jsonrpc.KindError {
		fault = &jsonrpc.Error{Code: answer.Code, Message: "the text of the error was dropped: too many answers are not read"}
	}
	return jsonrpc.AppendError(nil, answer.ID, fault), errorRoute(answer.ID, fault.Code)
}
