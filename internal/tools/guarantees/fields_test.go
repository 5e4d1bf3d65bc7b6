package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

const fieldsPreamble = `
## Fields

This table lists every member of a message in the published schemas, by revision. ✓ means that the schema has the member, and
so does the type of package ` + "`protocol`" + ` (` + "`jsonrpc.Error`" + ` for an error). – means that the schema does not have it.
Both sides use the same types, so each can read what the other sends. A test fails if a type lacks a member of a schema. The
published schemas do not define the extensions for tasks and skills, so these are not listed here.

| Type | Member | %s |
| --- | --- |%s
`

// goTypes contains the Go types of the definitions in the schemas, by name.
func goTypes() map[string]any {
	return map[string]any{
		"AcknowledgedParams":        protocol.AcknowledgedParams{},
		"Annotations":               protocol.Annotations{},
		"AudioContent":              &protocol.AudioContent{},
		"CacheableResult":           protocol.CacheableResult{},
		"CallToolParams":            protocol.CallToolParams{},
		"CallToolResult":            protocol.CallToolResult{},
		"CancelTaskParams":          protocol.CancelTaskParams{},
		"CancelledParams":           protocol.CancelledParams{},
		"ClientCapabilities":        protocol.ClientCapabilities{},
		"CompleteParams":            protocol.CompleteParams{},
		"CompleteReference":         protocol.CompleteReference{},
		"CompleteResult":            protocol.CompleteResult{},
		"CreateMessageParams":       protocol.CreateMessageParams{},
		"CreateMessageResult":       protocol.CreateMessageResult{},
		"DiscoverParams":            protocol.DiscoverParams{},
		"DiscoverResult":            protocol.DiscoverResult{},
		"ElicitParams":              protocol.ElicitParams{},
		"ElicitResult":              protocol.ElicitResult{},
		"ElicitationCompleteParams": protocol.ElicitationCompleteParams{},
		"EmbeddedResource":          &protocol.EmbeddedResource{},
		"EmptyResult":               protocol.EmptyResult{},
		"Error":                     jsonrpc.Error{},
		"GetPromptParams":           protocol.GetPromptParams{},
		"GetPromptResult":           protocol.GetPromptResult{},
		"GetTaskParams":             protocol.GetTaskParams{},
		"GetTaskResultParams":       protocol.GetTaskResultParams{},
		"Icon":                      protocol.Icon{},
		"ImageContent":              &protocol.ImageContent{},
		"Implementation":            protocol.Implementation{},
		"InitializeParams":          protocol.InitializeParams{},
		"InitializeResult":          protocol.InitializeResult{},
		"InputRequired": struct {
			protocol.Result
			protocol.InputRequired
		}{},
		"LegacyCreateTaskResult":      protocol.LegacyCreateTaskResult{},
		"LegacyTask":                  protocol.LegacyTask{},
		"LegacyTaskResult":            protocol.LegacyTaskResult{},
		"ListPromptsParams":           protocol.ListPromptsParams{},
		"ListPromptsResult":           protocol.ListPromptsResult{},
		"ListResourceTemplatesParams": protocol.ListResourceTemplatesParams{},
		"ListResourceTemplatesResult": protocol.ListResourceTemplatesResult{},
		"ListResourcesParams":         protocol.ListResourcesParams{},
		"ListResourcesResult":         protocol.ListResourcesResult{},
		"ListRootsParams":             protocol.ListRootsParams{},
		"ListRootsResult":             protocol.ListRootsResult{},
		"ListTasksParams":             protocol.ListTasksParams{},
		"ListTasksResult":             protocol.ListTasksResult{},
		"ListToolsParams":             protocol.ListToolsParams{},
		"ListToolsResult":             protocol.ListToolsResult{},
		"ListenParams":                protocol.ListenParams{},
		"ListenResult":                protocol.ListenResult{},
		"LogMessageParams":            protocol.LogMessageParams{},
		"Meta":                        metaNames{},
		"MissingCapabilityData":       protocol.MissingCapabilityData{},
		"ModelHint":                   protocol.ModelHint{},
		"ModelPreferences":            protocol.ModelPreferences{},
		"NotificationParams":          protocol.NotificationParams{},
		"PingParams":                  protocol.PingParams{},
		"ProgressParams":              protocol.ProgressParams{},
		"Prompt":                      protocol.Prompt{},
		"PromptArgument":              protocol.PromptArgument{},
		"PromptMessage":               protocol.PromptMessage{},
		"ReadResourceParams":          protocol.ReadResourceParams{},
		"ReadResourceResult":          protocol.ReadResourceResult{},
		"RelatedTask":                 protocol.RelatedTask{},
		"RequestParams":               protocol.RequestParams{},
		"Resource":                    protocol.Resource{},
		"ResourceContents":            protocol.ResourceContents{},
		"ResourceLink":                &protocol.ResourceLink{},
		"ResourceTemplate":            protocol.ResourceTemplate{},
		"ResourceUpdatedParams":       protocol.ResourceUpdatedParams{},
		"Result":                      protocol.Result{},
		"Root":                        protocol.Root{},
		"SamplingMessage":             protocol.SamplingMessage{},
		"ServerCapabilities":          protocol.ServerCapabilities{},
		"SetLogLevelParams":           protocol.SetLogLevelParams{},
		"SubscribeParams":             protocol.SubscribeParams{},
		"SubscriptionFilter":          protocol.SubscriptionFilter{},
		"TaskMetadata":                protocol.TaskMetadata{},
		"TaskStatusParams":            protocol.TaskStatusParams{},
		"TextContent":                 &protocol.TextContent{},
		"Tool":                        protocol.Tool{},
		"ToolAnnotations":             protocol.ToolAnnotations{},
		"ToolChoice":                  protocol.ToolChoice{},
		"ToolExecution":               protocol.ToolExecution{},
		"ToolResultContent":           &protocol.ToolResultContent{},
		"ToolUseContent":              &protocol.ToolUseContent{},
		"URLElicitationData":          protocol.URLElicitationData{},
		"UnsubscribeParams":           protocol.UnsubscribeParams{},
		"UnsupportedVersionData":      protocol.UnsupportedVersionData{},
	}
}

// metaNames represents the members of _meta that the protocol names.
type metaNames struct{}

func (metaNames) names() []string {
	return []string{protocol.MetaProgressToken, protocol.MetaProtocolVersion, protocol.MetaClientCapabilities, protocol.MetaClientInfo,
		protocol.MetaLogLevel, protocol.MetaServerInfo, protocol.MetaSubscriptionID}
}

// otherwiseNamed contains the Go types of definitions that have another name.
func otherwiseNamed() map[string]string {
	return map[string]string{
		"CancelTaskResult": "LegacyTaskResult", "CreateTaskResult": "LegacyCreateTaskResult", "GetTaskPayloadParams": "GetTaskResultParams",
		"GetTaskPayloadResult": "Result", "GetTaskResult": "LegacyTaskResult", "RelatedTaskMetadata": "RelatedTask", "Task": "LegacyTask",
		"InitializedParams": "NotificationParams", "PromptListChangedParams": "NotificationParams", "ResourceListChangedParams": "NotificationParams",
		"RootsListChangedParams": "NotificationParams", "ToolListChangedParams": "NotificationParams",
		"InputRequiredResult": "InputRequired", "LoggingMessageParams": "LogMessageParams", "SetLevelParams": "SetLogLevelParams",
		"PromptReference": "CompleteReference", "ResourceReference": "CompleteReference", "ResourceTemplateReference": "CompleteReference",
		"BlobResourceContents": "ResourceContents", "TextResourceContents": "ResourceContents",
		"ElicitFormParams": "ElicitParams", "ElicitURLParams": "ElicitParams",
		"ElicitRequestFormParams": "ElicitParams", "ElicitRequestURLParams": "ElicitParams",
		"SubscriptionsAcknowledgedParams": "AcknowledgedParams", "SubscriptionsListenParams": "ListenParams", "SubscriptionsListenResult": "ListenResult",
		"NotificationMetaObject": "Meta", "RequestMetaObject": "Meta", "ResultMetaObject": "Meta", "SubscriptionsListenResultMetaObject": "Meta",
		"InternalError": "Error", "InvalidParamsError": "Error", "InvalidRequestError": "Error", "MethodNotFoundError": "Error", "ParseError": "Error",
		"MissingRequiredClientCapabilityError": "MissingCapabilityData", "UnsupportedProtocolVersionError": "UnsupportedVersionData",
		"URLElicitationRequiredError": "URLElicitationData",
	}
}

// notCarried contains the reasons why a definition with members has no Go type.
func notCarried(definition string) (reason string, ok bool) {
	switch definition {
	case "Annotated", "BaseMetadata", "Icons", "PaginatedParams", "PaginatedRequestParams", "PaginatedResult", "ResourceParams", "ResourceRequestParams",
		"InputResponseParams", "InputResponseRequestParams", "TaskAugmentedParams", "TaskAugmentedRequestParams", "Params":
		return "its members are those of the definitions that include it", true
	case "ContentBlock", "SamplingMessageContentBlock", "InputRequest", "InputResponse":
		return "any of several definitions", true
	case "HeaderMismatchError":
		return "an error without data of its own", true
	}
	switch {
	case strings.HasSuffix(definition, "Schema"), definition == "PrimitiveSchemaDefinition":
		return "schemas of forms stay JSON", true
	case strings.HasPrefix(definition, "JSONRPC"), strings.HasSuffix(definition, "Response"):
		return "the envelope is jsonrpc.Message", true
	case strings.HasPrefix(definition, "Client") && definition != "ClientCapabilities",
		strings.HasPrefix(definition, "Server") && definition != "ServerCapabilities":
		return "any of several definitions", true
	}
	return "", false
}

// members contains, by Go type and member, the revisions whose schema has the member.
type members map[string]map[string][]string

// TestEveryFieldIsCarried checks that the type of each message has all members of the schemas, and
// no others.
func TestEveryFieldIsCarried(t *testing.T) {
	all := schemaMembers(t)
	types := goTypes()
	for name, value := range types {
		if len(all[name]) == 0 && name != "PingParams" && name != "ListRootsParams" && name != "DiscoverParams" {
			t.Errorf("no schema has a %s", name)
		}
		for member := range all[name] {
			if _, raw := carries(reflect.TypeOf(value), strings.Split(member, ".")); !raw {
				t.Errorf("%s does not carry %s, which is in %v", name, member, all[name][member])
			}
		}
		for _, member := range tagsOf(reflect.TypeOf(value)) {
			if _, known := all[name][member]; !known && !isExtra(name, member) {
				t.Errorf("no schema gives a %s to %s", member, name)
			}
		}
	}
}

// isExtra reports whether a member is in no schema of its type, but defined nevertheless.
func isExtra(typ, member string) bool {
	switch {
	case member == "_meta" && strings.HasSuffix(typ, "Params"): // any request and notification may have it
		return true
	case typ == "SubscriptionFilter" && member == "taskIds": // the tasks extension
		return true
	}
	return false
}

// writeFields adds the table of members to a page.
func writeFields(t *testing.T, page *strings.Builder) {
	t.Helper()
	versions := protocol.Versions()
	fmt.Fprintf(page, fieldsPreamble, strings.Join(versions, " | "), strings.Repeat(" --- |", len(versions)))
	all := schemaMembers(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, member := range slices.Sorted(maps.Keys(all[name])) {
			fmt.Fprintf(page, "| `%s` | `%s` |", name, member)
			for _, version := range versions {
				mark := "–"
				if slices.Contains(all[name][member], version) {
					mark = "✓"
				}
				fmt.Fprintf(page, " %s |", mark)
			}
			page.WriteString("\n")
		}
	}
}

// schemaMembers reads the schemas of all revisions.
func schemaMembers(t *testing.T) members {
	t.Helper()
	all, types, renamed := members{}, goTypes(), otherwiseNamed()
	for _, version := range protocol.Versions() {
		definitions := specification.Of(version).Definitions()
		for definition, schema := range definitions {
			name := definition
			if kind := strings.TrimSuffix(strings.TrimSuffix(definition, "Request"), "Notification"); kind != definition {
				if schema = schema.Properties["params"]; schema == nil {
					continue // a union, or a message without params
				}
				name = kind + "Params"
			} else if kind, isParams := strings.CutSuffix(definition, "Params"); isParams && definition != "RequestParams" && definition != "NotificationParams" {
				name = strings.TrimSuffix(strings.TrimSuffix(kind, "Request"), "Notification") + "Params"
			}
			if to, ok := renamed[name]; ok {
				name = to
			}
			if strings.HasSuffix(name, "Data") { // what an error adds
				schema = dataOf(definitions, schema)
			}
			if len(properties(definitions, schema)) == 0 {
				continue
			}
			if _, known := types[name]; !known {
				if _, apart := notCarried(name); !apart {
					t.Errorf("%s: no type carries %s (%s)", version, definition, name)
				}
				continue
			}
			all.add(definitions, types[name], name, "", schema, version)
		}
	}
	return all
}

// add adds the members of a definition, and of the objects within it that have no own
// definition.
func (m members) add(definitions map[string]*jsonschema.Schema, value any, name, prefix string, schema *jsonschema.Schema, version string) {
	for member, inner := range properties(definitions, schema) {
		if m[name] == nil {
			m[name] = map[string][]string{}
		}
		path := prefix + member
		if !slices.Contains(m[name][path], version) {
			m[name][path] = append(m[name][path], version)
		}
		typ, _ := carries(reflect.TypeOf(value), strings.Split(path, "."))
		if inner.Ref == "" && typ != nil && typ.Kind() == reflect.Struct {
			m.add(definitions, value, name, path+".", inner, version)
		}
	}
}

// properties are the members of a schema and of those that it is made of.
func properties(definitions map[string]*jsonschema.Schema, schema *jsonschema.Schema) map[string]*jsonschema.Schema {
	found := map[string]*jsonschema.Schema{}
	if schema == nil {
		return found
	}
	parts := slices.Concat(schema.AllOf, schema.AnyOf, schema.OneOf)
	if schema.Ref != "" {
		parts = append(parts, definitions[schema.Ref[strings.LastIndex(schema.Ref, "/")+1:]])
	}
	for _, part := range parts {
		maps.Copy(found, properties(definitions, part))
	}
	maps.Copy(found, schema.Properties)
	return found
}

// dataOf returns the schema of the data of an error.
func dataOf(definitions map[string]*jsonschema.Schema, schema *jsonschema.Schema) *jsonschema.Schema {
	return properties(definitions, properties(definitions, schema)["error"])["data"]
}

// carries reports whether a type has a member, and returns the type of the member. Raw JSON
// and maps have all members.
func carries(typ reflect.Type, path []string) (reflect.Type, bool) {
	for typ.Kind() == reflect.Pointer {
		if block, ok := reflect.Zero(typ).Interface().(protocol.Content); ok && block != nil && path[0] == "type" {
			return reflect.TypeFor[string](), true // Contents writes it
		}
		typ = typ.Elem()
	}
	if typ == reflect.TypeFor[metaNames]() {
		return nil, slices.Contains(metaNames{}.names(), strings.Join(path, "."))
	}
	if typ.Kind() == reflect.Map || typ == reflect.TypeFor[json.RawMessage]() {
		return typ, true
	}
	if typ.Kind() != reflect.Struct {
		return nil, false
	}
	for _, field := range reflect.VisibleFields(typ) {
		if tagOf(typ, field) != path[0] {
			continue
		}
		inner := field.Type
		for inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if len(path) > 1 {
			return carries(inner, path[1:])
		}
		return inner, true
	}
	return nil, false
}

// tagsOf lists the members of a type.
func tagsOf(typ reflect.Type) (names []string) {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	for _, field := range reflect.VisibleFields(typ) {
		if name := tagOf(typ, field); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// tagOf returns the name of a field in JSON, unless the field is embedded or ignored.
func tagOf(typ reflect.Type, field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	switch {
	case name == "-" || field.Anonymous || !field.IsExported():
		return ""
	case name == "" && field.Tag.Get("json") == "" && (typ == reflect.TypeFor[protocol.PromptMessage]() || typ == reflect.TypeFor[jsonrpc.Error]()):
		return strings.ToLower(field.Name) // it encodes itself
	}
	return name
}
