package server_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// Arguments that are mirrored to headers have to be the same there (2026-07-28
// basic/transports).
func TestMirroredArgumentsHaveToBeTheSame(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(_ context.Context, in struct {
		Region string `json:"region" header:"Region"`
		Count  int    `json:"count,omitzero" header:"Count"`
	}) (string, error) {
		return "in " + in.Region, nil
	})
	url := site(t, s, func(h http.Handler) http.Handler { return h })
	pool := &http.Transport{}
	defer pool.CloseIdleConnections()
	for _, test := range []struct {
		arguments, region, count string
		fits                     bool
	}{
		{`{"region":"eu"}`, "eu", "", true},
		{`{"region":"eu"}`, " eu ", "", true},
		{`{"region":"eu","count":7}`, "eu", "7", true},
		{`{"region":"Hello"}`, "=?base64?SGVsbG8=?=", "", true},
		{`{"region":"SGVsbG8="}`, "SGVsbG8=", "", true},
		{`{"region":"=?base64?SGVsbG8="}`, "=?base64?SGVsbG8=", "", true},
		{`{"region":"eu"}`, "", "", false},
		{`{"region":"eu"}`, "EU", "", false},
		{`{"region":"eu"}`, "eu", "7", false},
		{`{"region":"eu","count":7}`, "eu", "8", false},
		{`{"region":"1"}`, "1.0", "", false},
		{`{"region":"Hello"}`, "=?base64?SGVsbG8?=", "", false},
		{`{"region":"Hello"}`, "=?base64?SGVs!!!bG8=?=", "", false},
	} {
		r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(modern(`1`, "tools/call", `"name":"t","arguments":`+test.arguments)))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Protocol-Version": protocol.Latest, "Mcp-Method": "tools/call", "Mcp-Name": "t",
			"Mcp-Param-Region": test.region, "Mcp-Param-Count": test.count,
		} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		response, err := (&http.Client{Transport: pool}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if fits := strings.Contains(string(body), `in `); fits != test.fits || !fits && (response.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), `-32020`)) {
			t.Errorf("%+v: got %s %s", test, response.Status, body)
		}
	}
	w := dial(t, s) // elsewhere there are no headers
	if got := w.ask(modern(`1`, "tools/call", `"name":"t","arguments":{"region":"eu"}`)); !strings.Contains(string(got.Result["content"]), "in eu") {
		t.Errorf("got %+v", got)
	}
}
