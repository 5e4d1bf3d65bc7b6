package gateway

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/policy"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

const (
	longestShown = 256     // bytes of a value; of a longer one only its length is shown
	allShown     = 2 << 10 // bytes of all values of a record, some of which take six with their escapes
)

// A showing is what of arguments the file lets records have.
type showing []mcpjson.Shown

// of returns the values in the arguments of a request that its record may have, as an object of their names, or nil. The arguments of tools and prompts are all
// that it looks at: headers and tokens of the client are nowhere in them.
func (s *showing) of(about catalogue.Item, method string, params json.RawMessage) json.RawMessage {
	if s == nil || len(*s) == 0 || method != protocol.MethodCallTool && method != protocol.MethodGetPrompt {
		return nil
	}
	room, values := allShown, map[string]json.RawMessage{}
	for _, one := range *s {
		if !policy.Names(one.Of, about) {
			continue
		}
		for _, name := range one.Members {
			if value := shownAt(params, "arguments."+name); value != nil && len(name)+len(value) <= room {
				values[name] = value
				room -= len(name) + len(value)
			}
		}
	}
	if len(values) == 0 {
		return nil
	}
	shown, _ := json.Marshal(values) // in the order of their names; package server lets nothing through that is no JSON
	return shown
}

// shownAt returns a member of an object, or of an object in it, or nil. Of a long one it returns the length.
func shownAt(of json.RawMessage, path string) json.RawMessage {
	for name := range strings.SplitSeq(path, ".") {
		of, _ = jsonrpc.Member(of, name)
	}
	if len(of) > longestShown {
		return fmt.Appendf(nil, `"(%d bytes)"`, len(of))
	}
	return of
}
