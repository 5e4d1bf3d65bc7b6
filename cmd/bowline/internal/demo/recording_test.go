package demo

import (
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "run the demo, and draw its recording in docs again")

const (
	recordedFile = "testdata/recorded.txt"
	pictureFile  = "../../../../docs/guide/pictures/demo.svg"
)

// Of the terminal in the picture, and how long its last rows stay, in seconds.
const (
	rows      = 24
	columns   = 112
	rowHeight = 18 // pixels
	cellWidth = 78 // tenths of pixels, at 13 pixels of height
	hold      = 8.0
	slower    = 3 // than the run, so that people can read
)

// The recording in README is drawn from the output of a real run, which -update makes.
func TestRecording(t *testing.T) {
	if *update {
		out := run(t, Options{Callers: 20, Seed: 1})
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		out = strings.ReplaceAll(out, self, "bowline") // which the demo of the command starts
		if err := os.MkdirAll(filepath.Dir(recordedFile), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(recordedFile, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	recorded, err := os.ReadFile(recordedFile)
	if err != nil {
		t.Fatal(err)
	}
	picture := draw("$ bowline demo --duration 5s\n" + string(recorded))
	if *update {
		if err := os.WriteFile(pictureFile, []byte(picture), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shown, err := os.ReadFile(pictureFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(shown) != picture {
		t.Errorf("%s is not drawn from %s: go test -run TestRecording . -update draws both", pictureFile, recordedFile)
	}
	for _, want := range []string{"SIGKILL to process", "ready → backoff", "serves in its place", "callers were told: link lost (unknown)", ", 0 left"} {
		if !strings.Contains(picture, want) {
			t.Errorf("the recording does not show %q", want)
		}
	}
	if err := xml.Unmarshal([]byte(picture), new(struct{})); err != nil {
		t.Errorf("the picture is no XML: %v", err)
	}
}

var (
	stamp    = regexp.MustCompile(`^ *(\d+\.\d+)s `)
	coloured = []struct {
		in     *regexp.Regexp
		colour string
	}{
		{regexp.MustCompile(`^\$ `), "#ffffff"},
		{regexp.MustCompile(`SIG(KILL|STOP)|one more call has it|→ backoff`), "#ff8f8f"},
		{regexp.MustCompile(`→ ready|SIGCONT|serves in its place|, 0 left`), "#8fe08f"},
		{regexp.MustCompile(`were told:|dropped, counted`), "#f0d070"},
	}
)

// draw makes a terminal which the lines of a run fill from below, each when it was printed. Without animation it shows the last ones.
func draw(output string) string {
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	times, now := make([]float64, len(lines)), 0.0
	for i, line := range lines {
		if at := stamp.FindStringSubmatch(line); at != nil {
			now, _ = strconv.ParseFloat(at[1], 64)
		}
		times[i] = slower * now
	}
	whole := slower*now + hold
	up := func(shown int) string { return fmt.Sprintf("transform: translateY(%dpx)", (rows-shown)*rowHeight) }
	var svg strings.Builder
	width, height := columns*cellWidth/10, (rows+1)*rowHeight
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">
<title>bowline demo: servers are killed, hang and end, and each call says how it ended</title>
<style>
text { font: 13px monospace; fill: #c8c8d0; white-space: pre }
g { %s; animation: run %.1fs step-end infinite }
@media (prefers-reduced-motion: reduce) { g { animation: none } }
@keyframes run {
`, width, height, up(len(lines)), whole)
	for i := range lines {
		if i+1 == len(lines) || times[i+1] > times[i] {
			fmt.Fprintf(&svg, "%.2f%% { %s }\n", 100*times[i]/whole, up(i+1))
		}
	}
	fmt.Fprintf(&svg, "100%% { %s }\n}\n</style>\n<rect width=\"%d\" height=\"%d\" rx=\"6\" fill=\"#1b1b1f\"/>\n<svg width=\"%[2]d\" height=\"%[4]d\"><g>\n", up(len(lines)), width, height, rows*rowHeight+6)
	for i, line := range lines {
		if utf8.RuneCountInString(line) > columns-2 {
			line = string([]rune(line)[:columns-3]) + "…"
		}
		var escaped strings.Builder
		_ = xml.EscapeText(&escaped, []byte(line)) // a Builder takes everything
		fmt.Fprintf(&svg, `<text x="8" y="%d"%s>%s</text>`+"\n", (i+1)*rowHeight, colour(line), escaped.String())
	}
	svg.WriteString("</g></svg>\n</svg>\n")
	return svg.String()
}

func colour(line string) string {
	for _, c := range coloured {
		if c.in.MatchString(line) {
			return ` style="fill: ` + c.colour + `"`
		}
	}
	return ""
}
