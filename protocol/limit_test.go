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
		"resource subscriptions": {protocol.MaxResourceURIs, `{"notifications":{"resourceSubscriptions":[`, `""`, `]}}`, func() any { return new(protocol.ListenParams) }},
		"granted":                {protocol.MaxResourceURIs, `{"notifications":{"resourceSubscriptions":[`, `""`, `]}}`, func() any { return new(protocol.AcknowledgedParams) }},
		"discovered versions":    {protocol.MaxVersions, `{"supportedVersions":[`, `""`, `]}`, func() any { return new(protocol.DiscoverResult) }},
		"versions of an error":   {protocol.MaxVersions, `{"supported":[`, `""`, `]}`, func() any { return new(protocol.UnsupportedVersionData) }},
		"icons of a tool":        {protocol.MaxIcons, `{"icons":[`, `{}`, `]}`, func() any { return new(protocol.Tool) }},
		"icons of a peer":        {protocol.MaxIcons, `{"icons":[`, `{}`, `]}`, func() any { return new(protocol.Implementation) }},
		"icons on a page":        {protocol.MaxIcons, `{"tools":[{"icons":[`, `{}`, `]}]}`, func() any { return new(protocol.ListToolsResult) }},
		"arguments on a page":    {protocol.MaxArguments, `{"prompts":[{"arguments":[`, `{}`, `]}]}`, func() any { return new(protocol.ListPromptsResult) }},
		"resources":              {protocol.MaxPageItems, `{"resources":[`, `{}`, `]}`, func() any { return new(protocol.ListResourcesResult) }},
		"a directory":            {protocol.MaxPageItems, `{"resources":[`, `{}`, `]}`, func() any { return new(protocol.ReadDirectoryResult) }},
		"templates":              {protocol.MaxPageItems, `{"resourceTemplates":[`, `{}`, `]}`, func() any { return new(protocol.ListResourceTemplatesResult) }},
		"contents":               {protocol.MaxContents, `{"contents":[`, `{}`, `]}`, func() any { return new(protocol.ReadResourceResult) }},
		"prompts":                {protocol.MaxPageItems, `{"prompts":[`, `{}`, `]}`, func() any { return new(protocol.ListPromptsResult) }},
		"arguments":              {protocol.MaxArguments, `{"arguments":[`, `{}`, `]}`, func() any { return new(protocol.Prompt) }},
		"messages of a prompt":   {protocol.MaxMessages, `{"messages":[`, `{}`, `]}`, func() any { return new(protocol.GetPromptResult) }},
		"values of a completion": {protocol.MaxCompletionValues, `{"completion":{"values":[`, `""`, `]}}`, func() any { return new(protocol.CompleteResult) }},
		"a conversation":         {protocol.MaxMessages, `{"messages":[`, `{}`, `]}`, func() any { return new(protocol.CreateMessageParams) }},
		"tools for a model":      {protocol.MaxPageTools, `{"tools":[`, `{}`, `]}`, func() any { return new(protocol.CreateMessageParams) }},
		"model hints":            {protocol.MaxInputs, `{"modelPreferences":{"hints":[`, `{}`, `]}}`, func() any { return new(protocol.CreateMessageParams) }},
		"roots":                  {protocol.MaxRoots, `{"roots":[`, `{}`, `]}`, func() any { return new(protocol.ListRootsResult) }},
		"elicitations":           {protocol.MaxInputs, `{"elicitations":[`, `{}`, `]}`, func() any { return new(protocol.URLElicitationData) }},
		"tasks":                  {protocol.MaxPageItems, `{"tasks":[`, `{}`, `]}`, func() any { return new(protocol.ListTasksResult) }},
		"task ids":               {protocol.MaxResourceURIs, `{"notifications":{"taskIds":[`, `""`, `]}}`, func() any { return new(protocol.ListenParams) }},
		"skills":                 {protocol.MaxPageItems, `{"skills":[`, `{"resources":[]}`, `]}`, func() any { return new(protocol.ListSkillsResult) }},
		"files of a skill":       {protocol.MaxSkillFiles, `{"skill":{"resources":[`, `{}`, `]}}`, func() any { return new(protocol.GetSkillResult) }},
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
		"questions": {protocol.MaxInputs, `{"inputRequests":{`, `}}`, func(i int) string { return fmt.Sprintf(`"%d":{"method":"roots/list"}`, i) },
			func() any { return new(protocol.CallToolResult) }},
		"answers": {protocol.MaxInputs, `{"inputResponses":{`, `}}`, func(i int) string { return fmt.Sprintf(`"%d":{}`, i) },
			func() any { return new(protocol.CallToolParams) }},
		"blocks of a message": {protocol.MaxBlocks, `{"content":[`, `]}`, func(int) string { return `{}` },
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
