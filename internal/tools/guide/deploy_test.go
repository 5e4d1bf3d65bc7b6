//go:build linux

package guide

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A deployment is what a file of deploy says of one gateway.
type deployment struct {
	args    []string          // of bowline
	env     map[string]string // variables
	folders []string          // which the gateway may write
	shared  bool              // they belong to root and to the group of the gateway, as volumes of Kubernetes do
	mounts  map[string]string // files of the administrator, and what is in them
	secrets []string          // folders whose files are links, as Kubernetes mounts secrets
	before  string            // what a shell does first; "": nothing
	probes  []string          // paths at the address of probes, or at the admin door
	asks    []string          // arguments of bowline for the gateway that runs: whether it works, or to read its file again; nil: none
	grace   int               // seconds that it has to end
}

// TestDeploymentsRun starts the gateway of each file of deploy with the arguments, variables and folders that stand there: with the command that the
// container recipe builds, in a root that has nothing else, as a user without rights. It must be served with a token and over TLS only, be ready where the
// probes look, end in time with status 0, and have its sessions and a whole audit trail afterwards.
func TestDeploymentsRun(t *testing.T) {
	recipe := readRecipe(t)
	binary := recipe.build(t)
	for name, d := range map[string]deployment{"bowline.service": readUnit(t), "kubernetes.yaml": readManifest(t, "kubernetes.yaml", 1), "Dockerfile": recipe.deployment(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d.run(t, binary)
		})
	}
}

// readUnit reads the unit of systemd. What of it only systemd can do is checked by TestSystemdTakesTheUnit.
func readUnit(t *testing.T) deployment {
	t.Helper()
	keys := make(map[string]string)
	for line := range strings.Lines(read(t, "deploy", "bowline.service")) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(key, "#") {
			keys[key] = value
		}
	}
	command := strings.Fields(keys["ExecStart"])
	if command[0] != "/usr/local/bin/bowline" || keys["ProtectSystem"] != "strict" || keys["NoNewPrivileges"] != "yes" || keys["KillMode"] != "mixed" {
		t.Errorf("the unit has %q", keys)
	}
	reload := strings.Fields(keys["ExecReload"]) // not kill, which not every machine has, and which does not tell whether the file was good
	if reload[0] != command[0] {
		t.Errorf("the unit reloads by %q", reload)
	}
	d := deployment{args: command[1:], env: make(map[string]string), asks: reload[1:], probes: []string{"/livez", "/readyz"}, grace: seconds(t, keys["TimeoutStopSec"])}
	d.folders = []string{"/var/lib/" + keys["StateDirectory"], "/run/" + keys["RuntimeDirectory"]}
	for _, variable := range strings.Fields(keys["Environment"]) {
		name, value, _ := strings.Cut(variable, "=")
		d.env[name] = value
	}
	d.mounts = map[string]string{"/etc/bowline/mcp.json": read(t, "deploy", "mcp.json")}
	return d
}

// TestSystemdTakesTheUnit asks systemd, where it is installed, whether it knows each line of the unit, and how much it exposes.
func TestSystemdTakesTheUnit(t *testing.T) {
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("there is no systemd: the unit is only read")
		return
	}
	unit := filepath.Join(t.TempDir(), "bowline.service")
	there := strings.ReplaceAll(read(t, "deploy", "bowline.service"), "/usr/local/bin/bowline", "/bin/true")
	if err := os.WriteFile(unit, []byte(there), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify", "--man=no", unit}, {"security", "--offline=true", "--no-pager", "--threshold=20", unit}} {
		said, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(said) > 0 {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, said)
		}
	}
}

// A recipe is the file from which images are built, by stage.
type recipe struct {
	order  []string
	stages map[string][]string // lines by the name of their stage
}

func readRecipe(t *testing.T) recipe {
	t.Helper()
	r := recipe{stages: make(map[string][]string)}
	stage := ""
	for line := range strings.Lines(read(t, "deploy", "Dockerfile")) {
		line = strings.TrimSpace(line)
		if _, as, found := strings.Cut(line, " AS "); found && strings.HasPrefix(line, "FROM ") {
			stage = as
			r.order = append(r.order, as)
		} else if line != "" && line[0] != '#' {
			r.stages[stage] = append(r.stages[stage], line)
		}
	}
	if want := []string{"build", "bowline", "bowline-node-uv"}; !slices.Equal(r.order, want) {
		t.Fatalf("the stages are %q, want %q", r.order, want)
	}
	return r
}

// line returns what follows an instruction in a stage.
func (r recipe) line(t *testing.T, stage, instruction string) string {
	t.Helper()
	for _, line := range r.stages[stage] {
		if rest, found := strings.CutPrefix(line, instruction+" "); found {
			return rest
		}
	}
	t.Fatalf("stage %s has no %s", stage, instruction)
	return ""
}

// build runs the command with which the recipe builds.
func (r recipe) build(t *testing.T) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "bowline")
	command := r.line(t, "build", "RUN")
	if !strings.Contains(command, " -o /out/bowline ") {
		t.Fatalf("the recipe builds with %s", command)
	}
	shell := exec.CommandContext(t.Context(), "sh", "-ec", strings.Replace(command, "/out/bowline", binary, 1))
	shell.Dir = root
	if said, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return binary
}

var quoted = regexp.MustCompile(`"([^"]*)"`)

// words returns the words of an instruction in JSON.
func words(line string) (all []string) {
	for _, found := range quoted.FindAllStringSubmatch(line, -1) {
		all = append(all, found[1])
	}
	return all
}

// deployment reads the image with the command alone; the other one must run the same.
func (r recipe) deployment(t *testing.T) deployment {
	t.Helper()
	const image, other = "bowline", "bowline-node-uv"
	for _, same := range []string{"CMD", "HEALTHCHECK", "USER", "VOLUME", "EXPOSE"} {
		if a, b := r.line(t, image, same), r.line(t, other, same); a != b {
			t.Errorf("%s differs: %s and %s", same, a, b)
		}
	}
	if user := r.line(t, image, "USER"); user != "65532:65532" {
		t.Errorf("the user is %s", user)
	}
	entry := words(r.line(t, image, "ENTRYPOINT"))
	if got := words(r.line(t, other, "ENTRYPOINT")); !slices.Equal(got, append([]string{"/usr/bin/tini", "--"}, entry...)) {
		t.Errorf("the entry point with Node is %q", got)
	}
	health := words(r.line(t, image, "HEALTHCHECK"))
	if !slices.Equal(entry, health[:1]) || entry[0] != "/usr/local/bin/bowline" {
		t.Errorf("%q starts, and %q is asked", entry, health)
	}
	made := strings.Join(r.stages["build"], "\n")
	for _, line := range slices.Concat(r.stages[image], r.stages[other]) {
		if rest, found := strings.CutPrefix(line, "COPY --from=build "); found {
			if files := strings.Fields(rest); !strings.Contains(made, files[len(files)-2]) {
				t.Errorf("stage build does not make what %s takes", line)
			}
		}
	}
	d := deployment{args: words(r.line(t, image, "CMD")), env: make(map[string]string), folders: []string{r.line(t, image, "VOLUME")}, asks: health[1:], probes: []string{"/livez"}, grace: 10}
	for _, variable := range strings.Fields(r.line(t, image, "ENV")) {
		name, value, _ := strings.Cut(variable, "=")
		d.env[name] = value
	}
	d.mounts = map[string]string{"/etc/bowline/mcp.json": read(t, "deploy", "mcp.json")}
	return d
}

func seconds(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var (
	called = regexp.MustCompile("(?m)(?:^|[ `/])bowline ((?:[a-z]+ )*[a-z]+)((?: [^ `\n]+)*)")
	option = regexp.MustCompile(`(?:^|[\s"])(--[a-z-]+)`)
)

// TestDeploymentsNameFlagsThatExist checks the flags of each command of bowline on the page and in the files of deploy.
func TestDeploymentsNameFlagsThatExist(t *testing.T) {
	reference, checked := read(t, "docs", "command.md"), 0
	for _, path := range []string{"docs/guide/up-operate.md", "docs/guide/up-users.md", "deploy/Dockerfile", "deploy/bowline.service", "deploy/kubernetes.yaml", "deploy/kubernetes-cluster.yaml"} {
		for _, found := range called.FindAllStringSubmatch(read(t, path), -1) {
			section := sectionOf(reference, strings.Fields(found[1]))
			if strings.Contains(section, "has all [flags to choose the server]") {
				_, which, _ := strings.Cut(reference, "\n## Choose the server\n")
				section += which[:strings.Index(which, "\n## ")]
			}
			for _, flag := range option.FindAllStringSubmatch(found[2], -1) {
				checked++
				if !strings.Contains(section, "| `"+flag[1]) {
					t.Errorf("%s: bowline %s has no flag %s", path, found[1], flag[1])
				}
			}
		}
	}
	if checked < 8 {
		t.Errorf("only %d flags were checked", checked)
	}
}

// sectionOf returns what the reference says of a command: of the longest one with which the words begin, since names may follow.
func sectionOf(reference string, words []string) string {
	for ; len(words) > 0; words = words[:len(words)-1] {
		if _, after, found := strings.Cut(reference, "\n## bowline "+strings.Join(words, " ")+"\n"); found {
			section, _, _ := strings.Cut(after, "\n## ")
			return section
		}
	}
	return ""
}
