//bowline:pure

package relay

import (
	"encoding/json"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// agreed returns what a result of initialize says: the revision, and the notifications of lists that may come.
func agreed(result []byte) (version string, lists []string) {
	var r struct {
		ProtocolVersion string
		Capabilities    map[string]json.RawMessage
	}
	_ = json.Unmarshal(result, &r) // one that is broken has agreed on nothing
	for _, of := range [...]struct{ capability, list string }{
		{"tools", protocol.NotificationToolsListChanged}, {"prompts", protocol.NotificationPromptsListChanged}, {"resources", protocol.NotificationResourcesListChanged},
	} {
		if value, _ := jsonrpc.Member(r.Capabilities[of.capability], "listChanged"); string(value) == "true" {
			lists = append(lists, of.list)
		}
	}
	return r.ProtocolVersion, lists
}

// changes returns the notifications that a subscriptions/listen has missed, by what a gateway has acknowledged.
func changes(acknowledged []byte) (frames [][]byte) {
	meta, _ := jsonrpc.Member(acknowledged, "_meta")
	filter, _ := jsonrpc.Member(acknowledged, "notifications")
	for _, of := range [...]struct{ member, list string }{
		{"toolsListChanged", protocol.NotificationToolsListChanged}, {"promptsListChanged", protocol.NotificationPromptsListChanged}, {"resourcesListChanged", protocol.NotificationResourcesListChanged},
	} {
		if value, _ := jsonrpc.Member(filter, of.member); string(value) == "true" {
			frames = append(frames, jsonrpc.AppendNotification(nil, of.list, []byte(`{"_meta":`+string(meta)+`}`)))
		}
	}
	var uris []json.RawMessage
	text, _ := jsonrpc.Member(filter, "resourceSubscriptions")
	_ = json.Unmarshal(text, &uris) // there may be none
	for _, uri := range uris {
		frames = append(frames, jsonrpc.AppendNotification(nil, protocol.NotificationResourcesUpdated, []byte(`{"_meta":`+string(meta)+`,"uri":`+string(uri)+`}`)))
	}
	return frames
}

func isModern(params []byte) bool {
	meta, _ := jsonrpc.Member(params, "_meta")
	version, _ := jsonrpc.Member(meta, protocol.MetaProtocolVersion)
	return version != nil
}

// idIn returns the request that a notifications/cancelled names.
func idIn(params []byte) (jsonrpc.ID, bool) {
	text, _ := jsonrpc.Member(params, "requestId")
	id, err := jsonrpc.ParseID(text)
	return id, err == nil
}

func cancelled(id jsonrpc.ID) []byte {
	return jsonrpc.AppendNotification(nil, protocol.NotificationCancelled, append(id.Append([]byte(`{"requestId":`)), '}'))
}

// encode returns the frame of a message.
func encode(m *jsonrpc.Message) []byte {
	switch m.Kind {
	case jsonrpc.KindRequest:
		return jsonrpc.AppendRequest(nil, m.ID, m.Method, m.Params)
	case jsonrpc.KindNotification:
		return jsonrpc.AppendNotification(nil, m.Method, m.Params)
	default:
		return answer(m.ID, m)
	}
}

// answer returns an answer of the host under the gateway's own id.
func answer(id jsonrpc.ID, m *jsonrpc.Message) []byte {
	if m.Kind == jsonrpc.KindError {
		return jsonrpc.AppendError(nil, id, m.Error)
	}
	return jsonrpc.AppendResult(nil, id, m.Result)
}

// isLeaving reports whether a request was refused by a peer that is shutting down, and so not executed. A gateway passes the same refusal of a
// server on, and lives: only the answer to methodLeaving tells.
func isLeaving(m *jsonrpc.Message) bool {
	return m.Kind == jsonrpc.KindError && m.Error.Code == jsonrpc.CodeOverloaded && strings.HasSuffix(m.Error.Message, "shutting down")
}
