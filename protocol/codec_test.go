package protocol

import (
	"os"
	"reflect"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// For the tests outside of the package.
var (
	AppendFast = appendFast
	DecodeFast = decodeFast
)

// messages are the types that generated functions decode and encode.
var messages = []func() any{
	func() any { return new(AcknowledgedParams) },
	func() any { return new(CacheableResult) },
	func() any { return new(CallToolParams) },
	func() any { return new(CallToolResult) },
	func() any { return new(CancelTaskParams) },
	func() any { return new(CancelledParams) },
	func() any { return new(CompleteParams) },
	func() any { return new(CompleteResult) },
	func() any { return new(CreateMessageParams) },
	func() any { return new(CreateMessageResult) },
	func() any { return new(CreateTaskResult) },
	func() any { return new(DiscoverParams) },
	func() any { return new(DiscoverResult) },
	func() any { return new(ElicitParams) },
	func() any { return new(ElicitResult) },
	func() any { return new(ElicitationCompleteParams) },
	func() any { return new(EmptyResult) },
	func() any { return new(GetPromptParams) },
	func() any { return new(GetPromptResult) },
	func() any { return new(GetSkillParams) },
	func() any { return new(GetSkillResult) },
	func() any { return new(GetTaskParams) },
	func() any { return new(GetTaskResult) },
	func() any { return new(GetTaskResultParams) },
	func() any { return new(InitializeParams) },
	func() any { return new(InitializeResult) },
	func() any { return new(InputParams) },
	func() any { return new(LegacyCreateTaskResult) },
	func() any { return new(LegacyTaskResult) },
	func() any { return new(ListPromptsParams) },
	func() any { return new(ListPromptsResult) },
	func() any { return new(ListResourceTemplatesParams) },
	func() any { return new(ListResourceTemplatesResult) },
	func() any { return new(ListResourcesParams) },
	func() any { return new(ListResourcesResult) },
	func() any { return new(ListRootsParams) },
	func() any { return new(ListRootsResult) },
	func() any { return new(ListSkillsParams) },
	func() any { return new(ListSkillsResult) },
	func() any { return new(ListTasksParams) },
	func() any { return new(ListTasksResult) },
	func() any { return new(ListToolsParams) },
	func() any { return new(ListToolsResult) },
	func() any { return new(ListenParams) },
	func() any { return new(ListenResult) },
	func() any { return new(LogMessageParams) },
	func() any { return new(NotificationParams) },
	func() any { return new(PingParams) },
	func() any { return new(ProgressParams) },
	func() any { return new(ReadDirectoryParams) },
	func() any { return new(ReadDirectoryResult) },
	func() any { return new(ReadResourceParams) },
	func() any { return new(ReadResourceResult) },
	func() any { return new(RequestParams) },
	func() any { return new(ResourceUpdatedParams) },
	func() any { return new(Result) },
	func() any { return new(SetLogLevelParams) },
	func() any { return new(SubscribeParams) },
	func() any { return new(TaskParams) },
	func() any { return new(TaskStatusParams) },
	func() any { return new(UnsubscribeParams) },
	func() any { return new(UpdateTaskParams) },
}

// The list of messages is complete.
func TestEveryMessageIsCompared(t *testing.T) {
	text, err := os.ReadFile("zz_codec.go")
	if err != nil {
		t.Fatal(err)
	}
	generated := make(map[string]bool)
	for _, name := range regexp.MustCompile(`func decodeWhole(\w+)`).FindAllStringSubmatch(string(text), -1) {
		generated[name[1]] = true
	}
	compared := make(map[string]bool)
	for _, fresh := range messages {
		compared[reflect.TypeOf(fresh()).Elem().Name()] = true
	}
	if diff := cmp.Diff(generated, compared); diff != "" {
		t.Error(diff)
	}
}
