package jsonrpc_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// The examples of https://www.jsonrpc.org/specification, section 7. For each frame that is
// sent to the server, the test names the kinds of its messages, or the code of the refusal and
// whether a reply is due.
//
// Guarantees: G-0017.1, G-0017.8, G-0017.10
func TestSpecificationExamples(t *testing.T) {
	for _, test := range []struct{ name, frame, want string }{
		{"positional parameters", `{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}`, "request 1"},
		{"its response", `{"jsonrpc": "2.0", "result": 19, "id": 1}`, "result 1"},
		{"named parameters", `{"jsonrpc": "2.0", "method": "subtract", "params": {"subtrahend": 23, "minuend": 42}, "id": 3}`, "request 3"},
		{"a notification", `{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}`, "notification none"},
		{"a method that does not exist", `{"jsonrpc": "2.0", "method": "foobar", "id": "1"}`, `request "1"`},
		{"its response", `{"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}, "id": "1"}`, `error "1"`},
		{"invalid JSON", `{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]`, "-32700 due"},
		{"its response", `{"jsonrpc": "2.0", "error": {"code": -32700, "message": "Parse error"}, "id": null}`, "error none"},
		{"invalid request object", `{"jsonrpc": "2.0", "method": 1, "params": "bar"}`, "-32600 due"},
		{"batch of invalid JSON", `[
			{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
			{"jsonrpc": "2.0", "method"
		]`, "-32700 due"},
		{"empty array", `[]`, "-32600 due"},
		{"invalid batch, not empty", `[1]`, "-32600 due"},
		{"invalid batch", `[1,2,3]`, "-32600 due, -32600 due, -32600 due"},
		{"batch", `[
			{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
			{"jsonrpc": "2.0", "method": "notify_hello", "params": [7]},
			{"jsonrpc": "2.0", "method": "subtract", "params": [42,23], "id": "2"},
			{"foo": "boo"},
			{"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},
			{"jsonrpc": "2.0", "method": "get_data", "id": "9"}
		]`, `request "1", notification none, request "2", -32600 due, request "5", request "9"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := describe(jsonrpc.DecodeBatch([]byte(test.frame), jsonrpc.Limits{})); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func describe(items []jsonrpc.Item, err error) string {
	var refusal *jsonrpc.DecodeError
	if errors.As(err, &refusal) {
		return describeRefusal(refusal)
	}
	var all []string
	for _, item := range items {
		if item.Err != nil {
			all = append(all, describeRefusal(item.Err))
		} else {
			all = append(all, item.Message.Kind.String()+" "+item.Message.ID.String())
		}
	}
	return strings.Join(all, ", ")
}

func describeRefusal(e *jsonrpc.DecodeError) string {
	text := map[int64]string{jsonrpc.CodeParseError: "-32700", jsonrpc.CodeInvalidRequest: "-32600"}[e.Code]
	if e.ReplyDue() {
		text += " due"
	}
	return text
}
