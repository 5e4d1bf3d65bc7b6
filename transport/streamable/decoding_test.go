package streamable

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

const (
	versionMember      = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`
	capabilitiesMember = `"io.modelcontextprotocol/clientCapabilities":{}`
)

// Decoding finds the revision, the capabilities and the id of a message. A member that
// appears twice does not count.
func TestDecodingOfAMessage(t *testing.T) {
	type found struct {
		version, capabilities, id string
		asks, modern, initializes bool
	}
	for frame, want := range map[string]found{
		`{"jsonrpc":"2.0","id":1,"method":"a"}`:            {id: "1", asks: true},
		`{"jsonrpc":"2.0","method":"a"}`:                   {},
		`{"jsonrpc":"2.0","id":2,"result":{}}`:             {},
		`{"jsonrpc":"2.0","id":"i","method":"initialize"}`: {id: `"i"`, asks: true, initializes: true},
		`{"jsonrpc":"2.0","method":"initialize"}`:          {},
		`{"jsonrpc":"2.0","id":3,"method":"a","params":{"_meta":{` + versionMember + `,` + capabilitiesMember + `}}}`:           {`"2026-07-28"`, "{}", "3", true, true, false},
		`{"jsonrpc":"2.0","id":4,"method":"a","params":{"_meta":{` + versionMember + `,` + versionMember + `}}}`:                {id: "4", asks: true},
		`{"jsonrpc":"2.0","id":5,"method":"a","params":{"_meta":{` + capabilitiesMember + `,` + capabilitiesMember + `}}}`:      {id: "5", asks: true},
		`{"jsonrpc":"2.0","id":6,"method":"a","params":{"_meta":{` + versionMember + `},"_meta":{` + capabilitiesMember + `}}}`: {id: "6", asks: true},
		`{"jsonrpc":"2.0","id":7,"method":"a","params":[{"_meta":{` + versionMember + `}}]}`:                                    {id: "7", asks: true},
		`{"jsonrpc":"2.0","method":"a","params":{"_meta":{` + versionMember + `}}}`:                                             {version: `"2026-07-28"`, modern: true},
	} {
		b := &body{frame: []byte(frame)}
		if refused := b.decode(); refused != nil {
			t.Errorf("%s: %s", frame, refused.text)
			continue
		}
		got := found{string(b.meta.Version), string(b.meta.Capabilities), "", b.isRequest, b.modern(), b.initializes()}
		if id := b.requestID(); !id.IsZero() {
			got.id = string(id.Append(nil))
		}
		if got != want || b.batch {
			t.Errorf("%s: got %+v, want %+v", frame, got, want)
		}
	}
}

// A message that cannot be decoded is refused with the id of its request, if that can
// be read.
func TestDecodingRefuses(t *testing.T) {
	for frame, want := range map[string]struct {
		code int64
		id   string
	}{
		`{`:                                   {jsonrpc.CodeParseError, ""},
		`7`:                                   {jsonrpc.CodeInvalidRequest, ""},
		`{"jsonrpc":"2.0","id":8,"method":7}`: {jsonrpc.CodeInvalidRequest, "8"},
		`{"jsonrpc":"2.0","id":9,"error":7}`:  {jsonrpc.CodeInvalidRequest, ""}, // a response has no id here
	} {
		refused := (&body{frame: []byte(frame)}).decode()
		if refused == nil {
			t.Errorf("%s is accepted, want a refusal", frame)
			continue
		}
		id := ""
		if !refused.id.IsZero() {
			id = string(refused.id.Append(nil))
		}
		if refused.status != 400 || refused.code != want.code || id != want.id || refused.text == "" {
			t.Errorf("%s: got %+v, want %+v", frame, refused, want)
		}
	}
	if refused := undecodable(errors.New("x")); refused.status != 400 || refused.code != jsonrpc.CodeInvalidRequest {
		t.Errorf("got %+v, want refused.status == 400 and refused.code == %v", refused, jsonrpc.CodeInvalidRequest)
	}
}

// A batch needs a response if it contains a request. Its operations are those of the
// messages that can be decoded.
func TestDecodingOfABatch(t *testing.T) {
	const request, notification = `{"jsonrpc":"2.0","id":1,"method":"a","params":[1]}`, `{"jsonrpc":"2.0","method":"b"}`
	const response, broken, brokenResponse = `{"jsonrpc":"2.0","id":2,"result":{}}`, `{"jsonrpc":"2.0","id":3,"method":7}`, `{"jsonrpc":"2.0","id":4,"error":7}`
	for _, test := range []struct {
		items      []string
		asks       bool
		operations string
	}{
		{[]string{request}, true, "a [1]"},
		{[]string{notification}, false, "b "},
		{[]string{response}, false, ""},
		{[]string{broken}, true, ""},
		{[]string{brokenResponse}, false, ""},
		{[]string{response, notification, request, broken}, true, "b , a [1]"},
		{[]string{notification, brokenResponse, notification}, false, "b , b "},
	} {
		frame := "[" + strings.Join(test.items, ",") + "]"
		b := &body{frame: []byte(frame)}
		if refused := b.decode(); refused != nil || !b.batch || b.isRequest {
			t.Errorf("%s: got %+v, %v", frame, refused, b.batch)
		}
		if refused := b.decodeBatch(); refused != nil {
			t.Errorf("%s: %s, want refused == nil", frame, refused.text)
		}
		var operations []string
		for _, o := range b.operations {
			operations = append(operations, o.Method+" "+string(o.Params))
		}
		if got := strings.Join(operations, ", "); b.isRequest != test.asks || got != test.operations {
			t.Errorf("%s: asks %v for %q, want %v for %q", frame, b.isRequest, got, test.asks, test.operations)
		}
		if in := b.take(); in.Message != nil || string(in.Frame) != frame || b.operations != nil || b.frame != nil {
			t.Errorf("%s: delivered %+v, and kept %+v", frame, in, b)
		}
	}
	for _, frame := range []string{`[]`, `[{]`, `[` + request} {
		b := &body{frame: []byte(frame)}
		if refused := b.decodeBatch(); refused == nil || refused.status != 400 || b.isRequest {
			t.Errorf("%s: got %+v", frame, refused)
		}
	}
}

func TestDecodingOfValues(t *testing.T) {
	for raw, want := range map[string]string{`"a\u0062"`: "ab", `7`: "", `{}`: "", ``: "", `"`: ""} {
		if got := textOf([]byte(raw)); got != want {
			t.Errorf("%s: got the text %q, want %q", raw, got, want)
		}
	}
	for raw, want := range map[string]bool{`{"a":1}`: true, ``: false, `7`: false, `{`: false} {
		var into struct {
			A int `json:"a"`
		}
		if decode([]byte(raw), &into) != want || (into.A == 1) != want {
			t.Errorf("%q: got %+v, want decode([]byte(raw), &into) == %v and (into.A == 1) == %v", raw, into, want, want)
		}
	}
}

// wantRefusal checks the status and the beginning of the text. An empty text means no
// refusal.
func wantRefusal(t *testing.T, what string, got *refusal, status int, text string) {
	t.Helper()
	switch {
	case status == 0 && got != nil:
		t.Errorf("%s: got the refusal %d %s, want none", what, got.status, got.text)
	case status != 0 && (got == nil || got.status != status || !strings.Contains(got.text, text)):
		t.Errorf("%s: got %+v, want %d with %q", what, got, status, text)
	}
}

func headerOf(lines ...string) http.Header {
	header := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		header.Add(name, value)
	}
	return header
}

// The checks of Accept and Content-Type follow the media types of HTTP.
func TestChecksOfMediaTypes(t *testing.T) {
	const both, json = "Accept: application/json, text/event-stream", "Content-Type: application/json"
	for _, test := range []struct {
		lines  []string
		status int
		text   string
	}{
		{[]string{json, both}, 0, ""},
		{[]string{json}, 0, ""},
		{[]string{"Content-Type: application/json; charset=utf-8", "Accept: */*"}, 0, ""},
		{[]string{both}, 415, "Content-Type"},
		{[]string{"Content-Type: text/plain", both}, 415, "Content-Type"},
		{[]string{json, both, "Content-Encoding: identity"}, 0, ""},
		{[]string{json, both, "Content-Encoding: Identity"}, 0, ""},
		{[]string{json, both, "Content-Encoding: gzip"}, 415, "Content-Encoding"},
		{[]string{json, "Accept: application/json"}, 406, "Accept"},
		{[]string{json, "Accept: text/event-stream"}, 406, "Accept"},
		{[]string{json, "Accept: text/html"}, 406, "Accept"},
	} {
		wantRefusal(t, strings.Join(test.lines, ", "), judged(t, post, &http.Request{Header: headerOf(test.lines...)}, nil, "its body is JSON", "its client accepts JSON and events"), test.status, test.text)
	}
}

// A legacy request with an unknown revision in its header is refused.
func TestChecksOfTheLegacyVersion(t *testing.T) {
	for version, status := range map[string]int{"": 0, "2025-03-26": 0, "2025-11-25": 0, "2026-07-28": 400, "1999-01-01": 400} {
		header := http.Header{}
		if version != "" {
			header.Set(headerVersion, version)
		}
		b := &body{Message: jsonrpc.Message{Kind: jsonrpc.KindRequest, ID: jsonrpc.IntegerID(7)}}
		refused := judged(t, initializing, &http.Request{Header: header}, b, "its revision has sessions")
		wantRefusal(t, version, refused, status, "2024-11-05, 2025-03-26")
		if refused != nil && refused.id != jsonrpc.IntegerID(7) {
			t.Errorf("%s: refused by the id %v", version, refused.id)
		}
	}
}

// Each header that mirrors a modern message must be present once, with the value of the
// message.
func TestChecksOfMirrors(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"é","_meta":{` + versionMember + `}}}`
	const list = `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{` + versionMember + `}}}`
	const nameless = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"_meta":{` + versionMember + `}}}`
	const notified = `{"jsonrpc":"2.0","method":"notifications/a","params":{"_meta":{` + versionMember + `}}}`
	const old = `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`
	const version, method, name = "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: =?base64?w6k=?="
	const listing = "Mcp-Method: tools/list"
	for _, test := range []struct {
		frame string
		lines []string
		wrong string // empty if it is accepted
	}{
		{call, []string{version, method, name}, ""},
		{call, []string{method, name}, headerVersion + ` is missing: the message has "2026-07-28"`},
		{call, []string{"Mcp-Protocol-Version: 2025-11-25", method, name}, headerVersion + ` is "2025-11-25", but the message has "2026-07-28"`},
		{call, []string{version, version, method, name}, headerVersion + " is given 2 times"},
		{call, []string{version, name}, headerMethod + ` is missing: the message has "tools/call"`},
		{call, []string{version, listing, name}, headerMethod + ` is "tools/list", but the message has "tools/call"`},
		{call, []string{version, method}, headerName + ` is missing: the message has "é"`},
		{call, []string{version, method, "Mcp-Name: e"}, headerName + ` is "e", but the message has "é"`},
		{call, []string{version, method, "Mcp-Name: =?base64?!?="}, headerName + ` is "=?base64?!?=", which cannot be decoded: the message has "é"`},
		{call, []string{listing, name}, headerVersion + ` is missing: the message has "2026-07-28"`}, // the first wrong header is named
		{nameless, []string{version, method}, ""},
		{nameless, []string{version, method, name}, headerName + ` is "é", but the message has ""`},
		{list, []string{version, listing}, ""},
		{list, []string{version, listing, name}, ""}, // no name to mirror
		{list, []string{version}, headerMethod + ` is missing: the message has "tools/list"`},
		{notified, []string{version}, ""},
		{notified, []string{version, method}, headerMethod + ` is "tools/call", but the message has "notifications/a"`},
		{notified, []string{version, "Mcp-Method: notifications/a"}, ""},
		{notified, nil, headerVersion + ` is missing: the message has "2026-07-28"`},
		{old, []string{listing}, ""}, // refused by another check
		{old, []string{version, method}, headerMethod + ` is "tools/call", but the message has "tools/list"`},
	} {
		b := &body{frame: []byte(test.frame)}
		if refused := b.decode(); refused != nil {
			t.Fatal(refused.text)
		}
		refused, status := judged(t, modernOther, &http.Request{Header: headerOf(test.lines...)}, b, "its headers say the same as its body"), 400
		if test.wrong == "" {
			status = 0
		}
		wantRefusal(t, test.frame+" with "+strings.Join(test.lines, ", "), refused, status, test.wrong)
		if refused != nil && (refused.text != test.wrong || refused.code != protocol.CodeHeaderMismatch || refused.id != b.requestID()) {
			t.Errorf("%s: got %+v", test.frame, refused)
		}
	}
}

// A request of another origin or host is refused.
func TestChecksOfTheSource(t *testing.T) {
	h := &Handler{options: HandlerOptions{AllowedOrigins: []string{"https://app.example"}, AllowedHosts: []string{"mcp.example"}}}
	for _, test := range []struct {
		origin, host string
		status       int
	}{{"https://app.example", "mcp.example", 0}, {"", "mcp.example", 0}, {"https://evil.example", "mcp.example", 403}, {"", "evil.example", 403}} {
		r := newRequest("POST", "{}")
		r.Host = test.host
		if r.Header.Del("Origin"); test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		wantRefusal(t, test.origin+" at "+test.host, (&arrival{h: h, r: r, kind: post}).passes(door[1:]), test.status, "not allowed")
	}
}
