package resource

import (
	"net/http"
	"strconv"

	"github.com/bowline-mcp/bowline/protocol"
)

const wellKnown = "/.well-known/oauth-protected-resource"

// Metadata returns a handler for the protected resource metadata (RFC 9728). It serves the two
// paths where clients look for it: /.well-known/oauth-protected-resource followed by the path
// of Options.URL, and the same without that path. For other paths the response is 404. If
// several Guards share a host, register each handler at the path of its URL, and one of them
// also at the path without it. Pages of every origin may read the metadata, and clients may cache it for an
// hour.
func (g *Guard) Metadata() http.Handler {
	body, err := g.document()
	path := pathOf(g.metadata)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Access-Control-Allow-Origin", "*")
		switch {
		case r.URL.Path != path && r.URL.Path != wellKnown:
			http.NotFound(w, r)
		case err != nil:
			http.Error(w, "the metadata cannot be encoded", http.StatusInternalServerError)
		case r.Method == http.MethodOptions: // from a page that sends Mcp-Protocol-Version
			header.Set("Access-Control-Allow-Methods", "GET")
			header.Set("Access-Control-Allow-Headers", "*")
			w.WriteHeader(http.StatusNoContent)
		default:
			serveDocument(w, r, body)
		}
	})
}

func serveDocument(w http.ResponseWriter, r *http.Request, body []byte) {
	header := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD, OPTIONS")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Cache-Control", "max-age=3600")
	if r.Method == http.MethodGet {
		w.Write(body)
	}
}

// document returns the metadata. It does not change while the Guard lives.
func (g *Guard) document() ([]byte, error) {
	document := struct {
		Resource string   `json:"resource"`
		Issuers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported,omitzero"`
		Methods  []string `json:"bearer_methods_supported"`
		Algs     []string `json:"dpop_signing_alg_values_supported,omitzero"`
		Bound    bool     `json:"dpop_bound_access_tokens_required,omitzero"`
	}{Resource: g.options.URL, Scopes: g.scopes, Methods: []string{"header"}, Bound: g.options.DPoP == DPoPRequired}
	for _, issuer := range g.options.Issuers {
		document.Issuers = append(document.Issuers, issuer.URL)
	}
	if g.proofs != nil {
		for _, algorithm := range algorithms() {
			document.Algs = append(document.Algs, string(algorithm))
		}
	}
	return protocol.Marshal(document)
}
