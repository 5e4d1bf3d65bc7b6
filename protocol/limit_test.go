package protocol_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

func TestListsAreBounded(t *testing.T) {
	for name, list := range map[string]struct {
		limit           int
		before, element string
		after           string
		into            func() any
	}{
		"resource subscriptions": {protocol.MaxItems, `{"notifications":{"resourceSubscriptions":[`, `""`, `]}}`, func() any { return new(protocol.ListenParams) }},
		"granted":                {protocol.MaxItems, `{"notifications":{"resourceSubscriptions":[`, `""`, `]}}`, func() any { return new(protocol.AcknowledgedParams) }},
		"discovered versions":    {protocol.MaxParts, `{"supportedVersions":[`, `""`, `]}`, func() any { return new(protocol.DiscoverResult) }},
		"versions of an error":   {protocol.MaxParts, `{"supported":[`, `""`, `]}`, func() any { return new(protocol.UnsupportedVersionData) }},
		"icons of a tool":        {protocol.MaxParts, `{"icons":[`, `{}`, `]}`, func() any { return new(protocol.Tool) }},
		"icons of a peer":        {protocol.MaxParts, `{"icons":[`, `{}`, `]}`, func() any { return new(protocol.Implementation) }},
		"icons on a page":        {protocol.MaxParts, `{"tools":[{"icons":[`, `{}`, `]}]}`, func() any { return new(protocol.ListToolsResult) }},
		"arguments on a page":    {protocol.MaxParts, `{"prompts":[{"arguments":[`, `{}`, `]}]}`, func() any { return new(protocol.ListPromptsResult) }},
		"resources":              {protocol.MaxItems, `{"resources":[`, `{}`, `]}`, func() any { return new(protocol.ListResourcesResult) }},
		"a directory":            {protocol.MaxItems, `{"resources":[`, `{}`, `]}`, func() any { return new(protocol.ReadDirectoryResult) }},
		"templates":              {protocol.MaxItems, `{"resourceTemplates":[`, `{}`, `]}`, func() any { return new(protocol.ListResourceTemplatesResult) }},
		"contents":               {protocol.MaxItems, `{"contents":[`, `{}`, `]}`, func() any { return new(protocol.ReadResourceResult) }},
		"prompts":                {protocol.MaxItems, `{"prompts":[`, `{}`, `]}`, func() any { return new(protocol.ListPromptsResult) }},
		"arguments":              {protocol.MaxParts, `{"arguments":[`, `{}`, `]}`, func() any { return new(protocol.Prompt) }},
		"messages of a prompt":   {protocol.MaxItems, `{"messages":[`, `{}`, `]}`, func() any { return new(protocol.GetPromptResult) }},
		"values of a completion": {protocol.MaxParts, `{"completion":{"values":[`, `""`, `]}}`, func() any { return new(protocol.CompleteResult) }},
		"a conversation":         {protocol.MaxItems, `{"messages":[`, `{}`, `]}`, func() any { return new(protocol.CreateMessageParams) }},
		"tools for a model":      {protocol.MaxItems, `{"tools":[`, `{}`, `]}`, func() any { return new(protocol.CreateMessageParams) }},
		"model hints":            {protocol.MaxParts, `{"modelPreferences":{"hints":[`, `{}`, `]}}`, func() any { return new(protocol.CreateMessageParams) }},
		"roots":                  {protocol.MaxItems, `{"roots":[`, `{}`, `]}`, func() any { return new(protocol.ListRootsResult) }},
		"elicitations":           {protocol.MaxParts, `{"elicitations":[`, `{}`, `]}`, func() any { return new(protocol.URLElicitationData) }},
		"tasks":                  {protocol.MaxItems, `{"tasks":[`, `{}`, `]}`, func() any { return new(protocol.ListTasksResult) }},
		"task ids":               {protocol.MaxItems, `{"notifications":{"taskIds":[`, `""`, `]}}`, func() any { return new(protocol.ListenParams) }},
		"skills":                 {protocol.MaxItems, `{"skills":[`, `{"resources":[]}`, `]}`, func() any { return new(protocol.ListSkillsResult) }},
		"files of a skill":       {protocol.MaxItems, `{"skill":{"resources":[`, `{}`, `]}}`, func() any { return new(protocol.GetSkillResult) }},
	} {
		wire := func(n int) []byte {
			return []byte(list.before + strings.Repeat(list.element+",", n-1) + list.element + list.after)
		}
		if err := protocol.Unmarshal(wire(list.limit), list.into()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var limit *protocol.LimitError
		if err := protocol.Unmarshal(wire(list.limit+1), list.into()); !errors.As(err, &limit) || limit.Limit != list.limit {
			t.Errorf("%s: one more got %v", name, err)
		}
		if err := json.Unmarshal(wire(list.limit+1), list.into()); !errors.As(err, &limit) || limit.Limit != list.limit {
			t.Errorf("%s: one more got %v from encoding/json", name, err)
		}
		for _, wrong := range []string{`3`, `{}`, `"a"`, `[[]]`, `[3]`, `[` + list.element + `,7]`} {
			text := strings.TrimSuffix(list.before, "[") + wrong + strings.TrimPrefix(list.after, "]")
			if err := protocol.Unmarshal([]byte(text), list.into()); err == nil {
				t.Errorf("%s: %s was accepted", name, wrong)
			}
		}
	}
}

// An element that is null is refused by its number.
func TestNullElementsAreNumbered(t *testing.T) {
	err := protocol.Unmarshal([]byte(`{"tools":[{},{},null,{}]}`), new(protocol.ListToolsResult))
	if err == nil || !strings.Contains(err.Error(), "number 2 is null") {
		t.Errorf("got %v, want an error about number 2", err)
	}
}

func TestAbsentListsAreNil(t *testing.T) {
	for wire, absent := range map[string]bool{
		`{}`: true, `{"supportedVersions":null,"_meta":{}}`: true, `{"supportedVersions":[]}`: false,
	} {
		var result protocol.DiscoverResult
		if err := protocol.Unmarshal([]byte(wire), &result); err != nil || (result.SupportedVersions == nil) != absent {
			t.Errorf("%s: got %#v, %v", wire, result.SupportedVersions, err)
		}
	}
}

func TestMapsAndBlocksAreBounded(t *testing.T) {
	for name, list := range map[string]struct {
		limit         int
		before, after string
		element       func(i int) string
		into          func() any
	}{
		"questions": {protocol.MaxParts, `{"inputRequests":{`, `}}`, func(i int) string { return fmt.Sprintf(`"%d":{"method":"roots/list"}`, i) },
			func() any { return new(protocol.CallToolResult) }},
		"answers": {protocol.MaxParts, `{"inputResponses":{`, `}}`, func(i int) string { return fmt.Sprintf(`"%d":{}`, i) },
			func() any { return new(protocol.CallToolParams) }},
		"blocks of a message": {protocol.MaxItems, `{"content":[`, `]}`, func(int) string { return `{}` },
			func() any { return new(protocol.SamplingMessage) }},
	} {
		wire := func(n int) []byte {
			var all []string
			for i := range n {
				all = append(all, list.element(i))
			}
			return []byte(list.before + strings.Join(all, ",") + list.after)
		}
		if err := protocol.Unmarshal(wire(list.limit), list.into()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var limit *protocol.LimitError
		if err := protocol.Unmarshal(wire(list.limit+1), list.into()); !errors.As(err, &limit) || limit.Limit != list.limit {
			t.Errorf("%s: one more got %v", name, err)
		}
	}
}
