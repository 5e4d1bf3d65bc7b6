package bench

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Each processor has a process that runs whenever nothing else wants to, until the measurement is over.
func TestProcessorsAreKeptAwake(t *testing.T) {
	before := children()
	sleep, err := keepAwake()
	defer sleep()
	if err != nil {
		t.Fatal(err)
	}
	var at []string
	for _, pid := range children() {
		if !slices.Contains(before, pid) {
			at = append(at, idleThreads(t, pid)...)
		}
	}
	slices.Sort(at)
	if len(slices.Compact(at)) != runtime.NumCPU() {
		t.Errorf("threads with the lowest priority run at the processors %q, want each of %d", at, runtime.NumCPU())
	}
	if sleep(); len(children()) != len(before) {
		t.Errorf("%d processes are left, and %d were there before", len(children()), len(before))
	}
}

// idleThreads returns where those threads of a process may run that run only while nothing else wants to.
func idleThreads(t *testing.T, pid int) (processors []string) {
	t.Helper()
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(filepath.Base(thread))
		if err != nil {
			t.Fatal(err)
		}
		attr, err := unix.SchedGetAttr(id, 0)
		if err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile(thread + "/status")
		if err != nil {
			t.Fatal(err)
		}
		if _, list, found := strings.Cut(string(status), "Cpus_allowed_list:"); found && attr.Policy == unix.SCHED_IDLE {
			processors = append(processors, strings.Fields(list)[0])
		}
	}
	return processors
}
