package protocol_test

import (
	"errors"
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
