package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/spf13/cobra"
)

func newTasks() *cobra.Command {
	var wait, cancel bool
	command := withServer(&cobra.Command{
		Use:   "tasks [ID]",
		Short: "Show, wait for or cancel tasks of a server",
		Long: `Show a task of a server: its id, its status and its status message. Use the id
that "bowline call --detach" has printed, now or earlier. With --wait the command
waits until the task has ended, or until --timeout if you set it, and prints the
result like "bowline call". The wait survives a lost connection. With --cancel the
command cancels the task.

Without an id the command lists tasks. Only servers of 2025-11-25 have such a
list, and only for users that they can identify.`,
		Example: `  # Start a long call, and get its result later
  id=$(bowline call render scene=forest --detach --url http://127.0.0.1:8080/mcp)
  bowline tasks "$id" --wait --url http://127.0.0.1:8080/mcp`,
		Args: cobra.MaximumNArgs(1),
	}, nil, func(_ *cobra.Command, args []string) (action, error) {
		switch {
		case wait && cancel:
			return nil, errors.New("--wait and --cancel cannot be used together")
		case len(args) == 0 && (wait || cancel):
			return nil, errors.New("name the task")
		case len(args) == 0:
			return listTasks, nil
		case wait:
			return func(ctx context.Context, r *run) error {
				r.limit.awaitTask()
				result, err := r.session.Task(args[0]).Wait(ctx)
				if err != nil {
					return explainTask(err, "it continues. Run this command again to wait for it")
				}
				return printResult(r, "task "+args[0], result)
			}, nil
		case cancel:
			return func(ctx context.Context, r *run) error { return r.session.Task(args[0]).Cancel(ctx) }, nil
		default:
			return func(ctx context.Context, r *run) error {
				state, err := r.session.Task(args[0]).Status(ctx)
				if err != nil {
					return err
				}
				return r.print(state, func(table io.Writer) { taskRow(table, &state.Task) })
			}, nil
		}
	})
	command.Flags().BoolVar(&wait, "wait", false, "wait until the task has ended, and print its result")
	command.Flags().BoolVar(&cancel, "cancel", false, "cancel the task")
	return command
}

func listTasks(ctx context.Context, r *run) error {
	tasks, err := all(r.session.Tasks(ctx))
	if err != nil {
		return err
	}
	document := struct {
		Tasks []*protocol.Task `json:"tasks"`
	}{tasks}
	return r.print(document, func(table io.Writer) {
		for _, t := range tasks {
			taskRow(table, t)
		}
	})
}

func taskRow(table io.Writer, t *protocol.Task) {
	row(table, t.TaskID, strings.TrimSpace(string(t.Status)+"  "+t.StatusMessage))
}

// detach calls a tool, and prints the id of the task that comes of it. If the tool has
// answered at once, that is printed instead.
func detach(ctx context.Context, r *run, name string, given arguments) error {
	tool, err := findTool(ctx, r.session, name)
	if err != nil {
		return err
	}
	arguments, err := given.fit(ctx, tool)
	if err != nil {
		return &failure{status: exitUsage, err: err}
	}
	task, err := r.session.With(client.CallOptions{Timeout: -1}).StartTool(ctx, &protocol.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		return err
	}
	if task.ID() == "" {
		result, err := task.Wait(ctx) // it is known
		if err != nil {
			return err
		}
		return printResult(r, name, result)
	}
	if r.json {
		return printJSON(r.out, map[string]string{"taskId": task.ID()})
	}
	_, err = fmt.Fprintln(r.out, flat(task.ID()))
	return err
}
