//go:build npm

package peers

import (
	"context"
	"encoding/json"
	"fmt"
)

// A featuredTypeScriptClient drives client.mjs.
type featuredTypeScriptClient struct{ *typeScriptSession }

func connectFeaturedTypeScript(sdk npmPackage) func(context.Context, Endpoint, string) (featured, error) {
	return func(ctx context.Context, at Endpoint, revision string) (featured, error) {
		session, err := connectTypeScript(sdk)(ctx, at, revision)
		if err != nil {
			return nil, err
		}
		if got := session.Revision(); got != revision {
			return nil, fmt.Errorf("the session uses %s", got)
		}
		return featuredTypeScriptClient{session.(*typeScriptSession)}, nil
	}
}

func (c featuredTypeScriptClient) text(ctx context.Context, method string, params map[string]any) (string, error) {
	var answer struct{ Text string }
	err := c.ask(ctx, method, params, nil, &answer)
	return answer.Text, err
}

func (c featuredTypeScriptClient) read(ctx context.Context, uri string) (string, error) {
	return c.text(ctx, "read", map[string]any{"uri": uri})
}

func (c featuredTypeScriptClient) prompt(ctx context.Context, name string, arguments map[string]string) (string, error) {
	return c.text(ctx, "prompt", map[string]any{"name": name, "arguments": arguments})
}

func (c featuredTypeScriptClient) complete(ctx context.Context, prompt, argument, typed string) ([]string, error) {
	var answer struct{ Values []string }
	err := c.ask(ctx, "complete", map[string]any{"prompt": prompt, "argument": argument, "typed": typed}, nil, &answer)
	return answer.Values, err
}

func (c featuredTypeScriptClient) call(ctx context.Context, tool string) (string, error) {
	return c.text(ctx, "call", map[string]any{"tool": tool})
}

func (c featuredTypeScriptClient) logged(ctx context.Context, tool string) (string, error) {
	raw, err := c.text(ctx, "logged", map[string]any{"tool": tool})
	if err != nil {
		return "", err
	}
	return messageText([]byte(raw)), nil
}

func (c featuredTypeScriptClient) structured(ctx context.Context, tool string) (string, error) {
	var answer struct{ Content struct{ Grams json.Number } }
	err := c.ask(ctx, "structured", map[string]any{"tool": tool}, nil, &answer)
	return answer.Content.Grams.String(), err
}

func (c featuredTypeScriptClient) updated(ctx context.Context, uri, tool string) (string, error) {
	return c.text(ctx, "updated", map[string]any{"uri": uri, "tool": tool})
}

func (c featuredTypeScriptClient) close() error { return c.Close(context.Background()) }

func typeScriptFeatures(sdk npmPackage) []string {
	return []string{"node", "featured.mjs", sdk.folder(), sdk.name}
}
