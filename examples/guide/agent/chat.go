package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// These limit the answer of a model, the calls of one answer, and how much of a text the model reads. Images have no limit.
const (
	maxAnswer = 4 << 20
	maxUses   = 32
	maxText   = 64 << 10
)

// A chat is a Model behind the chat completions API, which many model servers have. It keeps the conversation.
type chat struct {
	URL, Key, Name string // such as "https://api.example.com/v1/chat/completions"
	messages       []message
}

// These are the messages of that API.
type (
	// A message is one of the user, of the model ("assistant"), or the output of a call ("tool").
	message struct {
		Role      string     `json:"role"`
		Content   any        `json:"content"` // a text, parts, or null
		ToolCalls []toolCall `json:"tool_calls,omitempty"`
		ToolCall  string     `json:"tool_call_id,omitempty"`
	}

	// A toolCall is what the model wants, in a message of its own.
	toolCall struct {
		ID       string       `json:"id"`
		Type     string       `json:"type"`
		Function functionCall `json:"function"`
	}
	functionCall struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"` // JSON in a string; a model may write anything
	}

	// An offered is what the model may call.
	offered struct {
		Type     string          `json:"type"`
		Function offeredFunction `json:"function"`
	}
	offeredFunction struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}
)

// ask begins a conversation.
func (c *chat) ask(question string) { c.messages = []message{{Role: "user", Content: question}} }

// Next implements Model.
func (c *chat) Next(ctx context.Context, functions []Function, outputs []Output) (uses []Use, text string, err error) {
	c.tell(outputs)
	tools := []offered{} // not nil: some model servers refuse null
	for _, f := range functions {
		tools = append(tools, offered{"function", offeredFunction{f.Name, f.Description, f.Schema}})
	}
	// The whole conversation is sent each time: the model server keeps nothing.
	answer, err := c.complete(ctx, map[string]any{"model": c.Name, "messages": c.messages, "tools": tools})
	if err != nil {
		return nil, "", fmt.Errorf("ask the model: %w", err)
	}
	if len(answer.ToolCalls) > maxUses {
		return nil, "", fmt.Errorf("the model wants %d calls at once, and at most %d are made", len(answer.ToolCalls), maxUses)
	}
	c.messages = append(c.messages, answer)
	// A model may have written any text as arguments. The session refuses what is no JSON, and the model reads why.
	for _, call := range answer.ToolCalls {
		uses = append(uses, Use{call.ID, call.Function.Name, json.RawMessage(call.Function.Arguments)})
	}
	text, _ = answer.Content.(string) // null beside calls
	return uses, text, nil
}

// tell adds the outputs to the conversation: a message for each call, and then the images, which those cannot have.
func (c *chat) tell(outputs []Output) {
	var images []any
	for _, o := range outputs {
		m := message{Role: "tool", ToolCall: o.ID}
		m.Content, images = textOf(o, images)
		c.messages = append(c.messages, m)
	}
	if len(images) > 0 {
		c.messages = append(c.messages, message{Role: "user", Content: images})
	}
}

// textOf returns what a model reads of an output, and adds its images to those of others.
func textOf(o Output, images []any) (string, []any) {
	var text strings.Builder
	if o.IsError {
		text.WriteString("failed: ")
	}
	for _, part := range o.Parts {
		switch {
		case strings.HasPrefix(part.MIMEType, "image/"): // in a URL, which needs no other server
			url := "data:" + part.MIMEType + ";base64," + base64.StdEncoding.EncodeToString(part.Data)
			images = append(images, map[string]any{"type": "image_url", "image_url": map[string]string{"url": url}})
			fmt.Fprintf(&text, "(image %d of the next message)\n", len(images))
		case part.MIMEType != "":
			fmt.Fprintf(&text, "(%d bytes of %s)\n", len(part.Data), part.MIMEType)
		default:
			text.WriteString(part.Text + "\n")
		}
	}
	// What is cut off would cost the user money in every request that follows.
	whole := text.String()
	if len(whole) > maxText {
		whole = strings.ToValidUTF8(whole[:maxText], "") + "… (the rest was cut off)"
	}
	return whole, images
}

// complete sends one request, and returns the message that the model answers with.
func (c *chat) complete(ctx context.Context, request any) (answer message, err error) {
	body, err := c.post(ctx, request)
	if err != nil {
		return answer, err
	}
	var completion struct {
		Choices []struct {
			Message message `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(body, &completion); err != nil {
		return answer, fmt.Errorf("read its answer: %w", err)
	}
	// There is one choice unless the request asks for more.
	if len(completion.Choices) == 0 {
		return answer, fmt.Errorf("its answer has no choice: %.200q", body)
	}
	answer = completion.Choices[0].Message
	answer.Role = cmp.Or(answer.Role, "assistant")
	return answer, nil
}

// post returns the body of the response, which is as long as the model server likes.
func (c *chat) post(ctx context.Context, request any) ([]byte, error) {
	text, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+c.Key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err == nil && response.StatusCode != http.StatusOK:
		err = fmt.Errorf("status %d: %.200q", response.StatusCode, body)
	case len(body) > maxAnswer:
		err = fmt.Errorf("its answer is longer than %d bytes", maxAnswer)
	}
	return body, err
}
