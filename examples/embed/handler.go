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

// routes returns the handler of the service. It uses one session for all requests. The
// session stays the same when the MCP server is lost and comes back.
func routes(session *client.Session, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /reverse", func(w http.ResponseWriter, r *http.Request) {
		seconds, err := strconv.Atoi(r.FormValue("seconds"))
		if err != nil && r.FormValue("seconds") != "" {
			http.Error(w, "seconds is not a number", http.StatusBadRequest)
			return
		}
		// The call has the context of the request: if the HTTP client disconnects, the
		// call is cancelled.
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

// A toolError says that the tool itself failed.
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

// refuse answers a failed request. The status says whether it is safe to try again.
func refuse(w http.ResponseWriter, session *client.Session, err error) {
	switch failed := toolError(""); {
	case errors.As(err, &failed):
		http.Error(w, failed.Error(), http.StatusUnprocessableEntity)
	case conn.NotExecuted(err):
		w.Header().Set("Retry-After", strconv.Itoa(secondsUntil(session.Conn().Status().NextAttempt)))
		http.Error(w, "the tool did not run: try again", http.StatusServiceUnavailable)
	default:
		http.Error(w, "the tool may have run", http.StatusBadGateway)
	}
}

// secondsUntil returns the seconds until t: at least one, even if t is zero.
func secondsUntil(t time.Time) int { return max(1, int(math.Ceil(time.Until(t).Seconds()))) }
