package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// Results are all that a run has found, and all that the page is made of.
type Results struct {
	Taken    time.Time         `json:"taken"`
	Took     string            `json:"took"`
	Commit   string            `json:"commit"`
	Command  string            `json:"command"`
	Quick    bool              `json:"quick,omitempty"`
	Earlier  string            `json:"earlier,omitempty"` // which run the rows are of that this one did not measure
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"` // of modules
	Failures []Failure         `json:"failures"`
	Series   []Series          `json:"series"`
}

// A Machine is what a run ran on.
type Machine struct {
	Go         string `json:"go"`
	System     string `json:"system"`
	Kernel     string `json:"kernel"`
	Processor  string `json:"processor"`
	Processors int    `json:"processors"`
}

// A Failure is a measurement without figures.
type Failure struct {
	Row        string `json:"row"`
	Contestant string `json:"contestant"`
	Why        string `json:"why"`
	Absent     bool   `json:"absent,omitempty"` // it was not installed, so nothing is wrong
}

// A Series is one figure of a contestant, round by round.
type Series struct {
	Row        string    `json:"row"`
	Contestant string    `json:"contestant"`
	Point      string    `json:"point,omitempty"`
	Metric     string    `json:"metric"`
	Rounds     []float64 `json:"rounds"`
}

func (r *Results) add(row, contestant string, samples []sample) {
	for _, s := range samples {
		at := slices.IndexFunc(r.Series, func(have Series) bool {
			return have.Row == row && have.Contestant == contestant && have.Point == s.Point && have.Metric == s.Metric
		})
		if at < 0 {
			at = len(r.Series)
			r.Series = append(r.Series, Series{row, contestant, s.Point, s.Metric, nil})
		}
		r.Series[at].Rounds = append(r.Series[at].Rounds, s.Value)
	}
}

// rounds are the values of one figure; nil when there are none.
func (r *Results) rounds(row, contestant, point, metric string) []float64 {
	for _, s := range r.Series {
		if s.Row == row && s.Contestant == contestant && s.Point == point && s.Metric == metric {
			return s.Rounds
		}
	}
	return nil
}

func (r *Results) failure(row, contestant string) (why string, failed bool) {
	for _, f := range r.Failures {
		if f.Row == row && f.Contestant == contestant {
			if f.Absent {
				return f.Why, true
			}
			return "it failed: " + f.Why, true
		}
	}
	return "", false
}

// middle is the median; of an even number, the mean of the two in the middle.
func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// A figure is what is known of a contestant, round by round: nil when nothing is.
type figure func(r *Results, contestant string) []float64

func found(row, point, metric string) figure {
	return func(r *Results, contestant string) []float64 { return r.rounds(row, contestant, point, metric) }
}

// of returns a figure that is always the one of the given contestant.
func (f figure) of(contestant string) figure {
	return func(r *Results, _ string) []float64 { return f(r, contestant) }
}

// over divides round by round, so that both come from the same time.
func (f figure) over(by figure) figure {
	return func(r *Results, contestant string) []float64 {
		values, divisors := f(r, contestant), by(r, contestant)
		var quotients []float64
		for i := range min(len(values), len(divisors)) {
			if divisors[i] != 0 {
				quotients = append(quotients, values[i]/divisors[i])
			}
		}
		return quotients
	}
}

// minus is how much more it is, round by round.
func (f figure) minus(by figure) figure {
	return func(r *Results, contestant string) []float64 {
		values, least := f(r, contestant), by(r, contestant)
		var more []float64
		for i := range min(len(values), len(least)) {
			more = append(more, values[i]-least[i])
		}
		return more
	}
}

// per is the figure of each of so many.
func (f figure) per(many float64) figure {
	return func(r *Results, contestant string) []float64 {
		var parts []float64
		for _, v := range f(r, contestant) {
			parts = append(parts, v/many)
		}
		return parts
	}
}

// toFloor is the figure as a multiple of the floor's.
func (f figure) toFloor() figure { return f.over(f.of(theFloor)) }

// load reads what save has written.
func load(path string) (*Results, error) {
	encoded, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(Results)
	if err := json.Unmarshal(encoded, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// save writes a series a line.
func (r *Results) save(path string) error {
	head := *r
	head.Series = nil
	encoded, err := json.MarshalIndent(&head, "", "  ")
	if err != nil {
		return err
	}
	var page bytes.Buffer
	page.Write(bytes.TrimSuffix(encoded, []byte("null\n}")))
	page.WriteString("[")
	for i, s := range r.Series {
		line, err := json.Marshal(s)
		if err != nil {
			return err
		}
		if i > 0 {
			page.WriteString(",")
		}
		page.WriteString("\n    ")
		page.Write(line)
	}
	page.WriteString("\n  ]\n}\n")
	return os.WriteFile(path, page.Bytes(), 0o644)
}

// fail takes what a contestant has shown in a row back: some of its rounds would
// stand beside other rounds of the floor.
func (r *Results) fail(row, contestant string, err error) {
	r.Series = slices.DeleteFunc(r.Series, func(s Series) bool { return s.Row == row && s.Contestant == contestant })
	r.Failures = append(r.Failures, Failure{Row: row, Contestant: contestant, Why: err.Error()})
}
