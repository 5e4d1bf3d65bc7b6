//go:build unix

package nodes_test

import (
	"context"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// A paused node accepts connections and answers nothing, until it goes on.
func TestPausedNode(t *testing.T) {
	all := start(t)
	if err := all.Signal(0, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, all.NodeURL(0), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	if response, err := http.DefaultClient.Do(request); err == nil {
		response.Body.Close()
		t.Errorf("a paused node has answered %s", response.Status)
	}
	if err := all.Signal(0, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if status, _ := post(t, all.NodeURL(0)); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
}
