package bench

import (
	"context"
	_ "embed" // rows.txt
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A row is one kind of work, done by several contestants in turn.
type row struct {
	name        string // of the command's flag, and in the results
	title       string
	about       string // for the page
	contestants []string
	lacks       []lack
	rounds      int                                       // at most, where figures hardly differ or a round takes long; 0: as many as asked for
	awake       bool                                      // it is measured while no processor sleeps
	measure     func(context.Context, *measurement) error // nil: it is another table of an earlier row
	columns     []column
	targets     []target
}

// A lack is why a contestant is not in a row.
type lack struct{ contestant, why string }

// A column is a figure of every contestant in a row.
type column struct {
	title string
	value figure
	unit  unit
	ratio bool // beside the value stands its ratio to the floor's
}

// A target is what is wanted of a figure.
type target struct {
	what       string
	contestant string
	value      figure
	unit       unit
	atMost     bool // else at least
	bound      float64
	before     float64 // the value when the target was set; 0 if it is not known
	obstacle   string  // what stands in the way, if it is not met
}

// met reports whether a figure is as wanted.
func (t target) met(value float64) bool {
	if t.atMost {
		return value <= t.bound
	}
	return value >= t.bound
}

//go:embed rows.txt
var rowsText string

// rows are all, in the order of the page.
func rows() []row {
	all, err := readRows(rowsText)
	if err != nil {
		panic(err) // a test reads them
	}
	return all
}

func rowNamed(name string) (row, error) {
	for _, r := range rows() {
		if r.name == name {
			return r, nil
		}
	}
	return row{}, fmt.Errorf("there is no row %q", name)
}

// readRows reads what rows.txt explains.
func readRows(text string) ([]row, error) {
	text = strings.NewReplacer("\n    ", " ", "{modern}", modern, "{legacy}", legacy).Replace(text)
	var all []row
	reasons := make(map[string]string)
	for line := range strings.Lines(text) {
		keyword, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch keyword {
		case "", "#":
		case "reason":
			name, why, _ := strings.Cut(rest, ": ")
			reasons[name] = why
		case "row":
			if measures()[rest] == nil {
				return nil, fmt.Errorf("nothing measures the row %q", rest)
			}
			all = append(all, row{name: rest, measure: measures()[rest]})
		case "again":
			if !slices.ContainsFunc(all, func(w row) bool { return w.name == rest }) {
				return nil, fmt.Errorf("there is no row %q before its other table", rest)
			}
			all = append(all, row{name: rest})
		default:
			if err := all[len(all)-1].read(keyword, rest, reasons); err != nil {
				return nil, fmt.Errorf("%s: %w", line, err)
			}
		}
	}
	return all, nil
}

// read reads one line of a row.
func (w *row) read(keyword, rest string, reasons map[string]string) (err error) {
	switch keyword {
	case "title":
		w.title = rest
	case "about":
		w.about = rest
	case "by":
		w.contestants = strings.Split(rest, "; ")
		for _, name := range w.contestants {
			if _, err := contestantNamed(name); err != nil {
				return err
			}
		}
	case "lacks":
		contestant, why, _ := strings.Cut(rest, ": ")
		w.lacks = append(w.lacks, lack{contestant, why})
	case "awake":
		w.awake = true
	case "rounds":
		w.rounds, err = strconv.Atoi(rest)
	case "column":
		err = w.readColumn(strings.Split(rest, " | "))
	case "target":
		err = w.readTarget(strings.Split(rest, " | "))
	case "because":
		if name, named := strings.CutPrefix(rest, "of "); named {
			rest = reasons[name]
		}
		w.targets[len(w.targets)-1].obstacle = rest
	default:
		err = fmt.Errorf("%q is no keyword", keyword)
	}
	return err
}

// units are those of columns and targets.
func units() map[string]unit {
	return map[string]unit{"times": times, "count": count, "perSecond": perSecond, "size": size, "seconds": seconds, "percent": percent, "patience": patience}
}

func (w *row) readColumn(fields []string) error {
	if len(fields) != 3 {
		return fmt.Errorf("%d fields", len(fields))
	}
	name, ratio := strings.CutSuffix(fields[1], " and its ratio")
	if units()[name] == nil {
		return fmt.Errorf("there is no unit %q", name)
	}
	w.columns = append(w.columns, column{fields[0], readFigure(w.name, fields[2]), units()[name], ratio})
	return nil
}

func (w *row) readTarget(fields []string) error {
	if len(fields) < 4 {
		return fmt.Errorf("%d fields", len(fields))
	}
	t := target{what: fields[0], contestant: fields[1]}
	if _, err := contestantNamed(t.contestant); err != nil {
		return err
	}
	var side, unit string
	if _, err := fmt.Sscanf(fields[2], "at %s %g %s", &side, &t.bound, &unit); err != nil {
		return err
	}
	if t.atMost, t.unit = side == "most", units()[unit]; t.unit == nil {
		return fmt.Errorf("there is no unit %q", unit)
	}
	if len(fields) > 4 {
		if _, err := fmt.Sscanf(fields[4], "before %g", &t.before); err != nil {
			return err
		}
	}
	t.value = readFigure(w.name, fields[3])
	w.targets = append(w.targets, t)
	return nil
}

var operator = regexp.MustCompile(` ([/-]) `)

// readFigure reads the figure of a row from left to right.
func readFigure(row, text string) figure {
	operands, operators := operator.Split(text, -1), operator.FindAllStringSubmatch(text, -1)
	value := readOperand(row, operands[0])
	for i, operand := range operands[1:] {
		by := readOperand(row, operand)
		if other, same := strings.CutPrefix(operand, "@"); same {
			by = value.of(other)
		}
		many, err := strconv.ParseFloat(operand, 64)
		switch {
		case operators[i][1] == "-":
			value = value.minus(by)
		case err == nil:
			value = value.per(many)
		default:
			value = value.over(by)
		}
	}
	return value
}

func readOperand(row, text string) figure {
	text, contestant, of := strings.Cut(text, " @")
	point, metric, varied := strings.Cut(text, ": ")
	if !varied {
		point, metric = "", text
	}
	value := found(row, point, metric)
	if of {
		value = value.of(contestant)
	}
	return value
}
