package server

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/go-json-experiment/json/jsontext"
)

// headerKeyword is the member of a property's schema that names the HTTP header which
// mirrors the property: Mcp-Param- followed by this name (2026-07-28 basic/transports).
const headerKeyword = "x-mcp-header"

// A headerParam is an argument that a header mirrors.
type headerParam struct {
	header string
	path   []string // from the root of the arguments, through properties
}

// mustHeaders returns the arguments that a schema marks as mirrored. It panics if
// clients cannot mirror one of them.
func mustHeaders(raw json.RawMessage) []headerParam {
	if !strings.Contains(string(raw), headerKeyword) {
		return nil
	}
	var root headerSchema
	if err := protocol.Unmarshal(raw, &root); err != nil {
		panic(err)
	}
	var all []headerParam
	root.collect(nil, &all)
	seen := make(map[string]bool)
	for _, p := range all {
		if name := strings.ToLower(p.header); !isToken(p.header) || seen[name] {
			panic(fmt.Sprintf("%s: %q is not a header name of its own", headerKeyword, p.header))
		} else {
			seen[name] = true
		}
	}
	return all
}

type headerSchema struct {
	Type       jsontext.Value          `json:"type"`
	Header     *string                 `json:"x-mcp-header"`
	Properties map[string]headerSchema `json:"properties"`
}

func (s headerSchema) collect(path []string, all *[]headerParam) {
	if s.Header != nil {
		if kind := string(s.Type); kind != `"string"` && kind != `"integer"` && kind != `"boolean"` {
			panic(fmt.Sprintf("%s: %s is neither string, integer nor boolean", headerKeyword, strings.Join(path, ".")))
		}
		*all = append(*all, headerParam{*s.Header, slices.Clone(path)})
	}
	for name, property := range s.Properties {
		property.collect(append(path, name), all)
	}
}

// isToken reports whether a text is a token of RFC 9110.
func isToken(text string) bool {
	for _, r := range text {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r) {
			return false
		}
	}
	return text != ""
}

// checkHeaders rejects a modern request over HTTP whose headers differ from its
// arguments.
func (c *call) checkHeaders(params []headerParam, arguments json.RawMessage) error {
	if len(params) == 0 || !c.modern || c.Origin.Headers == nil {
		return nil
	}
	for _, p := range params {
		value, isText, present := argument(arguments, p.path)
		name := "Mcp-Param-" + p.header
		sent := c.Origin.Header(name)
		switch {
		case !present && sent == "":
		case !present || sent == "":
			return refuse(protocol.CodeHeaderMismatch, "%s: header and argument have to be there both", name)
		default:
			if text, ok := decodeHeader(sent); !ok || text != value && (isText || !sameNumber(text, value)) {
				return refuse(protocol.CodeHeaderMismatch, "%s: the header differs from the argument", name)
			}
		}
	}
	return nil
}

// argument returns the text of a mirrored argument. Null counts as absent.
func argument(raw json.RawMessage, path []string) (text string, isText, present bool) {
	for _, name := range path {
		var members map[string]json.RawMessage
		if protocol.Unmarshal(raw, &members) != nil {
			return "", false, false
		}
		if raw, present = members[name]; !present {
			return "", false, false
		}
	}
	switch jsontext.Value(raw).Kind() {
	case '"':
		err := protocol.Unmarshal(raw, &text)
		return text, true, err == nil
	case '0', 't', 'f':
		return string(raw), false, true
	default:
		return "", false, false
	}
}

// decodeHeader decodes a header's value: plain text, or Base64 between markers.
func decodeHeader(sent string) (text string, ok bool) {
	sent = strings.Trim(sent, " \t")
	inner, begins := strings.CutPrefix(sent, "=?base64?")
	inner, ends := strings.CutSuffix(inner, "?=")
	if !begins || !ends {
		return sent, true
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(inner)
	return string(raw), err == nil
}

// sameNumber compares numbers by their value.
func sameNumber(header, value string) bool {
	a, errA := strconv.ParseFloat(header, 64)
	b, errB := strconv.ParseFloat(value, 64)
	return errA == nil && errB == nil && a == b
}
