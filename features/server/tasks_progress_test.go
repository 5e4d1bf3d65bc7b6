package server_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// Progress of a task is in its status, with the time of the report, for clients that ask and for those that listen. What is reported after the end
// changes nothing.
//
// Guarantees: G-0032.9
func TestProgressOfATaskIsItsStatus(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	reports := []struct {
		done, total float64
		message     string
		want        string
	}{
		{0, 0, "", "0"},
		{1, 0, "begun", "begun (1)"},
		{2, 4, "", "2 of 4"},
		{2.5, 4, "half", "half (2.5 of 4)"},
		{5, 4, "", "5 of 4"}, // more than was expected
		{6, math.Inf(-1), "", "6"},
		{7, 0, long, long[:4<<10] + "… (7)"},
	}
	bubble(t, server.TaskOptions{}, func(t *testing.T, s *taskServer) {
		handler := make(chan context.Context, 1)
		server.AddTool(s.Server, protocol.Tool{Name: "reports", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(ctx context.Context, in struct{}) (string, error) {
				handler <- ctx
				return s.work(ctx, in)
			})
		w, listener := dial(t, s.Server), dial(t, s.Server)
		id := w.beginTask("reports")
		listener.send(withTasks(`"l"`, "subscriptions/listen", `"notifications":{"taskIds":["`+id+`"]}`))
		listener.want(`"taskIds":["` + id + `"]`)
		ctx := <-handler
		synctest.Wait()
		for _, report := range reports {
			timer := time.NewTimer(time.Second)
			<-timer.C
			reported := time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00")
			server.Progress(ctx, report.done, report.total, report.message)
			text, _ := json.Marshal(report.want)
			listener.want(`"method":"notifications/tasks"`, `"statusMessage":`+string(text))
			var got struct{ StatusMessage, LastUpdatedAt string }
			if err := json.Unmarshal([]byte(w.taskText(id)), &got); err != nil || got.StatusMessage != report.want || got.LastUpdatedAt != reported {
				t.Errorf("%v of %v: got %.100v, %v, want %.100q at %s", report.done, report.total, got, err, report.want, reported)
			}
		}
		s.goOn <- struct{}{}
		listener.want(`"method":"notifications/tasks"`, `"status":"completed"`)
		before := w.taskText(id)
		server.Progress(ctx, 8, 0, "late")
		if after := w.taskText(id); after != before {
			t.Errorf("a report after the end: got %s, want %s", after, before)
		}
	})
}

// taskText returns the answer to tasks/get.
func (w *rawPeer) taskText(id string) string {
	w.t.Helper()
	raw, err := json.Marshal(w.ask(withTasks(`9`, "tasks/get", `"taskId":"`+id+`"`)).Result)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(raw)
}
