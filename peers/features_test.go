//go:build npm

package peers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

const featuresFile = "../docs/interop-features.md"

const featuresPreface = `# Interoperation, feature by feature

The tests of [peers](../peers) generate this page, and fail if it is outdated. To rewrite it:

    cd peers && go test -tags npm -count=1 -run TestFeatureTables . -update

Both sides are the real SDKs, over Streamable HTTP on a real socket unless the heading names another transport. Each cell is
the result of a check. ✓ means that it passed. – means that the peer does not have the feature; the text below the table says
why. Tool calls, paging, progress and cancellation are in [the tables of the transports](interop.md). A peer that does not
support 2026-07-28 has no column for it. @modelcontextprotocol/sdk always asks for 2025-11-25, so each of its columns has a
server that supports only that revision.

A server made with mcp-go 1.2.1 sometimes loses a log message that it sends over HTTP right before its answer. So the check of
its logging calls the tool until a message arrives.
`

// A featured client uses the features of a server. Its user answers every form with
// the size "small", its model says "hello", and its root is file:///home. The structured
// content of the server's tool "weigh" is {"grams":7}, and its tool "touch" updates
// config://app.
type featured interface {
	read(ctx context.Context, uri string) (string, error)
	prompt(ctx context.Context, name string, arguments map[string]string) (string, error)
	complete(ctx context.Context, prompt, argument, typed string) ([]string, error)
	call(ctx context.Context, tool string) (string, error)

	// logged calls a tool that logs, and returns the first message that came.
	logged(ctx context.Context, tool string) (string, error)

	// structured returns the member "grams" of a tool's structured content.
	structured(ctx context.Context, tool string) (string, error)

	// updated subscribes to a resource, calls a tool, and returns the URI of the first
	// update that came.
	updated(ctx context.Context, uri, tool string) (string, error)
	close() error
}

// A featureCheck is a row.
type featureCheck struct {
	name string
	run  func(context.Context, featured) (got, want string, err error)
}

// featureChecks are the rows. All servers have the same features.
var featureChecks = []featureCheck{
	{"resources/read of a resource", func(ctx context.Context, c featured) (string, string, error) {
		got, err := c.read(ctx, "config://app")
		return got, "on", err
	}},
	{"resources/read of a template", func(ctx context.Context, c featured) (string, string, error) {
		got, err := c.read(ctx, "users://7")
		return got, "user 7", err
	}},
	{"resources/read of an unknown URI", func(ctx context.Context, c featured) (string, string, error) {
		got, err := c.read(ctx, "nothing://there")
		if err == nil {
			return got, "an error", nil
		}
		return "", "", nil
	}},
	{"prompts/get", func(ctx context.Context, c featured) (string, string, error) {
		got, err := c.prompt(ctx, "review", map[string]string{"style": "short"})
		return got, "a short review", err
	}},
	{"completion/complete", func(ctx context.Context, c featured) (string, string, error) {
		got, err := c.complete(ctx, "review", "style", "sh")
		return strings.Join(got, " "), "short", err
	}},
	{"elicitation", func(ctx context.Context, c featured) (string, string, error) {
		got, err := c.call(ctx, "elicit")
		return got, "small", err
	}},
	{"sampling", func(ctx context.Context, c featured) (string, string, error) {
		got, err := c.call(ctx, "sample")
		return got, "hello", err
	}},
	{"roots", func(ctx context.Context, c featured) (string, string, error) {
		got, err := c.call(ctx, "roots")
		return got, "file:///home", err
	}},
	{"logging", func(ctx context.Context, c featured) (string, string, error) {
		got, err := c.logged(ctx, "log")
		return got, "careful", err
	}},
	{"structured content", func(ctx context.Context, c featured) (string, string, error) {
		got, err := c.structured(ctx, "weigh")
		return got, "7", err
	}},
	{"resources/subscribe, updated", func(ctx context.Context, c featured) (string, string, error) {
		got, err := c.updated(ctx, "config://app", "touch")
		return got, "config://app", err
	}},
}

// A featuredPair is a table: a server and a client, of which Bowline made one.
type featuredPair struct {
	server, client string
	handler        func(t testing.TB, revision string) (http.Handler, func())
	command        []string // in place of the handler: its process, over stdio
	connect        func(ctx context.Context, at Endpoint, revision string) (featured, error)
	revisions      []string          // nil: featuredRevisions
	lacks          map[string]string // by "feature" or "feature revision": why
}

var featuredRevisions = []string{protocol.Version20250618, protocol.Version20251125, protocol.Version20260728}

// TestFeatureTables runs every check with every pair in every revision, and compares
// what it has observed with the page.
func TestFeatureTables(t *testing.T) {
	built := programs(t) // first, because it installs the packages that the pairs need
	goSDKVersion, err := moduleVersion("github.com/modelcontextprotocol/go-sdk")
	if err != nil {
		t.Fatal(err)
	}
	mcpGoVersion, err := moduleVersion("github.com/mark3labs/mcp-go")
	if err != nil {
		t.Fatal(err)
	}
	goSDK, mcpGo := "go-sdk "+goSDKVersion, "mcp-go "+mcpGoVersion
	var page strings.Builder
	page.WriteString(featuresPreface)
	for _, pair := range []featuredPair{
		{server: "Bowline", client: goSDK, handler: featuredBowline, connect: connectFeaturedGoSDK},
		{server: goSDK, client: "Bowline", handler: featuredGoSDK, connect: connectFeaturedBowline},
		{server: "Bowline", client: mcpGo, handler: featuredBowline, connect: connectFeaturedMCPGo},
		{server: mcpGo, client: "Bowline", handler: featuredMCPGo, connect: connectFeaturedBowline, lacks: map[string]string{
			"resources/subscribe, updated 2026-07-28": "what mcp-go sends to all clients reaches those who listen only if it is of a list",
		}},
		{server: "Bowline", client: typeScriptClientV2.title(), handler: featuredBowline, connect: connectFeaturedTypeScript(typeScriptClientV2)},
		{server: typeScriptServerV2.title(), client: "Bowline", command: typeScriptFeatures(typeScriptServerV2), connect: connectFeaturedBowline},
		{server: "Bowline", client: typeScriptV1.title(), handler: featuredBowlineOf, connect: connectFeaturedTypeScript(typeScriptV1), revisions: featuredRevisions[:2]},
		{server: typeScriptV1.title(), client: "Bowline", command: typeScriptFeatures(typeScriptV1), connect: connectFeaturedBowline, revisions: featuredRevisions[:2]},
	} {
		page.WriteString(pair.table(t))
	}
	page.WriteString(npmTables(t, built.Folder))
	page.WriteString(cutTable(t, goSDK, mcpGo))
	page.WriteString(sseTable(t, goSDK, mcpGo))
	if t.Failed() {
		return
	}
	if *update {
		if err := os.WriteFile(featuresFile, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(featuresFile)
	if err != nil || string(stored) != page.String() {
		t.Errorf("%s is stale (%v), run the test with -update; it should be:\n%s", featuresFile, err, &page)
	}
}

func connectFeaturedBowline(ctx context.Context, at Endpoint, revision string) (featured, error) {
	return connectBowlineUser(ctx, at, revision, bowlineUser{form: map[string]any{"size": "small"}, root: "file:///home"})
}

// serve runs the server until the end of the test, unless its client starts it.
func (p *featuredPair) serve(t *testing.T, revision string) Endpoint {
	if p.command != nil {
		return Endpoint{Command: p.command}
	}
	handler, end := p.handler(t, revision)
	site := httptest.NewServer(handler)
	t.Cleanup(func() {
		end()
		site.Close()
	})
	return Endpoint{URL: site.URL}
}

func (p *featuredPair) table(t *testing.T) string {
	revisions := featuredRevisions
	if p.revisions != nil {
		revisions = p.revisions
	}
	over := ""
	if p.command != nil {
		over = ", over stdio"
	}
	cells := make([][]string, len(featureChecks))
	for _, revision := range revisions {
		t.Run(fmt.Sprintf("%s serves %s/%s", p.server, p.client, revision), func(t *testing.T) {
			at := p.serve(t, revision)
			ctx, cancel := context.WithTimeout(schemaContext(t), hangGuard)
			defer cancel()
			session, err := p.connect(ctx, at, revision)
			if err != nil {
				t.Fatal(err)
			}
			for i, check := range featureChecks {
				if p.lacks[check.name] != "" || p.lacks[check.name+" "+revision] != "" {
					cells[i] = append(cells[i], "–")
					continue
				}
				got, want, err := check.run(ctx, session)
				if err != nil || got != want {
					t.Errorf("%s: got %q, %v; want %q", check.name, got, err, want)
				}
				cells[i] = append(cells[i], Held)
			}
			if err := session.close(); err != nil {
				t.Error(err)
			}
		})
	}
	var table strings.Builder
	fmt.Fprintf(&table, "\n## %s as the server, %s as the client%s\n\n", p.server, p.client, over)
	table.WriteString(heading(append([]string{"Feature"}, revisions...)))
	for i, check := range featureChecks {
		table.WriteString(row(append([]string{check.name}, cells[i]...)))
	}
	for _, check := range featureChecks {
		for _, revision := range append([]string{""}, revisions...) {
			if why := p.lacks[strings.TrimSpace(check.name+" "+revision)]; why != "" {
				fmt.Fprintf(&table, "\n- *%s*: %s.", strings.TrimSpace(check.name+" "+revision), why)
			}
		}
	}
	return strings.TrimRight(table.String(), "\n") + "\n"
}

// errNoAnswer is the error of a check whose answer has another type.
var errNoAnswer = errors.New("that is no answer")
