package consent

import (
	"fmt"
	"slices"
	"testing"

	"github.com/bowline-mcp/bowline/mcpjson"
)

// TestSecretsInClear finds values whose names say that they are secrets, and which the file has itself.
//
// Guarantees: G-0018.24
func TestSecretsInClear(t *testing.T) {
	for value, isInClear := range map[string]bool{
		`"env":{"GITHUB_TOKEN":"abc"}`: true, `"env":{"STRIPE_KEY":"abc"}`: true, `"env":{"client_secret":"abc"}`: true, `"env":{"PASSWORD":123456}`: true,
		`"env":{"API_TOKEN":"${API_TOKEN:-abc}"}`: true, `"env":{"API_TOKEN":"${env:API_TOKEN:-abc}"}`: true, `"env":{"API_TOKEN":"x${A}"}`: true,
		`"headers":{"Authorization":"Bearer abc"}`: true, `"headers":{"X-Api-Key":"abc"}`: true, `"headers":{"authorization":"abc"}`: true,
		`"command":{"path":"x","env":{"TOKEN":"abc"}}`: true,

		`"env":{"GITHUB_TOKEN":"${GITHUB_TOKEN}"}`: false, `"env":{"GITHUB_TOKEN":"${env:T}"}`: false, `"env":{"A_KEY":"${input:key}"}`: false, `"env":{"A_KEY":"${A_KEY:-}"}`: false,
		`"env":{"TOKEN":"$TOKEN"}`: false, `"env":{"TOKEN":""}`: false, `"env":{"TOKEN":null}`: false, `"env":{"SECRET_FILE":"/run/secrets/a"}`: false, `"env":{"MODE":"abc"}`: false,
		`"env":{"MAX_TOKENS":"4096"}`: false, `"env":{"MAX_TOKENS":4096}`: false, `"env":{"USE_TOKEN":true}`: false, `"env":{"USE_TOKEN":"true"}`: false,
		`"headers":{"Authorization":"Bearer ${env:T}"}`: false, `"headers":{"Accept":"text/plain"}`: false, `"args":["--token","abc"]`: false,
		`"disabled":true,"env":{"TOKEN":"abc"}`: false,
	} {
		file, err := mcpjson.Parse("mcp.json", fmt.Appendf(nil, `{"mcpServers":{"a":{%s}}}`, value))
		if err != nil {
			t.Fatal(err)
		}
		if got := InClear(file); (len(got) == 1) != isInClear {
			t.Errorf("%s: %q", value, got)
		}
	}
	file, err := mcpjson.Parse("mcp.json", []byte(`{
		// in the order of the file
		"mcpServers":{"z":{"env":{"B_TOKEN":"x","A_TOKEN":"y"}},"a":{"url":"http://x","headers":{"Authorization":"Bearer x"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := InClear(file), []string{"z.env.A_TOKEN", "z.env.B_TOKEN", "a.headers.Authorization"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
