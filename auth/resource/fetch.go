package resource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/bowline-mcp/bowline/auth/guard"
)

// A fetch sends requests to one issuer, within limits.
type fetch struct {
	guard  *guard.Guard
	client *http.Client // Options.HTTP; nil: the guard is used
}

type answer struct {
	header http.Header
	body   []byte
}

// newFetch returns a fetch that keeps up to idle connections for further requests.
func newFetch(issuer string, client *http.Client, idle int) fetch {
	if client != nil {
		return fetch{client: client}
	}
	return fetch{guard: guard.New(guard.Options{Endpoint: issuer, IdleConns: idle})}
}

func (f fetch) get(ctx context.Context, address string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return answer{}, errors.New("resource: the address is no URL")
	}
	return f.do(request)
}

// do sends a request. It accepts only JSON with status 200.
func (f fetch) do(request *http.Request) (answer, error) {
	request.Header.Set("Accept", "application/json, application/jwk-set+json")
	status, header, body, err := f.send(request)
	if err != nil {
		return answer{}, err
	}
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || status != http.StatusOK || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return answer{}, fmt.Errorf("resource: %s answers with status %d and %.80q", request.URL.Redacted(), status, kind)
	}
	return answer{header, body}, nil
}

func (f fetch) send(request *http.Request) (int, http.Header, []byte, error) {
	if f.client == nil {
		response, err := f.guard.Do(request)
		if err != nil {
			return 0, nil, nil, err
		}
		return response.Status, response.Header, response.Body, nil
	}
	response, err := f.client.Do(request)
	if err != nil {
		return 0, nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, guard.MaxBody+1))
	if err == nil && len(body) > guard.MaxBody {
		err = fmt.Errorf("resource: the answer of %s has more than %d bytes", request.URL.Redacted(), guard.MaxBody)
	}
	return response.StatusCode, response.Header, body, err
}
