package main

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// given has the credentials that the suite passes to the client in
// MCP_CONFORMANCE_CONTEXT.
type given struct {
	ClientID      string `json:"client_id"`
	ClientSecret  string `json:"client_secret"`
	Issuer        string `json:"issuer"`
	PrivateKey    string `json:"private_key_pem"`
	IDPClientID   string `json:"idp_client_id"`
	IDPToken      string `json:"idp_id_token"`
	IDPIssuer     string `json:"idp_issuer"`
	IDPEndpoint   string `json:"idp_token_endpoint"`
	WorkloadToken string `json:"valid_jwt"`
}

// A setting changes the login options for one scenario.
type setting func(*auth.Options, *given) error

// settings has the authorization scenarios that need other than the default login
// options.
var settings = map[string]setting{
	"auth/basic-cimd": func(o *auth.Options, _ *given) error {
		o.MetadataURL = "https://conformance-test.local/client-metadata.json"
		return nil
	},
	"auth/pre-registration": func(o *auth.Options, g *given) error {
		o.Registered = []auth.Registered{{Issuer: g.Issuer, ID: g.ClientID, Secret: auth.NewSecret(g.ClientSecret)}}
		return nil
	},
	"auth/client-credentials-basic": func(o *auth.Options, g *given) error {
		o.Grant = auth.ClientCredentials{}
		o.Registered = []auth.Registered{{ID: g.ClientID, Secret: auth.NewSecret(g.ClientSecret)}}
		return nil
	},
	"auth/client-credentials-jwt": func(o *auth.Options, g *given) error {
		key, err := privateKey(g.PrivateKey)
		o.Grant = auth.ClientCredentials{}
		o.Registered = []auth.Registered{{ID: g.ClientID, Key: key}}
		return err
	},
	"auth/enterprise-managed-authorization": func(o *auth.Options, g *given) error {
		o.Grant = auth.IDJAG{
			TokenEndpoint: g.IDPEndpoint, Issuer: g.IDPIssuer, Client: auth.Registered{Issuer: g.IDPIssuer, ID: g.IDPClientID},
			Subject: func(context.Context) (auth.Secret, string, error) { return auth.NewSecret(g.IDPToken), "", nil },
		}
		o.Registered = []auth.Registered{{ID: g.ClientID, Secret: auth.NewSecret(g.ClientSecret)}}
		return nil
	},
	"auth/wif-jwt-bearer": func(o *auth.Options, g *given) error {
		o.Grant = auth.Workload{Assertion: func(context.Context, string) (auth.Secret, error) { return auth.NewSecret(g.WorkloadToken), nil }}
		return nil
	},
	"auth/dpop":       bound,
	"auth/dpop-nonce": bound,
}

func bound(o *auth.Options, _ *given) error {
	o.DPoP = true
	return nil
}

func privateKey(text string) (crypto.Signer, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("the key is no PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%T signs nothing", key)
	}
	return signer, nil
}

// login returns the Authorizer for the server of a scenario.
func login(scenario, server string) (*auth.Authorizer, error) {
	o := auth.Options{Resource: server, ClientName: "Bowline's everything-client", Offline: true, Interact: browse}
	var context given
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &context); err != nil {
			return nil, err
		}
	}
	if set, ok := settings[scenario]; ok {
		if err := set(&o, &context); err != nil {
			return nil, err
		}
	}
	return auth.New(o), nil
}

// browse acts as the browser of a user who always consents.
func browse(ctx context.Context, i auth.Interaction) (*url.URL, error) {
	return authtest.Consent(ctx, i.Start)
}

// callTwice makes the requests that the servers with authorization expect.
func callTwice(ctx context.Context, s *client.Session) error {
	if err := listTools(ctx, s); err != nil {
		return err
	}
	_, err := s.CallTool(ctx, &protocol.CallToolParams{Name: "test-tool"})
	return err
}
