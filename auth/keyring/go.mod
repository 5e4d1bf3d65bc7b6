module github.com/bowline-mcp/bowline/auth/keyring

go 1.25.0

require (
	github.com/bowline-mcp/bowline v0.1.0
	github.com/godbus/dbus/v5 v5.2.2
	github.com/zalando/go-keyring v0.2.8
	go.uber.org/goleak v1.3.0
)

require (
	github.com/danieljoos/wincred v1.2.3 // indirect
	github.com/go-jose/go-jose/v4 v4.1.8 // indirect
	github.com/go-json-experiment/json v0.0.0-20251027170946-4849db3c2f7e // indirect
	golang.org/x/oauth2 v0.36.0 // indirect
	golang.org/x/sys v0.38.0 // indirect
)
