package main

import (
	"context"
	"encoding/json"
	"fmt"
)

// A script is a model that calls what it was told to, and prints what it reads.
type script struct{ turn int }

func (s *script) Next(_ context.Context, functions []Function, outputs []Output) ([]Use, string, error) {
	for _, o := range outputs {
		for _, p := range o.Parts {
			fmt.Printf("%s, failed %t: %s\n", o.ID, o.IsError, p.Text)
		}
	}
	uses := [][]Use{
		{{"1", "weather__forecast", json.RawMessage(`{"city": "Rome"}`)}, {"2", "weather__forecast", json.RawMessage(`{"city": "Bonn"}`)}},
		{{"3", "tools__crash", nil}, {"4", "tools__echo", json.RawMessage(`{"message": "back"}`)}},
	}
	s.turn++
	if s.turn > len(uses) {
		return nil, fmt.Sprintf("done, with %d functions", len(functions)), nil
	}
	return uses[s.turn-1], "", nil
}
