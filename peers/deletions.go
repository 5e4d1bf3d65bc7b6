package peers

import (
	"context"
	"fmt"
	"net/http"
	"sync"
)

// deletions is an HTTP transport that records the session of the server until it is deleted.
type deletions struct {
	to http.RoundTripper

	mu      sync.Mutex
	session string // empty if there is no session, or it is deleted
}

func (d *deletions) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := d.to.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch session := response.Header.Get("Mcp-Session-Id"); {
	case r.Method == http.MethodDelete && response.StatusCode/100 == 2:
		d.session = ""
	case session != "":
		d.session = session
	}
	return response, nil
}

// A deletingSession returns an error from Close if the server has not deleted
// its session.
type deletingSession struct {
	bowlineSession
	deletions *deletions
}

func (s deletingSession) Close(ctx context.Context) error {
	if err := s.bowlineSession.Close(ctx); err != nil {
		return err
	}
	s.deletions.mu.Lock()
	defer s.deletions.mu.Unlock()
	if s.deletions.session != "" {
		return fmt.Errorf("the session %q was not deleted", s.deletions.session)
	}
	return nil
}
