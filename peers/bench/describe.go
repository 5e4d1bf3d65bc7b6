package bench

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// describe says what is about to run, and on what.
func describe(command string, quick bool) *Results {
	return &Results{
		Taken:    time.Now().UTC().Truncate(time.Second),
		Commit:   commit(),
		Command:  strings.TrimSpace(command),
		Quick:    quick,
		Machine:  thisMachine(),
		Versions: contestantVersions(),
		Failures: []Failure{},
	}
}

// commit is the one that is checked out here.
func commit() string {
	name, err := output("git", "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "unknown: " + err.Error()
	}
	changed, err := output("git", "status", "--porcelain", "--untracked-files=no", "--", ":/*.go", ":/**/*.go", ":/**/go.mod")
	if err != nil || changed != "" {
		name += ", and changes that are not committed"
	}
	return name
}

// output is what a program prints, in one line.
func output(program string, args ...string) (string, error) {
	out, err := exec.Command(program, args...).Output()
	return strings.TrimSpace(string(out)), err
}

// contestantVersions are those of the build itself.
func contestantVersions() map[string]string {
	versions := make(map[string]string)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versions
	}
	for _, module := range info.Deps {
		switch module.Path {
		case "github.com/modelcontextprotocol/go-sdk":
			versions["go-sdk"] = module.Version
		case "github.com/mark3labs/mcp-go":
			versions["mcp-go"] = module.Version
		}
	}
	return versions
}

func thisMachine() Machine {
	m := Machine{Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, Processors: runtime.NumCPU()}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(kernel))
	}
	if cpus, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(cpus)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.Processor = strings.TrimSpace(value)
				break
			}
		}
	}
	return m
}
