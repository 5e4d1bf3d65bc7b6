package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"go.yaml.in/yaml/v3"
)

const (
	manifests    = "../../../../docs/guide/nodes"
	natsPassword = "s3cret-of-nats" // of servers of tests
)

// A manifest is what the tests need of a file of Kubernetes.
type manifest struct {
	Kind string
	Spec struct {
		Replicas int
		Template struct {
			Spec struct {
				Containers []struct {
					Args           []string
					ReadinessProbe struct {
						Get struct{ Path string } `yaml:"httpGet"`
					} `yaml:"readinessProbe"`
				}
			}
		}
		Ports []struct{ Port int }
	}
}

// The command of the deployment works with a NATS server that has the permissions of the
// documentation, up to what only Kubernetes has: names, addresses, TLS and files.
func TestKubernetesManifest(t *testing.T) {
	documents := documentsOf(t, filepath.Join(manifests, "kubernetes.yaml"))
	deployment := documents["Deployment"].Spec
	if len(documents) != 3 || deployment.Replicas != 3 || len(deployment.Template.Spec.Containers) != 1 || documents["Service"].Spec.Ports[0].Port != 80 {
		t.Fatalf("the file has %+v", documents)
	}
	container := deployment.Template.Spec.Containers[0]
	values := map[string]string{"--nats": permittedServer(t), "--cluster-key": newKey(t), "--nats-creds": "", "--advertise": "127.0.0.1"}
	var urls []string
	for _, pod := range []string{"bowline-7c9f-a", "bowline-7c9f-b"} {
		values["--node"] = pod
		s := startServe(t, here(t, container.Args, values)...)
		metrics := strings.TrimSuffix(s.awaitLine("metrics at "), "/metrics")
		urls = append(urls, s.await().url)
		response, err := http.Get(metrics + container.ReadinessProbe.Get.Path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s is not ready: %s", pod, response.Status)
		}
	}
	goesOn(t, urls[0], urls[1])
}

func documentsOf(t *testing.T, path string) map[string]manifest {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	documents := map[string]manifest{}
	for decoder := yaml.NewDecoder(file); ; {
		var m manifest
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return documents
		}
		if err != nil {
			t.Fatal(err)
		}
		documents[m.Kind] = m
	}
}

// The commands of the Compose file make a cluster, up to names, addresses and files.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(manifests, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Build   struct{ Context, Dockerfile string }
			Command []string
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Services) != 3 {
		t.Fatalf("there are %d services", len(file.Services))
	}
	c := newThree(t)
	values := map[string]string{"--seed": strings.Join(c.seeds, ","), "--cluster-key": newKey(t), "--cluster": c.name, "--advertise": "127.0.0.1"}
	var nodes []*serve
	for _, name := range slices.Sorted(maps.Keys(file.Services)) {
		service := file.Services[name]
		if _, err := os.Stat(filepath.Join(manifests, service.Build.Context, service.Build.Dockerfile)); err != nil {
			t.Error(err)
		}
		if !slices.Contains(service.Command, "--node="+name) || !slices.Contains(service.Command, "--advertise="+name) {
			t.Errorf("service %s is another node: %q", name, service.Command)
		}
		values["--cluster-listen"] = c.seeds[len(nodes)]
		nodes = append(nodes, startServe(t, here(t, service.Command, values)...))
	}
	for _, node := range nodes {
		node.await()
	}
	goesOn(t, nodes[0].url, nodes[2].url)
}

// goesOn fails unless a session that begins at one node goes on at another.
func goesOn(t *testing.T, first, second string) {
	t.Helper()
	_, header, body := ask(t, first, "", initialize)
	session := header.Get("Mcp-Session-Id")
	if session == "" {
		t.Fatalf("there is no session: %s", body)
	}
	for _, message := range []string{initialized, echo} {
		if status, _, body := ask(t, second, session, message); status/100 != 2 {
			t.Errorf("at the other node: %d %s", status, body)
		}
	}
}

// here returns the flags of a command of a manifest, with other values for some of them, and without
// those for which that is "". It listens on free ports of this machine.
func here(t *testing.T, args []string, values map[string]string) (flags []string) {
	t.Helper()
	switch {
	case args[0] == "up": // and a file
		args = args[1:]
	case args[0] != "serve":
		t.Fatalf("the command is %q", args)
	}
	for _, arg := range args[1:] { // startServe adds serve and --http
		flag, value, found := strings.Cut(arg, "=")
		if !found && arg != "--insecure" {
			t.Fatalf("%q is not like --flag=value", arg)
		}
		other, replaced := values[flag]
		switch {
		case flag == "--http" || flag == "--insecure" || replaced && other == "":
			continue
		case replaced:
			value = other
		case strings.HasPrefix(value, "0.0.0.0:"):
			value = "127.0.0.1:0"
		}
		flags = append(flags, flag+"="+value)
	}
	return flags
}

// newKey makes a key as the manifests say.
func newKey(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster.key")
	if said, err := bowline(t, "cluster", "init", "--cluster-key", path).CombinedOutput(); err != nil {
		t.Fatalf("cluster init: %v: %s", err, said)
	}
	return path
}

// permittedServer runs a NATS server with cluster/nats/permissions.conf, and returns its URL.
func permittedServer(t *testing.T) string {
	t.Helper()
	url, _ := stoppableServer(t)
	return url
}

// stoppableServer also returns what ends the server before the test does.
func stoppableServer(t *testing.T) (url string, stop func()) {
	t.Helper()
	t.Setenv("BOWLINE_NATS_PASSWORD", natsPassword)
	cmd := bowline(t, t.TempDir())
	cmd.Env = append(cmd.Env, role+"=nats")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the NATS server: %v", err)
		}
	})
	t.Cleanup(stop)
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the NATS server does not start: %v", err)
	}
	return "nats://bowline@" + strings.TrimSpace(address), stop
}

// runNATSServer runs a NATS server until its standard input ends. It has a process of its own: one
// that shuts down while it makes a stream leaves goroutines behind.
func runNATSServer(folder string) error {
	options, err := natsserver.ProcessConfigFile("../../../../cluster/nats/permissions.conf")
	if err != nil {
		return err
	}
	options.Host, options.Port, options.JetStream, options.StoreDir, options.NoSigs = "127.0.0.1", natsserver.RANDOM_PORT, true, folder, true
	server, err := natsserver.NewServer(options)
	if err != nil {
		return err
	}
	server.Start()
	if !server.ReadyForConnections(hangGuard) {
		return errors.New("it does not start")
	}
	fmt.Println(server.Addr())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	server.Shutdown()
	server.WaitForShutdown()
	return nil
}
