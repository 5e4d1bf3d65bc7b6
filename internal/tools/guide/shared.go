package guide

import (
	"fmt"
	"go/constant"
	"go/parser"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sharedMark begins a line of a comment above the code that makes a pool. It has the columns of the table: what the
// pool is of, how much of it there is, one piece, what happens when none is left, and what counts that. The second is
// "N bytes", "N places" or "N places of M" bytes, where N and M are constants or options.
const sharedMark = "// shared: "

const sharedIntro = `
## What clients share

Nobody can take all of these ([ADR-0083](adr/0083-shares.md)). One client alone has half of a pool, or 38 % where what it holds lasts; an
anonymous client of IPv6 20 % or 17 %. It always gets one piece in its turn. MaxMemory sets all
sizes in bytes of a server and its handler together, each of which can be set alone as well.

| What | Limit | Default | One piece | When none is left | Counted as |
| --- | --- | --- | --- | --- | --- |
`

// shared writes the table of what clients share. It returns the problems of the comments that it is made from, and a pool
// without such a comment is one.
func shared(root string) (table string, problems []string, err error) {
	var out strings.Builder
	out.WriteString(sharedIntro)
	sums := make(map[string]int64)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "share" || name == "guide"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "share.New") && !strings.Contains(string(text), sharedMark) {
			return err
		}
		p, err := parsePackage(filepath.Dir(path))
		if err != nil {
			return err
		}
		where, _ := filepath.Rel(root, path)
		dir, marked := filepath.ToSlash(filepath.Dir(where)), false
		for i, line := range strings.Split(string(text), "\n") {
			line = strings.TrimSpace(line)
			if row, found := strings.CutPrefix(line, sharedMark); found {
				marked = true
				text, bytes, err := p.sharedRow(dir, row)
				if err != nil {
					problems = append(problems, fmt.Sprintf("%s:%d: %v", where, i+1, err))
				}
				out.WriteString(text)
				sums[dir] += bytes
			} else if strings.Contains(line, "share.New") && !marked {
				problems = append(problems, fmt.Sprintf("%s:%d: a pool without a comment %q", where, i+1, sharedMark))
			} else if !strings.HasPrefix(line, "//") && !strings.Contains(line, "share.New") {
				marked = marked && line != "}" // until the end of the function
			}
		}
		return nil
	})
	all, sse := sums["features/server"]+sums["transport/streamable"], sums["transport/sse"]
	fmt.Fprintf(&out, "| **A server with a `streamable.Handler`, together** | `features/server.Options.MaxMemory` | **%s** | | | |\n", bytesText(all))
	fmt.Fprintf(&out, "| A `sse.Handler` besides | | %s | | | |\n", bytesText(sse))
	if most := constantOf(root, "features/server", "Options.MaxMemory"); all > most || all < most*3/4 {
		problems = append(problems, fmt.Sprintf("the pools of a server have %d bytes, want at most the default of MaxMemory, %d, and not much less", all, most))
	}
	return out.String(), problems, err
}

// sharedRow returns a row of the table, and how many bytes the pool may have.
func (p *source) sharedRow(dir, row string) (text string, bytes int64, err error) {
	columns := strings.Split(row, " | ")
	if len(columns) != 5 {
		return "", 0, fmt.Errorf("%q has %d columns, want 5", row, len(columns))
	}
	words := strings.Fields(columns[1])
	values := make(map[int]int64)
	for i := 0; i < len(words); i += 3 {
		expression, err := parser.ParseExpr(words[i])
		if err != nil {
			return "", 0, err
		}
		value := p.eval(expression)
		if value == nil {
			return "", 0, fmt.Errorf("%q is no constant and no option with a default", words[i])
		}
		values[i], _ = constant.Int64Val(constant.ToInt(value))
	}
	limit, preset := words[0], grouped(values[0])
	if strings.Contains(limit, ".") {
		limit = fmt.Sprintf("`%s.%s`", dir, limit)
	} else {
		limit = ""
	}
	switch {
	case len(words) == 2 && words[1] == "bytes":
		bytes = values[0]
		preset = bytesText(bytes)
	case len(words) == 4 && words[1] == "places" && words[2] == "of":
		bytes = values[0] * values[3]
		preset += " × " + bytesText(values[3])
	case len(words) != 2 || words[1] != "places":
		return "", 0, fmt.Errorf("%q is neither bytes nor places", columns[1])
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", columns[0], limit, preset, columns[2], columns[3], columns[4]), bytes, nil
}

// constantOf returns the default of an option.
func constantOf(root, dir, option string) int64 {
	p, err := parsePackage(filepath.Join(root, filepath.FromSlash(dir)))
	if err != nil || p.presets[option] == nil {
		return 0
	}
	n, _ := constant.Int64Val(p.presets[option])
	return n
}

func bytesText(n int64) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", (n+1<<19)>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
