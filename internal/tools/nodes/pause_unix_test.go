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
	defer http.DefaultClient.CloseIdleConnections()
	for answers(t, all.NodeURL(0)) { // the signal may take its time
	}
	if err := all.Signal(0, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if status, _ := post(t, all.NodeURL(0)); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
}

// answers reports whether a node answers soon.
func answers(t *testing.T, url string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return true
}
