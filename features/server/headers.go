package server

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/bowline-mcp/bowline/features/internal/paramheader"
	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/internal/header"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/go-json-experiment/json/jsontext"
)

// mustMirrored returns the arguments that a schema marks as mirrored. It panics if an
// annotation is invalid, because clients do not offer such a tool.
func mustMirrored(schema json.RawMessage) []paramheader.Argument {
	all, err := paramheader.Arguments(schema)
	if err != nil {
		panic(err)
	}
	return all
}

// checkHeaders rejects a modern request over HTTP whose headers differ from its
// arguments.
// A proxy may have decided by the header, and the tool acts by the argument. If they differ, one of the two was
// deceived.
func checkHeaders(c *call, params []paramheader.Argument, arguments json.RawMessage) error {
	if len(params) == 0 || !c.modern || c.Origin.Headers == nil {
		return nil
	}
	for _, p := range params {
		value, isText, present := argumentText(p.In(arguments))
		name := "Mcp-Param-" + p.Header
		sent := headersNamed(c.Origin.Headers, name)
		switch {
		case !present && len(sent) == 0:
		case !present || len(sent) == 0:
			return refusal.New(protocol.CodeHeaderMismatch, "%s: header and argument have to be there both", name)
		case len(sent) > 1: // a proxy may have read another one
			return refusal.New(protocol.CodeHeaderMismatch, "%s: the header is there %d times", name, len(sent))
		default:
			if text, err := header.Decode(strings.Trim(sent[0], " \t")); err != nil || text != value && (isText || !sameNumber(text, value)) {
				return refusal.New(protocol.CodeHeaderMismatch, "%s: the header differs from the argument", name)
			}
		}
	}
	return nil
}

// CheckHeaders returns an error, to be returned to the client, if the present request is a modern one over HTTP whose headers differ from the
// arguments that they mirror. It is for a RawHandler of tools/call: the tool is one of another server, as that lists it, and params are those of
// the handler. The features of this server need no such call.
func CheckHeaders(ctx context.Context, tool, params json.RawMessage) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok || !bytes.Contains(tool, []byte(paramheader.Keyword)) { // as of most calls; checkHeaders knows of all else
		return nil
	}
	schema, _ := jsonrpc.Member(tool, "inputSchema")
	all, err := paramheader.Arguments(schema)
	if err != nil {
		return nil // clients do not call such a tool, or mirror nothing: its server decides
	}
	arguments, _ := jsonrpc.Member(params, "arguments")
	return checkHeaders(c, all, arguments)
}

// headersNamed returns all values of a header. Case does not matter.
func headersNamed(headers map[string][]string, name string) (values []string) {
	for key, more := range headers {
		if strings.EqualFold(key, name) {
			values = append(values, more...)
		}
	}
	return values
}

// argumentText returns the text of a mirrored argument. Null counts as absent.
func argumentText(value json.RawMessage) (text string, isText, present bool) {
	switch jsontext.Value(value).Kind() {
	case '"':
		err := protocol.Unmarshal(value, &text)
		return text, true, err == nil
	case '0', 't', 'f':
		return string(value), false, true
	default:
		return "", false, false
	}
}

// sameNumber compares numbers by their value.
func sameNumber(header, value string) bool {
	a, errA := strconv.ParseFloat(header, 64)
	b, errB := strconv.ParseFloat(value, 64)
	return errA == nil && errB == nil && a == b
}
