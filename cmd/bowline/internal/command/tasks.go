package command

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/spf13/cobra"
)

const tasksLong = `Show a task of a server: its id, its status and its status message. Use the id
that "bowline call --detach" has printed, now or earlier. With --wait the command
waits until the task has ended, or until --timeout if you set it, and prints the
result like "bowline call". The wait survives a lost connection. With --cancel the
command cancels the task.

At a cluster of gateways, a task of 2025-11-25 is found only at the gateway at which
"bowline call --detach" began it. The name of that one begins the id.

Without an id the command lists tasks. Only servers of 2025-11-25 have such a
list, and only for users that they can identify.`

const tasksExample = `  # Start a long call, and get its result later
  id=$(bowline call render scene=forest --detach --url http://127.0.0.1:8080/mcp)
  bowline tasks "$id" --wait --url http://127.0.0.1:8080/mcp`

// newTasks needs no session that has started the task: a task outlives the connection of its call.
func newTasks() *cobra.Command {
	var wait, cancel bool
	command := connect.WithServer(&cobra.Command{
		Use:     "tasks [ID]",
		Short:   "Show, wait for or cancel tasks of a server",
		Long:    tasksLong,
		Example: tasksExample,
		Args:    cobra.MaximumNArgs(1),
	}, nil, func(_ *cobra.Command, args []string) (connect.Action, error) {
		switch {
		case wait && cancel:
			return nil, errors.New("--wait and --cancel cannot be used together")
		case len(args) == 0 && (wait || cancel):
			return nil, errors.New("name the task")
		case len(args) == 0:
			return listTasks, nil
		case wait:
			return waitForTask(args[0]), nil
		case cancel:
			return func(ctx context.Context, r *connect.Run) error { return r.Session.Task(args[0]).Cancel(ctx) }, nil
		default:
			return showTask(args[0]), nil
		}
	})
	command.Flags().BoolVar(&wait, "wait", false, "wait until the task has ended, and print its result")
	command.Flags().BoolVar(&cancel, "cancel", false, "cancel the task")
	return command
}

// waitForTask waits for the end of a task. The default of --timeout is not for that.
func waitForTask(id string) connect.Action {
	return func(ctx context.Context, r *connect.Run) error {
		r.Limit.AwaitTask()
		result, err := r.Session.Task(id).Wait(ctx)
		if err != nil {
			return connect.ExplainTask(err, "it continues. Run this command again to wait for it")
		}
		return printResult(r, "task "+id, result)
	}
}

// showTask shows how a task is, once.
func showTask(id string) connect.Action {
	return func(ctx context.Context, r *connect.Run) error {
		state, err := r.Session.Task(id).Status(ctx)
		if err != nil {
			return err
		}
		return r.Print(state, func(table io.Writer) { taskRow(table, &state.Task) })
	}
}

// listTasks lists all tasks that the server lets this client see.
func listTasks(ctx context.Context, r *connect.Run) error {
	tasks, err := all(r.Session.Tasks(ctx))
	if err != nil {
		return err
	}
	document := struct {
		Tasks []*protocol.Task `json:"tasks"`
	}{tasks}
	return r.Print(document, func(table io.Writer) {
		for _, t := range tasks {
			taskRow(table, t)
		}
	})
}

// taskRow shows a task. Its id and its message are words of the server.
func taskRow(table io.Writer, t *protocol.Task) {
	render.Row(table, t.TaskID, strings.TrimSpace(string(t.Status)+"  "+t.StatusMessage))
}
