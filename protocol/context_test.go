package protocol_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/google/go-cmp/cmp"
)

func fullContext() *protocol.RequestContext {
	return &protocol.RequestContext{
		ProtocolVersion: protocol.Latest,
		ClientCapabilities: protocol.ClientCapabilities{
			Roots:       &protocol.RootsCapability{},
			Elicitation: &protocol.ElicitationCapability{Form: &protocol.Capability{}},
			Extensions:  map[string]json.RawMessage{"io.modelcontextprotocol/tasks": json.RawMessage(`{}`)},
		},
		ClientInfo: &protocol.Implementation{Name: "c", Version: "1"},
		LogLevel:   "info",
	}
}

func minimalContext() *protocol.RequestContext {
	return &protocol.RequestContext{ProtocolVersion: protocol.Latest}
}

// inParams returns the params of a request with a context.
func inParams(t testing.TB, c *protocol.RequestContext) protocol.RequestParams {
	t.Helper()
	members, err := c.Members()
	if err != nil {
		t.Fatal(err)
	}
	params := protocol.RequestParams{}
	params.AddMeta(members)
	return params
}

func TestContextComesAsItWasSent(t *testing.T) {
	for name, sent := range map[string]*protocol.RequestContext{"full": fullContext(), "minimal": minimalContext()} {
		params := protocol.CallToolParams{RequestParams: inParams(t, sent), Name: "add"}
		params.SetMeta(protocol.MetaProgressToken, json.RawMessage("1"))
		raw, err := protocol.Marshal(params)
		if err != nil {
			t.Fatal(err)
		}
		got, modern, err := protocol.ModernContext(raw)
		clear(raw) // what was read is a copy
		if err != nil || !modern {
			t.Errorf("%s: modern is %t, %v", name, modern, err)
		}
		if diff := cmp.Diff(sent, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestMembersThatCannotBeSent(t *testing.T) {
	broken := minimalContext()
	broken.ClientCapabilities.Experimental = map[string]json.RawMessage{"a": json.RawMessage("{")}
	if members, err := broken.Members(); err == nil {
		t.Errorf("got %v", members)
	}
}

const (
	versionMember      = `"io.modelcontextprotocol/protocolVersion":`
	capabilitiesMember = `"io.modelcontextprotocol/clientCapabilities":`
	infoMember         = `"io.modelcontextprotocol/clientInfo":`
	levelMember        = `"io.modelcontextprotocol/logLevel":`
)

func TestLegacyParamsHaveNoContext(t *testing.T) {
	for _, params := range []string{
		``, `null`, `[]`, `{}`, `3`, `{"_meta":{}}`, `{"_meta":{"progressToken":1}}`,
		`{"_meta":null}`, `{"_meta":7}`, `{"_meta":["` + protocol.MetaProtocolVersion + `"]}`,
		`{"_meta":"` + protocol.MetaProtocolVersion + `"}`,
		`{` + versionMember + `"2026-07-28"}`,
		`{"arguments":{"_meta":{` + versionMember + `"2026-07-28"}}}`,
		`{"arguments":{"a":"\u0041\/"},"_meta":{}}`,
		`{"_meta":{` + capabilitiesMember + `{},` + infoMember + `3}}`,
		`{"_META":{` + versionMember + `"2026-07-28"}}`,
		`{"_meta":{"io.modelcontextprotocol/ProtocolVersion":"2026-07-28"}}`,
		`{"_meta":{"a":{` + versionMember + `"2026-07-28"}}}`,
	} {
		if c, modern, err := protocol.ModernContext(json.RawMessage(params)); c != nil || modern || err != nil {
			t.Errorf("%s: got %+v, %t, %v", params, c, modern, err)
		}
	}
}

func TestModernParamsHaveAContext(t *testing.T) {
	const rest = capabilitiesMember + `{}`
	for _, params := range []string{
		`{"_meta":{` + versionMember + `"v",` + rest + `}}`,
		`{"_meta":{` + rest + `,"a":{"b":[1]},` + versionMember + `"v"}}`,
		`{"arguments":{"_meta":3},"name":"n", "_meta" : {` + versionMember + ` "v" , ` + rest + `} }`,
		`{"_meta":{"io.modelcontextprotocol\/protocolVersion":"v","io.modelcontextprotocol\/clientCapabilities":{}}}`,
		`{"\u005fmeta":{"\u0069o.modelcontextprotocol/protocolVersio\u006e":"\u0076",` + rest + `}}`,
		`{"_meta":{` + versionMember + `"v",` + rest + `,` + infoMember + `null,` + levelMember + `null}}`,
	} {
		c, modern, err := protocol.ModernContext(json.RawMessage(params))
		if err != nil || !modern {
			t.Errorf("%s: modern is %t, %v", params, modern, err)
		} else if diff := cmp.Diff(&protocol.RequestContext{ProtocolVersion: "v"}, c); diff != "" {
			t.Errorf("%s: %s", params, diff)
		}
	}
}

func TestContextThatCannotBeRead(t *testing.T) {
	const version, capabilities = versionMember + `"2026-07-28"`, capabilitiesMember + `{}`
	icons := strings.Repeat("{},", protocol.MaxParts) + "{}"
	for _, test := range []struct{ meta, names string }{
		{versionMember + `7,` + capabilities, protocol.MetaProtocolVersion},
		{versionMember + `null,` + capabilities, protocol.MetaProtocolVersion},
		{versionMember + `{}`, protocol.MetaProtocolVersion},
		{version, protocol.MetaClientCapabilities},
		{version + `,` + capabilitiesMember + `null`, protocol.MetaClientCapabilities},
		{version + `,` + capabilitiesMember + `[]`, protocol.MetaClientCapabilities},
		{version + `,` + capabilitiesMember + `true`, protocol.MetaClientCapabilities},
		{capabilitiesMember + `{"roots":7},` + version, protocol.MetaClientCapabilities},
		{version + `,` + capabilities + `,` + infoMember + `"c"`, protocol.MetaClientInfo},
		{version + `,` + capabilities + `,` + infoMember + `{"name":7}`, protocol.MetaClientInfo},
		{version + `,` + capabilities + `,` + infoMember + `{"icons":[` + icons + `]}`, protocol.MetaClientInfo},
		{levelMember + `3,` + version + `,` + capabilities, protocol.MetaLogLevel},
	} {
		c, modern, err := protocol.ModernContext(json.RawMessage(`{"_meta":{` + test.meta + `}}`))
		var fault *jsonrpc.Error
		if c != nil || !modern || !errors.As(err, &fault) {
			t.Errorf("%.200s: got %+v, %t, %v", test.meta, c, modern, err)
			continue
		}
		if fault.Code != jsonrpc.CodeInvalidParams || !strings.Contains(fault.Message, test.names+" ") {
			t.Errorf("%.200s: got %v", test.meta, fault)
		}
	}
}

// ReadContext gives the same result with and without its fast check.
func FuzzModernContext(f *testing.F) {
	f.Add([]byte(`{"_meta":{` + versionMember + `"2026-07-28",` + capabilitiesMember + `{}}}`))
	f.Add([]byte(`{"_meta":{"io.modelcontextprotocol\/protocolVersion":1}}`))
	f.Add([]byte(`{"arguments":{"a":"\u0041"},"\u005fmeta":{"\u0069o.modelcontextprotocol/protocolVersion":""}}`))
	f.Add([]byte(`{"_meta":[` + versionMember[:len(versionMember)-1] + `]}`))
	f.Add([]byte(`{"_meta":{` + versionMember))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, modern, err := protocol.ModernContext(raw)
		if (c != nil) != (modern && err == nil) || (err != nil && !modern) {
			t.Fatalf("got %+v, %t, %v", c, modern, err)
		}
		var all map[string]json.RawMessage
		if protocol.Unmarshal(raw, &all) != nil {
			return // never comes out of a decoded message, or is refused later
		}
		var meta map[string]json.RawMessage
		want := false
		if protocol.Unmarshal(all["_meta"], &meta) == nil {
			_, want = meta[protocol.MetaProtocolVersion]
		}
		if modern != want {
			t.Fatalf("modern is %t", modern)
		}
	})
}

func BenchmarkModernContext(b *testing.B) {
	const text = `0123456789012345678901234567890123456789012345678901234567890123`
	encoded := func(params protocol.CallToolParams) json.RawMessage {
		raw, err := protocol.Marshal(params)
		if err != nil {
			b.Fatal(err)
		}
		return raw
	}
	call := func(arguments string) protocol.CallToolParams {
		return protocol.CallToolParams{Name: "echo", Arguments: json.RawMessage(`{"message":"` + arguments + `"}`)}
	}
	in := func(c *protocol.RequestContext, params protocol.CallToolParams) protocol.CallToolParams {
		params.RequestParams = inParams(b, c)
		return params
	}
	named := minimalContext()
	named.ClientInfo = &protocol.Implementation{Name: "client", Version: "1"}
	mebibyte := strings.Repeat(text, 1<<20/len(text))
	for _, test := range []struct {
		name   string
		params json.RawMessage
	}{
		{"legacy", encoded(call(text))},
		{"legacy, 1 MiB", encoded(call(mebibyte))},
		{"legacy, escaped slash", json.RawMessage(`{"name":"echo","arguments":{"message":"` + text + `\/"}}`)},
		{"modern, no name", encoded(in(minimalContext(), call(text)))},
		{"modern", encoded(in(named, call(text)))},
		{"modern, 1 MiB", encoded(in(named, call(mebibyte)))},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := protocol.ModernContext(test.params); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("decoding the params of modern", func(b *testing.B) {
		raw := encoded(in(named, call(text)))
		b.ReportAllocs()
		for b.Loop() {
			var params protocol.CallToolParams
			if err := protocol.Unmarshal(raw, &params); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Repeated names are refused with the params, not with the context.
func TestContextWithRepeatedNamesIsRead(t *testing.T) {
	info := `{"name":"a","version":"1","version":"2","icons":[{"src":"b","src":"c"}],"description":"` + strings.Repeat("d", 2*protocol.MaxParts) + `"}`
	params := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":` + info + `}}`
	read, modern, err := protocol.ModernContext(json.RawMessage(params))
	if err != nil || !modern || read.ClientInfo == nil || read.ClientInfo.Version != "2" {
		t.Errorf("got %+v, %t, %v", read, modern, err)
	}
}
