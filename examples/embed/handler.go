package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// routes are what the service answers, all of it by one session. The session is
// the same for as long as the service lives, whatever becomes of the server.
func routes(session *client.Session, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /reverse", func(w http.ResponseWriter, r *http.Request) {
		seconds, err := strconv.Atoi(r.FormValue("seconds"))
		if err != nil && r.FormValue("seconds") != "" {
			http.Error(w, "seconds is not a number", http.StatusBadRequest)
			return
		}
		// The call ends with the request: when the caller leaves, the server is told.
		text, err := call(r.Context(), session, "reverse", reversal{r.FormValue("text"), seconds})
		if err != nil {
			log.WarnContext(r.Context(), "no answer", "tool", "reverse", "error", err)
			refuse(w, session, err)
			return
		}
		fmt.Fprintln(w, text)
	})
	return mux
}

// A toolError is the failure of a tool: the server is well, and says no.
type toolError string

func (e toolError) Error() string { return "the tool has failed: " + string(e) }

func call(ctx context.Context, session *client.Session, tool string, arguments any) (string, error) {
	raw, err := json.Marshal(arguments)
	if err != nil {
		return "", err
	}
	result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: tool, Arguments: raw})
	switch {
	case err != nil:
		return "", err
	case result.IsError:
		return "", toolError(result.Content.Text())
	}
	return result.Content.Text(), nil
}

// refuse says what a caller must know: whether to ask again can do any harm.
func refuse(w http.ResponseWriter, session *client.Session, err error) {
	switch failed := toolError(""); {
	case errors.As(err, &failed):
		http.Error(w, failed.Error(), http.StatusUnprocessableEntity)
	case conn.NotExecuted(err):
		w.Header().Set("Retry-After", strconv.Itoa(secondsUntil(session.Conn().Status().NextAttempt)))
		http.Error(w, "the tool did not run: ask again", http.StatusServiceUnavailable)
	default:
		http.Error(w, "the tool may have run: nobody knows", http.StatusBadGateway)
	}
}

// secondsUntil is at least one, also of a time that is not known.
func secondsUntil(t time.Time) int { return max(1, int(math.Ceil(time.Until(t).Seconds()))) }
