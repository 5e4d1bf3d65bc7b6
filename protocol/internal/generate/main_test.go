package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFilesAreCurrent(t *testing.T) {
	const dir = "../.."
	source, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, output := range outputs {
		want, err := output(source)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is outdated: run go generate ./protocol (-generated +there):\n%s", name, diff)
		}
	}
}

// A member that becomes slow is seen: these, and no others, are left to reflection.
func TestLeftToReflection(t *testing.T) {
	text, err := os.ReadFile("../../" + codecOutput)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for line := range strings.Lines(string(text)) {
		if member, ok := strings.CutPrefix(line, "//   - "); ok {
			left = append(left, strings.TrimSuffix(member, "\n"))
		}
	}
	want := []string{
		"CallToolParams.inputResponses: InputResponses",
		"CreateMessageResult.content: SamplingContents",
		"GetPromptParams.inputResponses: InputResponses",
		"GetTaskResult.inputRequests: InputRequests",
		"InputParams.inputResponses: InputResponses",
		"ReadResourceParams.inputResponses: InputResponses",
		"TaskParams.inputRequests: InputRequests",
		"UpdateTaskParams.inputResponses: InputResponses",
		"ImageContent.data: []byte",
		"AudioContent.data: []byte",
		"SamplingMessage.content: SamplingContents",
		"Skill.resources: SkillResources",
		"ResourceContents.blob: []byte",
		"TasksCapability.requests: map[string]map[string]Capability",
	}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Error(diff)
	}
}
