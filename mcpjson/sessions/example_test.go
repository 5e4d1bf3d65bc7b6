package sessions_test

import (
	"context"
	"fmt"

	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/mcpjson/sessions"
	"github.com/bowline-mcp/bowline/protocol"
)

// A program applies its file at the start and whenever it has changed.
func ExampleSet_Apply() {
	ctx := context.Background()
	set := sessions.New(protocol.Implementation{Name: "example", Version: "1"}, sessions.Options{})
	for _, text := range []string{
		`{"mcpServers": {"near": {"url": "http://127.0.0.1:1/mcp"}, "far": {"url": "http://127.0.0.1:2/mcp"}}}`,
		`{"mcpServers": {"near": {"url": "http://127.0.0.1:1/mcp", "bowline": {"retries": 2}}}}`,
	} {
		file, err := mcpjson.Parse("mcp.json", []byte(text))
		if err != nil {
			fmt.Println(err)
			continue
		}
		changes, err := set.Apply(ctx, file)
		fmt.Printf("%+v %v\n", changes, err)
	}
	fmt.Println(set.Close(ctx))
	// Output:
	// {Started:[near far] Restarted:[] Stopped:[] Failed:[]} <nil>
	// {Started:[] Restarted:[near] Stopped:[far] Failed:[]} <nil>
	// <nil>
}
