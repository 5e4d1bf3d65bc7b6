package main

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// A Guarantee is one promise.
type Guarantee struct {
	ID       string // G-0005.2
	Sentence string
	number   int // 2
}

// A Record is one architecture decision record.
type Record struct {
	Number     string // 0005
	File       string // its path from the root
	Title      string
	Status     string
	Guarantees []Guarantee
}

const recordFolder = "docs/adr"

var (
	recordName  = regexp.MustCompile(`^([0-9]{4})-[a-z0-9-]+\.md$`)
	recordTitle = regexp.MustCompile(`^# ([0-9]{4})\. (.+)$`)
	item        = regexp.MustCompile(`^- \*\*G-([0-9]{4})\.([1-9][0-9]*)\*\* (\S.*)$`)
	itemLike    = regexp.MustCompile(`^\s*[-*+]\s+(\*\*|__|` + "`" + `)?G-`)
)

// readRecords reads every record in order of its number, and says what is
// wrong with their form.
func readRecords(fsys fs.FS) ([]Record, []string, error) {
	entries, err := fs.ReadDir(fsys, recordFolder)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the records: %w", err)
	}
	var records []Record
	var problems []string
	for _, entry := range entries {
		name := recordName.FindStringSubmatch(entry.Name())
		if name == nil {
			if entry.Name() != "README.md" {
				problems = append(problems, fmt.Sprintf("%s/%s is not named NNNN-title.md", recordFolder, entry.Name()))
			}
			continue
		}
		text, err := fs.ReadFile(fsys, path.Join(recordFolder, entry.Name()))
		if err != nil {
			return nil, nil, fmt.Errorf("reading the records: %w", err)
		}
		record, wrong := parseRecord(name[1], path.Join(recordFolder, entry.Name()), string(text))
		records = append(records, record)
		problems = append(problems, wrong...)
	}
	return records, append(problems, numbering(records)...), nil
}

// parseRecord reads one record. Code blocks are not searched for guarantees.
func parseRecord(number, file, text string) (Record, []string) {
	record := Record{Number: number, File: file}
	var problems []string
	problem := func(line int, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s:%d: %s", file, line+1, fmt.Sprintf(format, args...)))
	}
	lines := strings.Split(text, "\n")
	for i, fenced := 0, false; i < len(lines); i++ {
		line := lines[i]
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced:
		case i == 0:
			title := recordTitle.FindStringSubmatch(line)
			if title == nil || title[1] != number {
				problem(i, "the first line is not %q", "# "+number+". Title")
				continue
			}
			record.Title = title[2]
		case strings.HasPrefix(line, "Status: "):
			record.Status = strings.TrimPrefix(line, "Status: ")
		case item.MatchString(line):
			guarantee, owner := parseItem(lines[i:])
			if owner != number {
				problem(i, "%s does not belong to record %s", guarantee.ID, number)
			}
			if !strings.HasSuffix(guarantee.Sentence, ".") {
				problem(i, "%s is not a sentence: it does not end with a full stop", guarantee.ID)
			}
			record.Guarantees = append(record.Guarantees, guarantee)
		case itemLike.MatchString(line):
			problem(i, "a guarantee is written %q", "- **G-"+number+".n** Sentence.")
		}
	}
	if record.Status == "" {
		problem(0, "there is no line %q", "Status: accepted")
	}
	return record, problems
}

// parseItem reads the guarantee that starts at the first line and goes on over
// indented lines. owner is the record its number names.
func parseItem(lines []string) (guarantee Guarantee, owner string) {
	parts := item.FindStringSubmatch(lines[0])
	sentence := strings.TrimSpace(parts[3])
	for _, line := range lines[1:] {
		if !strings.HasPrefix(line, "  ") || strings.TrimSpace(line) == "" {
			break
		}
		sentence += " " + strings.TrimSpace(line)
	}
	number, err := strconv.Atoi(parts[2])
	if err != nil {
		number = 0 // more digits than an int has: numbering reports it
	}
	return Guarantee{ID: "G-" + parts[1] + "." + parts[2], Sentence: sentence, number: number}, parts[1]
}

// numbering checks that records are numbered once, and their guarantees once
// each from 1 without a gap, in order.
func numbering(records []Record) []string {
	var problems []string
	for i, record := range records {
		if i > 0 && records[i-1].Number == record.Number {
			problems = append(problems, fmt.Sprintf("%s and %s have one number", records[i-1].File, record.File))
		}
		for j, guarantee := range record.Guarantees {
			if guarantee.number != j+1 {
				problems = append(problems, fmt.Sprintf("%s: %s stands where G-%s.%d belongs", record.File, guarantee.ID, record.Number, j+1))
			}
		}
	}
	return problems
}
