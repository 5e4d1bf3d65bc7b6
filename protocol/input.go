package protocol

import (
	stdjson "encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// An InputRequest is a question from a server to its client: *ElicitParams,
// *CreateMessageParams or *ListRootsParams. A legacy server sends it as a
// request, and a modern server inside of a result.
type InputRequest interface {
	Method() string // the method of the request
	isInputRequest()
}

// An InputResponse is the client's answer to an InputRequest: *ElicitResult,
// *CreateMessageResult or *ListRootsResult. When decoded it may also be an
// *UnknownInputResponse.
type InputResponse interface {
	isInputResponse()
}

// An UnknownInputResponse is an answer that fits none of the three results. A
// server refuses it if it has asked a question with that key, and otherwise ignores it.
type UnknownInputResponse struct {
	Raw stdjson.RawMessage // required to encode it
}

func (*ElicitParams) Method() string        { return MethodElicit }
func (*CreateMessageParams) Method() string { return MethodCreateMessage }
func (*ListRootsParams) Method() string     { return MethodListRoots }

func (*ElicitParams) isInputRequest()        {}
func (*CreateMessageParams) isInputRequest() {}
func (*ListRootsParams) isInputRequest()     {}

func (*ElicitResult) isInputResponse()         {}
func (*CreateMessageResult) isInputResponse()  {}
func (*ListRootsResult) isInputResponse()      {}
func (*UnknownInputResponse) isInputResponse() {}

// InputRequired says that a server needs input before it can answer (2026-07-28
// basic/patterns/mrtr). The client sends the request again, with an answer under
// each key and the same RequestState. At least one member is set.
type InputRequired struct {
	InputRequests InputRequests `json:"inputRequests,omitzero"`
	RequestState  *string       `json:"requestState,omitzero"` // opaque to the client
}

// InputParams holds the members that a client adds when it sends a request again after
// InputRequired. In the first request both are nil.
type InputParams struct {
	InputResponses InputResponses `json:"inputResponses,omitzero"`
	RequestState   *string        `json:"requestState,omitzero"` // exactly as it came
}

// stampType sets the type of a result that asks, unless it has one.
func (r *InputRequired) stampType(result *Result) {
	if r != nil && result.ResultType == "" {
		result.ResultType = ResultInputRequired
	}
}

// marshalAs encodes an input_required result, which has no other content.
func (r *InputRequired) marshalAs(to *jsontext.Encoder, result Result, others map[string]stdjson.RawMessage) error {
	result.ResultType = ResultInputRequired
	return marshalTo(to, struct {
		Result
		*InputRequired
		Others map[string]stdjson.RawMessage `json:",unknown"`
	}{result, r, others})
}

// marshalTo encodes a value from within another.
func marshalTo(to *jsontext.Encoder, value any) error { return json.MarshalEncode(to, value) }

// InputRequests holds questions by a key that the server chose, at most MaxParts
// when decoded.
type InputRequests map[string]InputRequest

type inputRequest struct {
	Method string         `json:"method"`
	Params jsontext.Value `json:"params,omitzero"`
}

// MarshalJSONTo encodes the questions in the order of their keys. It fails for a
// nil question.
func (r InputRequests) MarshalJSONTo(to *jsontext.Encoder) error {
	return marshalMap(to, r, func(question InputRequest) (any, error) {
		if isNil(question) {
			return nil, fmt.Errorf("protocol: an input request is nil (%T)", question)
		}
		params, err := Marshal(question)
		return inputRequest{question.Method(), jsontext.Value(params)}, err
	})
}

// UnmarshalJSON fails for a question of an unknown method, since nobody could
// answer it. Null becomes nil.
func (r *InputRequests) UnmarshalJSON(raw []byte) error {
	*r = nil
	if isNull(raw) {
		return nil
	}
	all := InputRequests{}
	err := readMembers(raw, jsontext.AllowInvalidUTF8(true), MaxParts, "input requests", func(key string, value jsontext.Value) (err error) {
		all[key], err = unmarshalInputRequest(key, value)
		return err
	})
	if err != nil {
		return err
	}
	*r = all
	return nil
}

func unmarshalInputRequest(key string, raw jsontext.Value) (InputRequest, error) {
	var wire inputRequest
	if err := Unmarshal(raw, &wire); err != nil {
		return nil, err
	}
	var question InputRequest
	switch wire.Method {
	case MethodElicit:
		question = new(ElicitParams)
	case MethodCreateMessage:
		question = new(CreateMessageParams)
	case MethodListRoots:
		question = new(ListRootsParams)
	default:
		return nil, fmt.Errorf("protocol: input request %.80q has the unknown method %.80q", key, wire.Method)
	}
	return question, Unmarshal(wire.Params, question)
}

// InputResponses holds answers by the key of their question, at most MaxParts
// when decoded.
type InputResponses map[string]InputResponse

// MarshalJSONTo encodes the answers in the order of their keys. It fails for a
// nil answer, and for an UnknownInputResponse without Raw.
func (r InputResponses) MarshalJSONTo(to *jsontext.Encoder) error {
	return marshalMap(to, r, func(answer InputResponse) (any, error) {
		if unknown, ok := answer.(*UnknownInputResponse); ok && unknown != nil && len(unknown.Raw) > 0 {
			return unknown.Raw, nil
		}
		if _, unknown := answer.(*UnknownInputResponse); unknown || isNil(answer) {
			return nil, fmt.Errorf("protocol: an input response is nil, or has no Raw (%T)", answer)
		}
		return answer, nil
	})
}

// UnmarshalJSON decodes each answer as the result whose required members it has.
// An answer that cannot be read becomes an *UnknownInputResponse. Null becomes
// nil.
func (r *InputResponses) UnmarshalJSON(raw []byte) error {
	*r = nil
	if isNull(raw) {
		return nil
	}
	all := InputResponses{}
	err := readMembers(raw, jsontext.AllowInvalidUTF8(true), MaxParts, "input responses", func(key string, value jsontext.Value) error {
		all[key] = unmarshalInputResponse(value)
		return nil
	})
	if err != nil {
		return err
	}
	*r = all
	return nil
}

func unmarshalInputResponse(raw jsontext.Value) InputResponse {
	var has struct {
		Action jsontext.Value `json:"action"`
		Roots  jsontext.Value `json:"roots"`
		Role   jsontext.Value `json:"role"`
		Model  jsontext.Value `json:"model"`
	}
	var answer InputResponse
	switch err := Unmarshal(raw, &has); {
	case err != nil:
	case has.Role != nil && has.Model != nil:
		answer = new(CreateMessageResult)
	case has.Action != nil:
		answer = new(ElicitResult)
	case has.Roots != nil:
		answer = new(ListRootsResult)
	}
	if answer == nil || Unmarshal(raw, answer) != nil {
		return &UnknownInputResponse{Raw: stdjson.RawMessage(raw.Clone())}
	}
	return answer
}

// marshalMap encodes the members of a map in the order of their names.
func marshalMap[V any](to *jsontext.Encoder, all map[string]V, wire func(V) (any, error)) error {
	if err := to.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value, err := wire(all[name])
		if err != nil {
			return err
		}
		if err := to.WriteToken(jsontext.String(name)); err != nil {
			return err
		}
		if err := marshalTo(to, value); err != nil {
			return err
		}
	}
	return to.WriteToken(jsontext.EndObject)
}

// isNil reports whether a value would be encoded as null.
func isNil(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case *ElicitParams:
		return v == nil
	case *CreateMessageParams:
		return v == nil
	case *ListRootsParams:
		return v == nil
	case *ElicitResult:
		return v == nil
	case *CreateMessageResult:
		return v == nil
	case *ListRootsResult:
		return v == nil
	default:
		return false
	}
}

// The modes of an elicitation.
const (
	ElicitForm = "form" // the user fills in a form; an absent mode means this
	ElicitURL  = "url"  // the user opens a page; since 2025-11-25
)

// ElicitParams asks the user of a client (since 2025-06-18). Never ask for
// secrets by a form.
type ElicitParams struct {
	RequestParams
	Mode            string             `json:"mode,omitzero"` // ElicitForm or ElicitURL; empty means ElicitForm
	Message         string             `json:"message"`
	RequestedSchema stdjson.RawMessage `json:"requestedSchema,omitzero"` // of a form: a flat JSON Schema of an object
	URL             string             `json:"url,omitzero"`             // of a URL: show all of it, and do not fetch it
	ElicitationID   string             `json:"elicitationId,omitzero"`   // of a URL: required in 2025-11-25, and in no other revision
	Task            *TaskMetadata      `json:"task,omitzero"`            // 2025-11-25 only
}

// The actions of an ElicitResult.
const (
	ElicitAccept  = "accept"  // the user agreed; nothing else is consent
	ElicitDecline = "decline" // the user said no
	ElicitCancel  = "cancel"  // the user gave no answer
)

// ElicitResult is the answer of a user.
type ElicitResult struct {
	Meta    Meta               `json:"_meta,omitzero"`
	Action  string             `json:"action"`
	Content stdjson.RawMessage `json:"content,omitzero"` // of an accepted form: an object
}

// ElicitationCompleteParams says that the user has finished on the page of a URL
// elicitation (2025-11-25 only).
type ElicitationCompleteParams struct {
	NotificationParams
	ElicitationID string `json:"elicitationId"`
}

// URLElicitationData is the data of a CodeURLElicitationRequired error.
type URLElicitationData struct {
	// Elicitations are at most MaxParts when they are decoded, and none of them is nil.
	Elicitations []*ElicitParams `json:"elicitations" most:"MaxParts elicitations of an error"`
}

// URLElicitationRequired returns the error for a request that cannot be served before the
// user has visited some pages (2025-11-25 only). Each page has the mode "url", a URL and
// an ElicitationID.
func URLElicitationRequired(message string, pages ...*ElicitParams) error {
	data, err := Marshal(&URLElicitationData{Elicitations: pages})
	if err != nil {
		return err
	}
	return &jsonrpc.Error{Code: CodeURLElicitationRequired, Message: message, Data: data}
}

// ListRootsParams asks for the roots of a client.
type ListRootsParams struct {
	RequestParams
}

// ListRootsResult holds the roots of a client.
type ListRootsResult struct {
	Meta Meta `json:"_meta,omitzero"`
	// Roots are at most MaxItems when they are decoded.
	// Absent ones are nil.
	Roots []Root `json:"roots" most:"MaxItems roots"`
}

// A Root is a directory or file in which a client lets servers work.
type Root struct {
	URI  string `json:"uri"` // begins with file://
	Name string `json:"name,omitzero"`
	Meta Meta   `json:"_meta,omitzero"`
}
