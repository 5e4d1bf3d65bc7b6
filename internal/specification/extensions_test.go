package specification_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/transport/transcript"
)

const (
	modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},` +
		`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}}`
	task  = `"taskId":"t","createdAt":"2026-11-23T12:00:00Z","lastUpdatedAt":"2026-11-23T12:00:00.5Z","ttlMs":null`
	skill = `{"uri":"skill://a/SKILL.md","frontmatter":{"name":"a"},"resources":[{"uri":"skill://a/SKILL.md","size":1,"digest":"sha256:` +
		`0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}]}`
)

// The messages of the extensions for tasks and skills are checked, although the schema of the
// revision does not have them.
func TestExtensions(t *testing.T) {
	cached := `"resultType":"complete","ttlMs":0,"cacheScope":"private",`
	for _, test := range []struct{ method, params, result, fault string }{
		{"tools/call", `"name":"a",`, `"resultType":"task",` + task + `,"status":"working"`, ""},
		{"tools/call", `"name":"a",`, `"resultType":"task",` + task, "CreateTaskResult"},
		{"tools/call", `"name":"a",`, `"resultType":"task",` + task + `,"status":"completed","result":{}`, "CreateTaskResult"},
		{"tasks/get", `"taskId":"t",`, `"resultType":"complete",` + task + `,"status":"working"`, ""},
		{"tasks/get", ``, ``, "GetTaskRequest"},
		{"tasks/get", `"taskId":"t",`, `"resultType":"task",` + task + `,"status":"working"`, "GetTaskResult"},
		{"tasks/get", `"taskId":"t",`, `"resultType":"complete",` + task + `,"status":"lost"`, "GetTaskResult"},
		{"tasks/get", `"taskId":"t",`, `"resultType":"complete",` + task + `,"status":"completed"`, "GetTaskResult"},
		{"tasks/get", `"taskId":"t",`, `"resultType":"complete",` + task + `,"status":"working","ttl":1`, "GetTaskResult"},
		{"tasks/get", `"taskId":"t",`, `"resultType":"complete",` + task + `,"status":"completed","result":{"content":[]}`, ""},
		{"tasks/get", `"taskId":"t",`, `"resultType":"complete",` + task + `,"status":"failed","error":{"code":1,"message":"no"}`, ""},
		{"tasks/get", `"taskId":"t",`, `"resultType":"complete",` + task + `,"status":"failed","error":"no"`, "GetTaskResult"},
		{"tasks/get", `"taskId":"t",`, `"resultType":"complete",` + task + `,"status":"input_required","inputRequests":{"a":{"method":"roots/list"}}`, ""},
		{"tasks/get", `"taskId":"t",`, `"resultType":"complete",` + task + `,"status":"input_required","inputRequests":{"a":{"method":"tools/list"}}`, "GetTaskResult"},
		{"tasks/get", `"taskId":"t",`, `"resultType":"complete",` + strings.Replace(task, "2026-11-23T12:00:00Z", "yesterday", 1) + `,"status":"working"`, "GetTaskResult"},
		{"tasks/update", `"taskId":"t","inputResponses":{"a":{"roots":[]}},`, `"resultType":"complete"`, ""},
		{"tasks/update", `"taskId":"t",`, ``, "UpdateTaskRequest"},
		{"tasks/cancel", `"taskId":"t",`, `"resultType":"complete"`, ""},
		{"tasks/cancel", `"taskId":7,`, ``, "CancelTaskRequest"},
		{"skills/list", ``, cached + `"skills":[` + skill + `]`, ""},
		{"skills/list", ``, `"resultType":"complete","skills":[]`, "ListSkillsResult"},
		{"skills/list", ``, cached + `"skills":[` + strings.Replace(skill, "sha256:0", "sha256:X", 1) + `]`, "ListSkillsResult"},
		{"skills/list", `"cursor":7,`, ``, "ListSkillsRequest"},
		{"skills/get", `"uri":"skill://a/SKILL.md",`, cached + `"skill":` + skill, ""},
		{"skills/get", `"uri":"skill://a/SKILL.md",`, cached + `"skill":` + `{"uri":"skill://a/SKILL.md","frontmatter":{},"resources":"dynamic"}`, ""},
		{"skills/get", `"uri":"skill://a/SKILL.md",`, cached + `"skill":` + `{"uri":"skill://a/SKILL.md","frontmatter":"","resources":"dynamic"}`, "GetSkillResult"},
		{"resources/directory/read", `"uri":"skill://a",`, cached + `"resources":[{"uri":"skill://a/b","name":"b"}]`, ""},
		{"resources/directory/read", `"uri":"skill://a",`, cached + `"resources":[{"uri":"skill://a/b"}]`, "ReadDirectoryResult"},
	} {
		var faults []string
		c := &specification.Checker{ThisSide: true, OtherSide: true, OnViolation: func(err error) { faults = append(faults, err.Error()) }}
		c.Observe(transcript.Entry{Link: 1, Kind: transcript.Opened})
		c.Observe(transcript.Entry{Link: 1, Kind: transcript.Sent, Frame: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s%s}}`, test.method, test.params, modernMeta)})
		if test.result != "" {
			c.Observe(transcript.Entry{Link: 1, Kind: transcript.Received, Frame: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":{%s}}`, test.result)})
		}
		if got := strings.Join(faults, "\n"); (test.fault == "") != (got == "") || !strings.Contains(got, "it is no "+test.fault) && test.fault != "" {
			t.Errorf("%s {%s}: want %q, got %q", test.method, test.result, test.fault, got)
		}
	}
}

func TestExtensionNotifications(t *testing.T) {
	for params, fault := range map[string]string{
		task + `,"status":"working",`:              "",
		task + `,"status":"working","result":{},`:  "TaskNotification",
		`"taskId":"t","status":"working","ttl":1,`: "TaskNotification",
	} {
		var faults []string
		c := &specification.Checker{OtherSide: true, OnViolation: func(err error) { faults = append(faults, err.Error()) }}
		c.Observe(transcript.Entry{Link: 1, Kind: transcript.Opened})
		c.Observe(transcript.Entry{Link: 1, Kind: transcript.Received, Frame: []byte(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{` + params +
			`"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`)})
		if got := strings.Join(faults, "\n"); (fault == "") != (got == "") || !strings.Contains(got, fault) {
			t.Errorf("{%s}: want %q, got %q", params, fault, got)
		}
	}
}
