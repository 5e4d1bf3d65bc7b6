package client

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/protocol"
)

// read decodes the server's answer, which may be a task, and remembers what it says
// about later requests.
func (m *method[P, R, Q]) read(s *session, raw json.RawMessage, result *R, from *peer, tasks bool) (*R, error) {
	result, err := m.decode(raw, result, from.Modern(), tasks)
	if err == nil && m.learn != nil {
		m.learn(s, result)
	}
	return result, err
}

// decode reads a result, which it returns, and fails with a *ResultError. Tasks says whether
// the result may be a task.
func (m *method[P, R, Q]) decode(raw json.RawMessage, result *R, modern, tasks bool) (*R, error) {
	if err := unmarshalResult(raw, result); err != nil {
		return nil, err
	}
	if tasks && m.task != nil {
		if became, err := m.task(result, raw, modern); err != nil {
			return nil, &ResultError{err}
		} else if became {
			return result, nil
		}
	}
	if modern { // the legacy revisions have no result types
		var asks *protocol.InputRequired
		if m.required != nil {
			asks = m.required(result)
		}
		if err := checkType(result, asks); err != nil {
			return nil, &ResultError{err}
		}
		if asks != nil {
			return result, nil
		}
	}
	if m.check == nil {
		return result, nil
	}
	if err := m.check(result); err != nil {
		return nil, &ResultError{err}
	}
	return result, nil
}

// unmarshalResult decodes a result, which must be an object.
func unmarshalResult(raw json.RawMessage, result any) error {
	if !isObject(raw) {
		return &ResultError{errors.New("it is no object")}
	}
	if err := protocol.Unmarshal(raw, result); err != nil {
		return &ResultError{err}
	}
	return nil
}

// checkType refuses a result whose type this client does not know (2026-07-28
// basic/index).
func checkType(result any, asks *protocol.InputRequired) error {
	typed, ok := result.(interface{ Type() string })
	switch {
	case !ok:
		return nil
	case asks != nil && typed.Type() != protocol.ResultInputRequired:
		return fmt.Errorf("it asks for input and is of type %.100q", typed.Type())
	case asks != nil, typed.Type() == protocol.ResultComplete:
		return nil
	default:
		return fmt.Errorf("it is of type %.100q, and this client takes %q only", typed.Type(), protocol.ResultComplete)
	}
}
