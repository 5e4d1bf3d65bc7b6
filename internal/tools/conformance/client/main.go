// Command client is the everything-client that the official conformance suite drives
// (make conformance): it gets the URL of the suite's server as its last argument, and
// the scenario in its environment.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/bowline-mcp/bowline/transport/transcript"
)

// deadline is shorter than the deadline of the suite, which leaves processes behind
// when its deadline passes.
const deadline = 25 * time.Second

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := run(ctx, os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A scenario does what one scenario of the suite expects of a connected client.
type scenario func(context.Context, *client.Session) error

var scenarios = map[string]scenario{
	"initialize":                          listTools,
	"tools_call":                          callNumbers,
	"elicitation-sep1034-client-defaults": calls("test_client_elicitation_defaults"),
	"sse-retry":                           calls("test_reconnection"),
	"request-metadata":                    listTools,
	"sep-2322-client-request-state":       askedInRounds,
	"http-standard-headers":               everyName,
	"http-custom-headers":                 givenCalls,
	"http-invalid-tool-headers":           callWhatIsListed,
	"json-schema-ref-no-deref":            listTools,
	"json-schema-2020-12-preservation":    echoSchema,
	"sep-2640-client-no-prefetch":         listSkills,
	"sep-2640-client-verify-digest":       loadSkills,
	"sep-2640-client-verify-size":         loadSkills,
	"sep-2640-client-verify-frontmatter":  loadSkills,
}

func run(ctx context.Context, url string) error {
	name := os.Getenv("MCP_CONFORMANCE_SCENARIO")
	play, ok := scenarios[name]
	if strings.HasPrefix(name, "auth/") {
		play, ok = callTwice, true
	}
	if !ok {
		return fmt.Errorf("scenario %q is not played", name)
	}
	options := client.Options{ProtocolVersion: os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION"), FailFast: true}
	options.Conn.InitTimeout = handshakeTime
	if name != "initialize" {
		options.Elicit = func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return client.Accept(nil) // accept with the defaults of the form
		}
	}
	c := client.New(protocol.Implementation{Name: "bowline-everything-client", Version: "1.0.0"}, options)
	var against violations
	checker := &specification.Checker{ThisSide: true, OnViolation: against.add}
	authorizer, err := login(name, url)
	if err != nil {
		return err
	}
	defer authorizer.Close()
	session, err := c.Connect(ctx, transcript.Tap(&streamable.Client{URL: url, Authorizer: authorizer}, checker.Observe))
	if err != nil {
		return err
	}
	failed := play(ctx, session)
	session.Stop()
	_ = session.Wait()
	return errors.Join(failed, against.all())
}

// handshakeTime is how long a handshake may take, with its login. It is long because
// the suite runs all scenarios at once, each with several servers. The suite gives
// each scenario half a minute.
const handshakeTime = 25 * time.Second

// violations collects an error for each message of the client that does not fit the
// published schemas.
type violations struct {
	mu   sync.Mutex
	errs []error
}

func (v *violations) add(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.errs = append(v.errs, err)
}

func (v *violations) all() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return errors.Join(v.errs...)
}

func listTools(ctx context.Context, s *client.Session) error {
	for _, err := range s.Tools(ctx) {
		if err != nil {
			return nil // some of these servers have no tools
		}
	}
	return nil
}

func callNumbers(ctx context.Context, s *client.Session) error {
	if err := listTools(ctx, s); err != nil {
		return err
	}
	_, err := client.Call[string](ctx, s, "add_numbers", map[string]int{"a": 2, "b": 3})
	return err
}

// calls lists the tools and calls one without arguments.
func calls(tool string) scenario {
	return func(ctx context.Context, s *client.Session) error {
		if err := listTools(ctx, s); err != nil {
			return err
		}
		_, err := client.Call[string](ctx, s, tool, nil)
		return err
	}
}

// askedInRounds makes other calls while one call waits for the answer to its
// question.
func askedInRounds(ctx context.Context, s *client.Session) error {
	if err := listTools(ctx, s); err != nil {
		return err
	}
	manual := s.With(client.CallOptions{ManualInput: true})
	asked, err := manual.CallTool(ctx, &protocol.CallToolParams{Name: "test_mrtr_echo_state"})
	if err != nil || asked.InputRequired == nil {
		return fmt.Errorf("no question: %w", err)
	}
	for _, tool := range []string{"test_mrtr_unrelated", "test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_no_result_type"} {
		if _, err := s.CallTool(ctx, &protocol.CallToolParams{Name: tool}); err != nil {
			return err
		}
	}
	return nil
}

// everyName makes one request of each kind.
func everyName(ctx context.Context, s *client.Session) error {
	_, err := s.ListTools(ctx, nil)
	if err == nil {
		_, err = s.CallTool(ctx, &protocol.CallToolParams{Name: "test_headers"})
	}
	if err == nil {
		_, err = s.ListResources(ctx, nil)
	}
	if err == nil {
		_, err = s.ReadResource(ctx, &protocol.ReadResourceParams{URI: "file:///path/to/file%20name.txt"})
	}
	if err == nil {
		_, err = s.ListPrompts(ctx, nil)
	}
	if err == nil {
		_, err = s.GetPrompt(ctx, &protocol.GetPromptParams{Name: "test_prompt"})
	}
	return err
}

// givenCalls makes the calls that the suite's context names.
func givenCalls(ctx context.Context, s *client.Session) error {
	if err := listTools(ctx, s); err != nil {
		return err
	}
	var given struct {
		ToolCalls []struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"toolCalls"`
	}
	if err := json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &given); err != nil {
		return err
	}
	for _, call := range given.ToolCalls {
		if _, err := s.CallTool(ctx, &protocol.CallToolParams{Name: call.Name, Arguments: call.Arguments}); err != nil {
			return err
		}
	}
	return nil
}

func callWhatIsListed(ctx context.Context, s *client.Session) error {
	for tool, err := range s.Tools(ctx) {
		if err != nil {
			return err
		}
		if _, err := client.Call[string](ctx, s, tool.Name, map[string]string{"region": "us-west1"}); err != nil {
			return err
		}
	}
	return nil
}

// echoSchema calls a tool with the schema of another, as it was listed.
func echoSchema(ctx context.Context, s *client.Session) error {
	for tool, err := range s.Tools(ctx) {
		if err != nil {
			return err
		}
		if tool.Name != "json_schema_2020_12_tool" {
			continue
		}
		_, err := client.Call[string](ctx, s, "json_schema_echo", map[string]json.RawMessage{"schema": tool.InputSchema})
		return err
	}
	return fmt.Errorf("the tool with the schema is not listed")
}

func listSkills(ctx context.Context, s *client.Session) error {
	for _, err := range s.Skills(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}

// loadSkills reads all files of the skills whose SKILL.md passes.
func loadSkills(ctx context.Context, s *client.Session) error {
	for skill, err := range s.Skills(ctx) {
		if err != nil {
			return err
		}
		if _, err := s.ReadSkill(ctx, skill, skill.URI); err != nil {
			return err
		}
		for _, file := range skill.Resources.Files {
			if _, err := s.ReadSkill(ctx, skill, file.URI); err != nil {
				return err
			}
		}
	}
	return nil
}
