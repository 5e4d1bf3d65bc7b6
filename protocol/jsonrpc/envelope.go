package jsonrpc

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// An envelope holds the raw members of a message; nil is absent.
type envelope struct {
	version, id, method, params, result, failure []byte
}

// slot returns where a member goes, or nil if it is to be ignored.
func (e *envelope) slot(name []byte) *[]byte {
	switch string(name) {
	case "jsonrpc":
		return &e.version
	case "id":
		return &e.id
	case "method":
		return &e.method
	case "params":
		return &e.params
	case "result":
		return &e.result
	case "error":
		return &e.failure
	default:
		return nil
	}
}

// kind returns the kind that follows from the members present, or zero.
func (e *envelope) kind() Kind {
	switch {
	case e.method != nil && (e.result != nil || e.failure != nil):
		return 0
	case e.method != nil && kindOf(e.method) != '"':
		return 0
	case e.method != nil && e.id != nil:
		return KindRequest
	case e.method != nil:
		return KindNotification
	case e.failure != nil:
		return KindError
	case e.result != nil:
		return KindResult
	default:
		return 0
	}
}

// describe adds to refused what could be read of the message, whose text is frame.
func (e *envelope) describe(refused *DecodeError, frame []byte) {
	refused.Kind, refused.hasMethod = e.kind(), e.method != nil
	if id, err := parseID(e.id); err == nil {
		refused.ID = id
		return
	}
	if ids := idsOf(frame); len(ids) == 1 {
		refused.ID = ids[0]
	} else {
		refused.IDs = ids
	}
}

// maxIDs is how many ids of one message idsOf reads.
const maxIDs = 4

// idsOf returns the different valid ids of a message, which may repeat that member. The
// frame is a valid JSON object.
func idsOf(frame []byte) (ids []ID) {
	var found [maxIDs][]byte
	n := 0
	r := newReader(frame, deepestLimit, math.MaxInt)
	defer r.release()
	_, _ = r.members(func(name []byte) *[]byte {
		if string(name) != "id" || n == maxIDs {
			return nil
		}
		n++
		return &found[n-1]
	})
	for _, raw := range found[:n] {
		if id, err := parseID(raw); err == nil && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// message reads the members, or fails with the rule that they break.
func (e *envelope) message(repeated []byte) (Message, error) {
	if repeated != nil {
		return Message{}, fmt.Errorf("member %q is repeated", repeated)
	}
	if err := e.checkVersion(); err != nil {
		return Message{}, err
	}
	switch kind := e.kind(); kind {
	case KindRequest, KindNotification:
		return e.call(kind)
	case KindResult, KindError:
		return e.response(kind)
	default:
		return Message{}, errors.New("not exactly one of method, result and error, or a method that is not a string")
	}
}

func (e *envelope) checkVersion() error {
	if string(e.version) == `"2.0"` {
		return nil
	}
	if version, err := stringMember("jsonrpc", e.version); err != nil || version != "2.0" {
		return errors.New(`member "jsonrpc" is not "2.0"`)
	}
	return nil
}

// call reads a request or a notification.
func (e *envelope) call(kind Kind) (Message, error) {
	if isNull(e.params) {
		e.params = nil
	}
	m := Message{Kind: kind, Params: e.params}
	var err error
	if kind == KindRequest {
		if m.ID, err = parseID(e.id); err != nil {
			return Message{}, err
		}
	}
	if e.params != nil && kindOf(e.params) != '{' && kindOf(e.params) != '[' {
		return Message{}, errors.New(`member "params" is neither an object nor an array`)
	}
	if m.Method = frequentMethod(e.method); m.Method == "" {
		m.Method, err = stringMember("method", e.method)
	}
	return m, err
}

// frequentMethod returns the method of the JSON string raw if it is one of those that MCP
// connections send most, and otherwise "". No memory is allocated for these.
func frequentMethod(raw []byte) string {
	switch string(raw) {
	case `"tools/call"`:
		return "tools/call"
	case `"resources/read"`:
		return "resources/read"
	case `"prompts/get"`:
		return "prompts/get"
	case `"completion/complete"`:
		return "completion/complete"
	case `"ping"`:
		return "ping"
	case `"initialize"`:
		return "initialize"
	case `"server/discover"`:
		return "server/discover"
	case `"notifications/initialized"`:
		return "notifications/initialized"
	case `"notifications/progress"`:
		return "notifications/progress"
	case `"notifications/message"`:
		return "notifications/message"
	case `"notifications/cancelled"`:
		return "notifications/cancelled"
	case `"notifications/resources/updated"`:
		return "notifications/resources/updated"
	default:
		return ""
	}
}

// response reads a result or an error.
func (e *envelope) response(kind Kind) (Message, error) {
	if e.result != nil && e.failure != nil {
		return Message{}, errors.New("both a result and an error")
	}
	m := Message{Kind: kind, Result: e.result}
	var err error
	if unread := e.id == nil || isNull(e.id); kind == KindResult || !unread {
		if m.ID, err = parseID(e.id); err != nil {
			return Message{}, err
		}
	}
	if kind == KindError {
		m.Error, err = parseError(e.failure)
	}
	return m, err
}

// An errorObject holds the raw members of an error; nil is absent.
type errorObject struct {
	code, message, data []byte
}

func (o *errorObject) slot(name []byte) *[]byte {
	switch string(name) {
	case "code":
		return &o.code
	case "message":
		return &o.message
	case "data":
		return &o.data
	default:
		return nil
	}
}

// parseError reads an error object. Raw is valid JSON.
func parseError(raw []byte) (*Error, error) {
	if kindOf(raw) != '{' {
		return nil, errors.New(`member "error" is not an object`)
	}
	r := newReader(raw, deepestLimit, math.MaxInt) // its frame was within its limits
	defer r.release()
	var o errorObject
	repeated, err := r.members(o.slot)
	if err != nil {
		return nil, err
	}
	if repeated != nil {
		return nil, fmt.Errorf("member %q of the error is repeated", repeated)
	}
	code, err := parseCode(o.code)
	if err != nil {
		return nil, err
	}
	if o.message == nil || kindOf(o.message) != '"' {
		return nil, errors.New("message of the error is not a string")
	}
	message, _ := unquote(o.message) // text for people: U+FFFD in it is no reason to lose the error
	return &Error{Code: code, Message: message, Data: o.data}, nil
}

func parseCode(raw []byte) (int64, error) {
	if kindOf(raw) == '0' {
		if id, err := parseIntegerID(raw); err == nil && id.kind == idInteger {
			return id.integer, nil
		}
	}
	return 0, errors.New("code of the error is not a 64-bit integer")
}

// stringMember returns the text of the string member that has the given name.
func stringMember(name string, raw []byte) (string, error) {
	if raw == nil || kindOf(raw) != '"' {
		return "", fmt.Errorf("member %q is not a string", name)
	}
	text, err := unquote(raw)
	if err != nil {
		return "", fmt.Errorf("member %q: %w", name, err)
	}
	return text, nil
}
