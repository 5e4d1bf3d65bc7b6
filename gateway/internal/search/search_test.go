package search

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines returns the lines of a file that are no comments.
func lines(t testing.TB, path string) (all []string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if line := scanner.Text(); !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// A realTool is a tool of a server that people use. peers/cmd/lists has asked the servers.
type realTool struct {
	Document
	Server string
	Bytes  int // of its definition
}

// realTools returns the tools of fifteen servers, by server.
func realTools(t testing.TB) (all []realTool) {
	for _, line := range lines(t, "testdata/tools.jsonl") {
		var tool realTool
		if err := json.Unmarshal([]byte(line), &tool); err != nil {
			t.Fatal(err)
		}
		all = append(all, tool)
	}
	return all
}

// real returns them as a gateway names them.
func real(t testing.TB) (all []Document) {
	for _, tool := range realTools(t) {
		tool.Name = tool.Server + "__" + tool.Name
		all = append(all, tool.Document)
	}
	return all
}

func everything(int) bool { return false }

// What people want to do finds the tool that does it, among 194 tools of real servers: nearly always within five, mostly as the first.
//
// Guarantees: G-0101.1
func TestRealTools(t *testing.T) {
	total := hits{}
	for _, h := range findAll(t, real(t)) {
		total.add(h)
	}
	t.Logf("of %d queries: first %d, within 3 %d, within 5 %d", total.queries, total.first, total.three, total.five)
	if total.first*100 < 60*total.queries || total.five*100 < 85*total.queries {
		t.Error("too many are not found")
	}
}

// hits counts queries, and for how many a right tool was found at once, within three and within five.
type hits struct{ queries, first, three, five int }

func (h *hits) add(o hits) {
	h.queries, h.first, h.three, h.five = h.queries+o.queries, h.first+o.first, h.three+o.three, h.five+o.five
}

// findAll makes all queries, and returns what was found by the server of the first right tool.
func findAll(t testing.TB, tools []Document) map[string]hits {
	index, of := New(tools), make(map[string]hits)
	for _, line := range lines(t, "testdata/queries.txt") {
		query, right, _ := strings.Cut(line, " | ")
		var found []string
		for _, i := range index.Find(query, 5, everything) {
			found = append(found, tools[i].Name)
		}
		rank := slices.IndexFunc(found, func(name string) bool { return slices.Contains(strings.Fields(right), name) })
		if rank != 0 {
			t.Logf("%d: %s: %s", rank+1, query, found[:min(len(found), 3)])
		}
		one := hits{queries: 1}
		for most, count := range map[int]*int{1: &one.first, 3: &one.three, 5: &one.five} {
			if rank >= 0 && rank < most {
				*count = 1
			}
		}
		server, _, _ := strings.Cut(right, "__")
		one.add(of[server])
		of[server] = one
	}
	return of
}

var update = flag.Bool("update", false, "rewrite the table of ADR-0101")

// The table of ADR-0101 is what is measured here.
func TestTableOfTheADR(t *testing.T) {
	const path = "../../../docs/adr/0101-search-of-tools.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const head = "| Server | Tools | Definitions | Queries | First | In three | In five |\n| --- | --- | --- | --- | --- | --- | --- |\n"
	before, rest, found := strings.Cut(string(page), head)
	_, after, ended := strings.Cut(rest, "\n\n")
	if !found || !ended {
		t.Fatalf("%s has no table", path)
	}
	if want := before + head + table(t) + "\n" + after; want != string(page) {
		if !*update {
			t.Fatalf("%s has another table: go test ./gateway/internal/search -run TestTableOfTheADR -update", path)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func table(t testing.TB) string {
	var rows strings.Builder
	row := func(server string, tools, bytes int, h hits) {
		fmt.Fprintf(&rows, "| %s | %d | %.1f kB | %d | %d | %d | %d |\n", server, tools, float64(bytes)/1000, h.queries, h.first, h.three, h.five)
	}
	of, tools := findAll(t, real(t)), realTools(t)
	count, bytes, total := make(map[string]int), make(map[string]int), hits{}
	all := 0
	for _, tool := range tools {
		count[tool.Server]++
		bytes[tool.Server] += tool.Bytes
		all += tool.Bytes
	}
	for _, server := range slices.Sorted(maps.Keys(count)) {
		row(server, count[server], bytes[server], of[server])
		total.add(of[server])
	}
	row("**all**", len(tools), all, total)
	return rows.String()
}

// Words are found as people write names: joined in any way, in any case, in the plural.
//
// Guarantees: G-0101.1
func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"create_issue createIssue create-issue CreateIssues": "creat issu creat issu creat issu creat issu",
		"OAuth2 v2.0":                      "oauth 2 v 2 0",
		"the files of a user":              "fil user",
		"Dateien in Größe":                 "dateien größ",
		"queries classes searching parsed": "query class search pars",
		"日本語 tool":                         "日本語 tool",
		strings.Repeat("x", 100):           strings.Repeat("x", longestWord),
		"":                                 "",
		"\xff\xfe a":                       "",
	} {
		if got := strings.Join(wordsOf(text), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A rare word counts more than a frequent one, a name more than a description, and a beginning finds the word. Of equal tools the first comes
// first, and what is hidden does not come.
//
// Guarantees: G-0101.1, G-0101.2
func TestRanks(t *testing.T) {
	index := New([]Document{
		{Name: "list_users", Description: "All users."},
		{Name: "list_rooms", Description: "All rooms of a user."},
		{Name: "weather", Description: "The temperature in a room.", Parameters: []string{"zipCode"}},
		{Name: "list_users", Description: "All users."},
		{Name: "long", Description: "user " + strings.Repeat("other words ", 50)},
	})
	for _, c := range []struct {
		query string
		most  int
		want  string
	}{
		{"users", 10, "[0 3 1 4]"},
		{"list temperature", 1, "[2]"},
		{"ROOM", 10, "[1 2]"},
		{"temp", 10, "[2]"},
		{"zip", 10, "[2]"},
		{"te", 10, "[]"},
		{"users", 1, "[0]"},
		{"nothing like it", 10, "[]"},
		{"the of a", 10, "[]"},
		{"", 10, "[]"},
	} {
		if got := fmt.Sprint(index.Find(c.query, c.most, everything)); got != c.want {
			t.Errorf("%q: %s, want %s", c.query, got, c.want)
		}
	}
	if got := fmt.Sprint(index.Find("users", 10, func(i int) bool { return i == 0 })); got != "[3 1 4]" {
		t.Errorf("without what is hidden: %s", got)
	}
	if got := New(nil).Find("users", 10, everything); len(got) != 0 {
		t.Errorf("without tools: %v", got)
	}
}

// Whatever servers offer and clients ask, an answer has each tool once, none that is hidden, and no more than wanted.
//
// Guarantees: G-0101.2
func TestAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.OneOf(rapid.String(), rapid.StringMatching(`([a-c]{1,3}[_ -]?){0,5}`))
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Document {
			return Document{texts.Draw(t, "name"), texts.Draw(t, "title"), texts.Draw(t, "description"), rapid.SliceOfN(texts, 0, 3).Draw(t, "parameters")}
		}), 0, 20).Draw(t, "tools")
		most, hides := rapid.IntRange(0, 10).Draw(t, "most"), rapid.IntRange(0, 3).Draw(t, "hides")
		found := New(all).Find(texts.Draw(t, "query"), most, func(i int) bool { return hides > 0 && i%hides == 0 })
		if len(found) > most {
			t.Fatalf("%d were found, of %d that were wanted", len(found), most)
		}
		seen := map[int]bool{}
		for _, i := range found {
			if seen[i] || hides > 0 && i%hides == 0 {
				t.Fatalf("%v with every %d. hidden", found, hides)
			}
			seen[i] = true
		}
	})
}

// Long texts and queries of many words cost what their bound costs.
//
// Guarantees: G-0101.3
func TestBounds(t *testing.T) {
	huge := strings.Repeat("many words ", 1<<17)
	index := New([]Document{{Name: "a", Description: huge + "needle", Parameters: slices.Repeat([]string{"p"}, mostParameters+1)}, {Name: "b"}})
	if got := index.Find("needle", 1, everything); len(got) != 0 {
		t.Error("a text counts beyond its bound")
	}
	if got := index.Find(strings.Repeat("x ", mostQueryWords)+"b", 1, everything); len(got) != 0 {
		t.Error("a query counts beyond its bound")
	}
	if index.lengths[0] > nameWeight+longestText/5+mostParameters {
		t.Errorf("a tool has %.0f words", index.lengths[0])
	}
}

func BenchmarkNew(b *testing.B) {
	tools := real(b)
	for b.Loop() {
		New(tools)
	}
}

func BenchmarkFind(b *testing.B) {
	index := New(real(b))
	for b.Loop() {
		index.Find("open a bug report on github", 10, everything)
	}
}
