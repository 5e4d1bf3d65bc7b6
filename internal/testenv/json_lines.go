package testenv

import (
	"encoding/json"
	"os"
	"testing"
)

// JSONLines returns the values of a file that has one on each line, such as the records
// of an audit trail, in their order. A line may have any length. One that is no such value,
// also a last one that is torn, fails the test: so does a file that cannot be read.
// The caller owns what it gets. Call it when whoever writes the file has finished,
// or has said that what the test waits for is in it.
func JSONLines[T any](t testing.TB, path string) (all []T) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := json.NewDecoder(file); lines.More(); {
		var one T
		if err := lines.Decode(&one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}
