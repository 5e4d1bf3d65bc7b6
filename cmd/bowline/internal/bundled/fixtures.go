package bundled

import (
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/features/skills"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
)

// addFixtures adds what the scenarios of the official conformance suite name
// (@modelcontextprotocol/conformance, server leg). Names and texts are the suite's.
func addFixtures(s *server.Server) {
	addContentFixtures(s)
	addReportFixtures(s)
	addSchemaFixtures(s)
	addLegacyQuestions(s)
	addRoundFixtures(s)
	addTaskFixtures(s)
	addSkillFixtures(s)
	addChangeFixtures(s)
	addPromptFixtures(s)
	addResourceFixtures(s)
}

// pixel is a PNG image of one pixel, and silence a WAV file without samples.
var (
	pixel   = decoded("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
	silence = decoded("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=")
)

func decoded(text string) []byte {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return raw
}

// nothing is for tools without arguments.
type nothing = struct{}

func tool(name, description string) protocol.Tool {
	return protocol.Tool{Name: name, Description: description}
}

func embedded(uri, mimeType, text string) *protocol.EmbeddedResource {
	return &protocol.EmbeddedResource{Resource: protocol.ResourceContents{URI: uri, MIMEType: mimeType, Text: &text}}
}

func addContentFixtures(s *server.Server) {
	server.AddTool(s, tool("test_simple_text", "Answers with text."), func(context.Context, nothing) (string, error) {
		return "This is a simple text response for testing.", nil
	})
	server.AddTool(s, tool("test_image_content", "Answers with an image."), func(context.Context, nothing) (*protocol.ImageContent, error) {
		return protocol.Image(pixel, "image/png"), nil
	})
	server.AddTool(s, tool("test_audio_content", "Answers with sound."), func(context.Context, nothing) (*protocol.AudioContent, error) {
		return protocol.Audio(silence, "audio/wav"), nil
	})
	server.AddTool(s, tool("test_embedded_resource", "Answers with a resource."), func(context.Context, nothing) (*protocol.EmbeddedResource, error) {
		return embedded("test://embedded-resource", "text/plain", "This is an embedded resource content."), nil
	})
	server.AddTool(s, tool("test_multiple_content_types", "Answers with text, an image and a resource."), func(context.Context, nothing) (protocol.Contents, error) {
		return protocol.Contents{
			protocol.Text("Multiple content types test:"),
			protocol.Image(pixel, "image/png"),
			embedded("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`),
		}, nil
	})
	server.AddTool(s, tool("test_error_handling", "Fails."), func(context.Context, nothing) (string, error) {
		return "", errors.New("This tool intentionally returns an error for testing") //nolint:staticcheck // the suite's own text
	})
}

// addReportFixtures adds tools that tell of themselves while they run.
func addReportFixtures(s *server.Server) {
	server.AddTool(s, tool("test_tool_with_progress", "Reports progress."), func(ctx context.Context, _ nothing) (string, error) {
		for _, done := range []int{1, 50, 100} {
			server.Progress(ctx, done, 100, fmt.Sprintf("%d of 100", done))
			if err := interval(ctx); err != nil {
				return "", err
			}
		}
		return "Tool with progress completed", nil
	})
	server.AddTool(s, tool("test_tool_with_logging", "Logs to the client."), func(ctx context.Context, _ nothing) (string, error) {
		for _, message := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
			server.Logger(ctx).Info(message)
			if err := interval(ctx); err != nil {
				return "", err
			}
		}
		return "Tool with logging completed", nil
	})
	server.AddTool(s, tool("test_reconnection", "Has its client come back for the answer."), func(ctx context.Context, _ nothing) (string, error) {
		server.Poll(ctx, 50*time.Millisecond) // a client that cannot waits
		if err := interval(ctx); err != nil {
			return "", err
		}
		return "Reconnection test completed", nil
	})
	server.AddTool(s, tool("test_logging_tool", "Logs to a client that asks for it."), func(ctx context.Context, _ nothing) (string, error) {
		server.Logger(ctx).Info("logging as asked")
		return "logged", nil
	})
}

// manyWords is a schema of the suite, which asks for a keyword of each kind.
const manyWords = `{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"type": "object",
		"$defs": {"address": {"$anchor": "addressDef", "type": "object",
			"properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
		"properties": {
			"name": {"type": "string"},
			"address": {"$ref": "#/$defs/address"},
			"contactMethod": {"type": "string", "enum": ["phone", "email"]},
			"phone": {"type": "string"},
			"email": {"type": "string"}
		},
		"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
		"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
		"then": {"required": ["phone"]},
		"else": {"required": ["email"]},
		"additionalProperties": false
	}`

// addSchemaFixtures adds tools that matter for their input schemas.
func addSchemaFixtures(s *server.Server) {
	server.AddTool(s, tool("test_x_mcp_header", "Has an argument that a header mirrors."),
		func(_ context.Context, in struct {
			Region string `json:"region" header:"Region"`
		}) (string, error) {
			return "region " + in.Region, nil
		})
	schema := tool("json_schema_2020_12_tool", "Has an input schema with many words of JSON Schema 2020-12.")
	schema.InputSchema = json.RawMessage(manyWords)
	server.AddTool(s, schema, func(_ context.Context, params *protocol.CallToolParams) (string, error) {
		return "arguments " + string(params.Arguments), nil
	})
}

// interval takes the time that the suite wants between two messages.
func interval(ctx context.Context) error { return wait.Sleep(ctx, 50*time.Millisecond) }

// What a client has to be able to do for the questions below.
var (
	forms    = protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}
	sampling = protocol.ClientCapabilities{Sampling: &protocol.SamplingCapability{}}
	roots    = protocol.ClientCapabilities{Roots: &protocol.RootsCapability{}}
)

// form is a question with a schema of its own.
func form(message, properties string, required ...string) *protocol.ElicitParams {
	names, err := protocol.Marshal(append([]string{}, required...))
	if err != nil {
		panic(err)
	}
	schema := fmt.Sprintf(`{"type":"object","properties":%s,"required":%s}`, properties, names)
	return &protocol.ElicitParams{Message: message, RequestedSchema: json.RawMessage(schema)}
}

// prompted is a question for the client's model.
func prompted(text string) *protocol.CreateMessageParams {
	return &protocol.CreateMessageParams{MaxTokens: 100, Messages: []protocol.SamplingMessage{
		{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text(text)}},
	}}
}

// asking adds a tool that asks one question and returns the answer as text.
func asking(s *server.Server, name string, how server.Asking, needs protocol.ClientCapabilities, key string, question protocol.InputRequest) {
	server.AddTool(s, tool(name, "Asks its client, and says what came."), func(ctx context.Context, _ nothing) (string, error) {
		answers, err := server.Ask(ctx, protocol.InputRequests{key: question})
		if err != nil {
			return "", err
		}
		return answerText(answers[key])
	}, server.Asks(how, needs))
}

// answerText returns the text of an answer.
func answerText(answer protocol.InputResponse) (string, error) {
	raw, err := protocol.Marshal(answer)
	return "User response: " + string(raw), err
}

func addLegacyQuestions(s *server.Server) {
	server.AddTool(s, tool("test_sampling", "Asks the client's model."),
		func(ctx context.Context, in struct {
			Prompt string `json:"prompt"`
		}) (string, error) {
			answer, err := server.Sample(ctx, prompted(in.Prompt))
			if err != nil {
				return "", err
			}
			return "LLM response: " + answer.Content.Text(), nil
		}, server.Asks(server.Waits, sampling))
	server.AddTool(s, tool("test_elicitation", "Asks the client's user."),
		func(ctx context.Context, in struct {
			Message string `json:"message"`
		}) (string, error) {
			answers, err := server.Ask(ctx, protocol.InputRequests{
				"user": form(in.Message, `{"username":{"type":"string"},"email":{"type":"string"}}`, "username", "email"),
			})
			if err != nil {
				return "", err
			}
			return answerText(answers["user"])
		}, server.Asks(server.Waits, forms))
	asking(s, "test_elicitation_sep1034_defaults", server.Waits, forms, "defaults", form("Are these right?", `{
		"name": {"type": "string", "default": "John Doe"},
		"age": {"type": "integer", "default": 30},
		"score": {"type": "number", "default": 95.5},
		"status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
		"verified": {"type": "boolean", "default": true}
	}`))
	asking(s, "test_elicitation_sep1330_enums", server.Waits, forms, "enums", form("Which of these?", `{
		"untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
		"titledSingle": {"type": "string", "oneOf": [{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"}]},
		"legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
		"untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
		"titledMulti": {"type": "array", "items": {"anyOf": [{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"}]}}
	}`))
	asking(s, "test_missing_capability", server.Waits, sampling, "1", prompted("What is missing?"))
	asking(s, "test_streaming_elicitation", server.Waits, forms, "1", form("Shall it go on?", `{"ok":{"type":"boolean"}}`))
}

func addRoundFixtures(s *server.Server) {
	const prefix = "test_input_required_result_"
	name := form("What is your name?", `{"name":{"type":"string"}}`, "name")
	server.AddTool(s, tool(prefix+"elicitation", "Greets its user."), func(ctx context.Context, _ nothing) (string, error) {
		answers, err := server.Ask(ctx, protocol.InputRequests{"user_name": name})
		if err != nil {
			return "", err
		}
		var user struct {
			Name string `json:"name"`
		}
		if result, ok := answers["user_name"].(*protocol.ElicitResult); ok && result.Content != nil {
			err = protocol.Unmarshal(result.Content, &user)
		}
		return "Hello, " + user.Name + "!", err
	}, server.Asks(server.Reruns, forms))
	asking(s, prefix+"sampling", server.Reruns, sampling, "capital_question", prompted("What is the capital of France?"))
	asking(s, prefix+"list_roots", server.Reruns, roots, "client_roots", &protocol.ListRootsParams{})
	asking(s, prefix+"request_state", server.Waits, forms, "confirm", form("Is that right?", `{"ok":{"type":"boolean"}}`, "ok"))
	asking(s, prefix+"tampered_state", server.Reruns, forms, "confirm", form("Is that right?", `{"ok":{"type":"boolean"}}`, "ok"))

	needs := protocol.ClientCapabilities{Elicitation: forms.Elicitation, Sampling: sampling.Sampling, Roots: roots.Roots}
	server.AddTool(s, tool(prefix+"multiple_inputs", "Asks three things at once."), func(ctx context.Context, _ nothing) (string, error) {
		answers, err := server.Ask(ctx, protocol.InputRequests{
			"user_name": name, "greeting": prompted("How does one greet?"), "client_roots": &protocol.ListRootsParams{},
		})
		return fmt.Sprintf("%d answers", len(answers)), err
	}, server.Asks(server.Waits, needs))
	server.AddTool(s, tool(prefix+"multi_round", "Asks twice, by itself."), func(ctx context.Context, _ nothing) (string, error) {
		return twoRounds(server.RequestFrom(ctx), name)
	})
	server.AddTool(s, tool(prefix+"capabilities", "Asks whom it can."), func(ctx context.Context, _ nothing) (string, error) {
		asked := protocol.InputRequests{}
		client := server.RequestFrom(ctx).Client.Capabilities
		if client.Has("sampling") {
			asked["model"] = prompted("What can be asked?")
		}
		if client.Has("elicitation.form") {
			asked["user"] = name
		}
		answers, err := server.Ask(ctx, asked)
		return fmt.Sprintf("%d answers", len(answers)), err
	}, server.Asks(server.Reruns, protocol.ClientCapabilities{}))
}

// twoRounds asks two questions, one after the other, and keeps in the state of the call which was the last.
func twoRounds(r *server.Request, first protocol.InputRequest) (string, error) {
	var step int
	if _, err := r.State(&step); err != nil {
		return "", err
	}
	switch {
	case step == 1 && r.Answers["step1"] != nil:
		return "", &server.InputRequired{State: 2, Requests: protocol.InputRequests{
			"step2": form("Which colour?", `{"color":{"type":"string"}}`, "color"),
		}}
	case step == 2 && r.Answers["step2"] != nil:
		return "both steps are done", nil
	default:
		return "", &server.InputRequired{State: 1, Requests: protocol.InputRequests{"step1": first}}
	}
}

func addChangeFixtures(s *server.Server) {
	server.AddTool(s, tool("test_trigger_tool_change", "Adds a tool and removes it."), func(context.Context, nothing) (string, error) {
		server.AddTool(s, tool("test_temporary", "Goes away at once."), func(context.Context, nothing) (string, error) { return "", nil })
		s.RemoveTools("test_temporary")
		return "the tools have changed", nil
	})
	server.AddTool(s, tool("test_trigger_prompt_change", "Adds a prompt and removes it."), func(context.Context, nothing) (string, error) {
		server.AddPrompt(s, protocol.Prompt{Name: "test_temporary"}, func(context.Context, nothing) (string, error) { return "", nil })
		s.RemovePrompts("test_temporary")
		return "the prompts have changed", nil
	})
}

func addPromptFixtures(s *server.Server) {
	prompt := func(name, description string) protocol.Prompt {
		return protocol.Prompt{Name: name, Description: description}
	}
	server.AddPrompt(s, prompt("test_simple_prompt", "Has no arguments."), func(context.Context, nothing) (string, error) {
		return "This is a simple prompt for testing.", nil
	})
	server.AddPrompt(s, prompt("test_prompt_with_arguments", "Repeats its arguments."),
		func(_ context.Context, in struct {
			Arg1 string `json:"arg1" jsonschema:"the first argument"`
			Arg2 string `json:"arg2" jsonschema:"the second argument"`
		}) (string, error) {
			return fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", in.Arg1, in.Arg2), nil
		}, server.Completion{Argument: "arg1", Values: func(context.Context, string, map[string]string) ([]string, error) {
			return []string{"testValue1", "testValue2"}, nil
		}})
	server.AddPrompt(s, prompt("test_prompt_with_embedded_resource", "Embeds a resource."),
		func(_ context.Context, in struct {
			ResourceURI string `json:"resourceUri" jsonschema:"the resource to embed"`
		}) (protocol.Contents, error) {
			return protocol.Contents{
				embedded(in.ResourceURI, "text/plain", "Embedded resource content for testing."),
				protocol.Text("Please process the embedded resource above."),
			}, nil
		})
	server.AddPrompt(s, prompt("test_prompt_with_image", "Has an image."), func(context.Context, nothing) (protocol.Contents, error) {
		return protocol.Contents{protocol.Image(pixel, "image/png"), protocol.Text("Please analyze the image above.")}, nil
	})
	server.AddPrompt(s, prompt("test_input_required_result_prompt", "Asks for its context."), func(ctx context.Context, _ nothing) (string, error) {
		answers, err := server.Ask(ctx, protocol.InputRequests{
			"user_context": form("What is this about?", `{"context":{"type":"string"}}`, "context"),
		})
		if err != nil {
			return "", err
		}
		return answerText(answers["user_context"])
	}, server.Asks(server.Reruns, forms))
}

//go:embed all:skills
var skillFiles embed.FS

func addSkillFixtures(s *server.Server) {
	files, err := fs.Sub(skillFiles, "skills")
	if err == nil {
		err = skills.New(s).Add(files)
	}
	if err != nil { // they are part of the program
		panic(err)
	}
}

func addResourceFixtures(s *server.Server) {
	server.AddResource(s, protocol.Resource{URI: "test://static-text", Name: "static-text", MIMEType: "text/plain"},
		func(context.Context) (string, error) { return "This is the content of the static text resource.", nil })
	server.AddResource(s, protocol.Resource{URI: "test://static-binary", Name: "static-binary", MIMEType: "image/png"},
		func(context.Context) ([]byte, error) { return pixel, nil })
	server.AddResource(s, protocol.Resource{URI: "test://watched-resource", Name: "watched-resource", MIMEType: "text/plain"},
		func(context.Context) (string, error) { return "It may change.", nil })
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "test://template/{id}/data", Name: "template"},
		func(_ context.Context, in struct {
			ID string `json:"id"`
		}) (map[string]any, error) {
			return map[string]any{"id": in.ID, "templateTest": true, "data": "Data for ID: " + in.ID}, nil
		})
}
