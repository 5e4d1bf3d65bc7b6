package sqltasks_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/bowline-mcp/bowline/examples/sqltasks"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A task that one process ran is read by the next one from the database.
func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "sqltasks")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	db, err := sql.Open("sqlite3", "file:"+filepath.ToSlash(filepath.Join(folder, "tasks.db")))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	for _, statement := range sqltasks.Schema {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			log.Fatal(err)
		}
	}
	newServer := func() *server.Server {
		s := server.New(protocol.Implementation{Name: "reports", Version: "1.0"}, server.Options{
			Node: "node-1", Tasks: &server.TaskOptions{Store: &sqltasks.Store{DB: db}},
		})
		server.AddTool(s, protocol.Tool{Name: "report", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(context.Context, struct{}) (string, error) { return "all is well", nil })
		return s
	}
	connect := func(s *server.Server) *client.Session {
		session, err := client.New(protocol.Implementation{Name: "reader", Version: "1.0"}, client.Options{Tasks: true}).
			Connect(ctx, inmem.New(s.Accept, inmem.Options{}))
		if err != nil {
			log.Fatal(err)
		}
		return session
	}

	first := newServer()
	session := connect(first)
	task, err := session.StartTool(ctx, &protocol.CallToolParams{Name: "report"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := task.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	session.Close(ctx)
	first.Close(ctx)

	second := newServer()
	defer second.Close(ctx)
	session = connect(second)
	defer session.Close(ctx)
	result, err := session.Task(task.ID()).Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Content.Text())
	// Output: all is well
}
