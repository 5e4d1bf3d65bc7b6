module github.com/bowline-mcp/bowline/gateway/admin/browser

go 1.26.0

// chromedp wants a newer one than the library. In the workspace all modules would be tested with that one.
replace github.com/go-json-experiment/json => github.com/go-json-experiment/json v0.0.0-20251027170946-4849db3c2f7e

require (
	github.com/bowline-mcp/bowline v0.1.0
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/go-jose/go-jose/v4 v4.1.8 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/google/jsonschema-go v0.4.3 // indirect
	github.com/looplab/fsm v1.0.3 // indirect
	github.com/tailscale/hujson v0.0.0-20250605163823-992244df8c5a // indirect
	github.com/yosida95/uritemplate/v3 v3.0.2 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/oauth2 v0.36.0 // indirect
	golang.org/x/sys v0.38.0 // indirect
	maragu.dev/gomponents v1.2.0 // indirect
)
