package refusal

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A text is cut between two runes, and only if it is too long. What a refusal says has a limit as a whole.
func TestTextsOfPeersAreCut(t *testing.T) {
	for text, want := range map[string]string{"": "", "abcd": "abcd", "abcde": "abcd…", "abcé": "abc…", "é": "é", "äöü": "äö…"} {
		if got := Shorten(text, 4); got != want || !utf8.ValidString(got) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := New(7, "%s", strings.Repeat("a", LongestMessage+1)); got.Code != 7 || len(got.Message) != LongestMessage+len("…") {
		t.Errorf("got %d with %d bytes, want %d", got.Code, len(got.Message), LongestMessage+len("…"))
	}
	if err := Missing("a/b", "uri", ""); Missing("a/b", "uri", "x") != nil || err == nil || !strings.Contains(err.Error(), "a/b: uri is missing") {
		t.Errorf("what is there counts as missing, or the other way round: %v", err)
	}
}

// A picky number reads itself, as a type of the program may.
type picky int

func (p *picky) UnmarshalJSON(raw []byte) error { return json.Unmarshal(raw, (*int)(p)) }

// An explanation says where in the value of a peer something is wrong, in words of JSON, and names no type of Go.
func TestExplanationsNameNoTypes(t *testing.T) {
	type secretType struct {
		Number int       `json:"number"`
		When   time.Time `json:"when"`
		Own    picky     `json:"own"`
	}
	for raw, want := range map[string]string{
		`{"when":"soon"}`: `a string at "/when" does not fit: `, `{"own":"x"}`: "a JSON string is not expected",
		`{"number":"x"}`: `a string at "/number" does not fit`, `{"number":[]}`: `an array at "/number" does not fit`, `[]`: "an array does not fit", `{"number":`: "unexpected EOF",
	} {
		err := protocol.Unmarshal([]byte(raw), new(secretType))
		if err == nil {
			t.Fatalf("%s: got no error", raw)
		}
		if got := Explain(err); !strings.Contains(got, want) || strings.Contains(got, "secretType") || strings.Contains(got, "json:") {
			t.Errorf("%s: got %q, want %q in it", raw, got, want)
		}
	}
	err := protocol.Unmarshal([]byte(`{"`+strings.Repeat("x", 100_000)+`":"x"}`), new(map[string]int))
	if got := Explain(err); !strings.Contains(got, "a string at") || len(got) > 2*LongestName {
		t.Errorf("got %d bytes, %.100s, want a short explanation", len(got), got)
	}
}
