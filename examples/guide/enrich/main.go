// Enrich is a gateway that says of the results of tools whose the data are, where they come from, and what of them is personal.
package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode"

	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A Dataset is a row of the catalogue.
type Dataset struct {
	Name     string   `json:"name"`
	Owner    string   `json:"owner"`
	From     []string `json:"from,omitempty"`     // what it is made of
	Personal []string `json:"personal,omitempty"` // columns with personal data
}

// String says it to a model.
func (d Dataset) String() string {
	text := d.Name + " belongs to " + d.Owner
	if len(d.From) > 0 {
		text += "; made from " + strings.Join(d.From, ", ")
	}
	if len(d.Personal) > 0 {
		text += "; personal data: " + strings.Join(d.Personal, ", ")
	}
	return text
}

// A catalogue has the data sets by name.
type catalogue map[string]Dataset

// load reads a catalogue: a CSV file with the columns name, owner, from and personal. The last two have words.
func load(path string) (catalogue, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	in := csv.NewReader(file)
	in.FieldsPerRecord = 4
	rows, err := in.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	all := make(catalogue)
	for _, row := range rows {
		all[row[0]] = Dataset{row[0], row[1], strings.Fields(row[2]), strings.Fields(row[3])}
	}
	delete(all, "name") // the head
	return all, nil
}

// named returns the data sets whose names are words of the arguments, such as a query, in their order there.
func (c catalogue) named(arguments json.RawMessage) (found []Dataset, err error) {
	var values any
	if err := json.Unmarshal(arguments, &values); err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	for _, word := range strings.FieldsFunc(fmt.Sprint(values), func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) }) {
		if d, known := c[strings.ToLower(word)]; known && !seen[d.Name] {
			seen[d.Name] = true
			found = append(found, d)
		}
	}
	return found, nil
}

// enrich says what is known of the data sets that a call has named.
func (c catalogue) enrich(_ context.Context, call gateway.ToolCall) (added gateway.Addition, err error) {
	found, err := c.named(call.Arguments)
	if err != nil || len(found) == 0 {
		return added, err
	}
	added.Meta = map[string]any{"datasets": found}
	for _, d := range found {
		added.Content = append(added.Content, protocol.Text(d.String()))
	}
	return added, nil
}

// serve serves the servers of a file to the host that has started this program.
func serve(ctx context.Context, servers, datasets string) error {
	all, err := load(datasets)
	if err != nil {
		return err
	}
	file, err := mcpjson.Load(servers)
	if err != nil {
		return err
	}
	g := gateway.New(gateway.Options{Enrich: all.enrich})
	defer g.Close(context.WithoutCancel(ctx))
	if _, err := g.Apply(ctx, file); err != nil {
		return err
	}
	return g.Server().Run(ctx, &stdio.Server{})
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: enrich mcp.json datasets.csv")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}
