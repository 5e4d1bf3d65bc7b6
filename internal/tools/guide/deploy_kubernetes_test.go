//go:build linux

package guide

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A manifest is what the test needs of a file of Kubernetes.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Replicas int
		Ports    []struct {
			Target string `yaml:"targetPort"`
		}
		Ingress []struct {
			Ports []struct{ Port string }
		}
		Claims   []manifest `yaml:"volumeClaimTemplates"`
		Template struct{ Spec pod }
	}
}

type pod struct {
	Grace    int `yaml:"terminationGracePeriodSeconds"`
	Security struct {
		User    int    `yaml:"runAsUser"`
		NonRoot bool   `yaml:"runAsNonRoot"`
		Group   string `yaml:"fsGroupChangePolicy"`
	} `yaml:"securityContext"`
	Before     []container `yaml:"initContainers"`
	Containers []container
	Volumes    []volume
}

type volume struct {
	Name   string
	Config struct{ Name string } `yaml:"configMap"`
	Secret struct {
		Name string `yaml:"secretName"`
	}
	Empty *struct{} `yaml:"emptyDir"`
}

type container struct {
	Name          string
	Command, Args []string
	Env           []struct{ Name, Value string }
	Ports         []struct{ Name string }
	Ready         probe `yaml:"readinessProbe"`
	Live          probe `yaml:"livenessProbe"`
	Security      struct {
		ReadOnly bool  `yaml:"readOnlyRootFilesystem"`
		Escalate *bool `yaml:"allowPrivilegeEscalation"`
	} `yaml:"securityContext"`
	Mounts []struct {
		Name string
		Path string `yaml:"mountPath"`
		Sub  string `yaml:"subPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	Get struct{ Path, Port string } `yaml:"httpGet"`
}

// TestManifestOfACluster reads the gateways of a cluster as it does the one alone, which it must be like but for what a cluster needs. The command of the manifest is run by the
// tests of the full command.
func TestManifestOfACluster(t *testing.T) {
	d, alone := readManifest(t, "kubernetes-cluster.yaml", 3), readManifest(t, "kubernetes.yaml", 1)
	section := sectionOf(read(t, "docs", "command.md"), []string{"up"})
	for _, arg := range d.args[2:] {
		if flag, _, _ := strings.Cut(arg, "="); !strings.Contains(section, "| `"+flag) {
			t.Errorf("bowline up has no flag %s", flag)
		}
	}
	for _, arg := range slices.Concat(alone.args, []string{"--cluster=prod", "--cluster-key=/run/secrets/cluster/cluster.key", "--hop=0.0.0.0:7777", "--node=$(POD_NAME)"}) {
		if !slices.Contains(d.args, arg) {
			t.Errorf("the nodes lack %s", arg)
		}
	}
	if !slices.Equal(d.probes, alone.probes) || d.grace < alone.grace || d.before != alone.before || !slices.Contains(d.secrets, "/run/secrets/cluster") {
		t.Errorf("the nodes are %+v", d)
	}
}

// readManifest reads what a gateway in Kubernetes is, and checks that everything that is named in the file is there.
func readManifest(t *testing.T, file string, replicas int) deployment {
	t.Helper()
	text := read(t, "deploy", file)
	all := manifests(t, text)
	spec := all["StatefulSet"].Spec
	pod := spec.Template.Spec
	c := pod.Containers[0]
	if spec.Replicas != replicas || len(pod.Containers) != 1 || pod.Security.User != 65532 || !pod.Security.NonRoot || pod.Security.Group != "OnRootMismatch" {
		t.Errorf("the pods are %+v", spec)
	}
	checkPorts(t, all, c)
	d := deployment{args: c.Args, env: map[string]string{"HOME": "/var/lib/bowline", "XDG_CONFIG_HOME": "/var/lib/bowline"}, // which the image sets
		shared: true, mounts: make(map[string]string), probes: []string{c.Ready.Get.Path, c.Live.Get.Path}, grace: pod.Grace}
	for _, variable := range c.Env {
		d.env[variable.Name] = variable.Value
	}
	for _, c := range append(pod.Before, c) {
		if !c.Security.ReadOnly || c.Security.Escalate == nil || *c.Security.Escalate {
			t.Errorf("container %s may write its root, or get rights", c.Name)
		}
		for _, mount := range c.Mounts {
			d.mount(t, text, all, pod, mount.Name, mount.Path, mount.Sub)
		}
	}
	if before := pod.Before[0].Command; len(before) == 3 && before[0] == "sh" {
		d.before = before[2]
	}
	return d
}

func manifests(t *testing.T, text string) map[string]manifest {
	t.Helper()
	all := make(map[string]manifest)
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var m manifest
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all[m.Kind] = m
	}
	if len(all) < 4 || len(all["StatefulSet"].Spec.Template.Spec.Containers) == 0 || len(all["StatefulSet"].Spec.Template.Spec.Before) == 0 {
		t.Fatalf("the file has %+v", all)
	}
	return all
}

// checkPorts checks that probes, service and policy name ports of the container.
func checkPorts(t *testing.T, all map[string]manifest, c container) {
	t.Helper()
	named := []string{c.Ready.Get.Port, c.Live.Get.Port}
	for _, port := range all["Service"].Spec.Ports {
		named = append(named, port.Target)
	}
	for _, rule := range all["NetworkPolicy"].Spec.Ingress {
		for _, port := range rule.Ports {
			named = append(named, port.Port)
		}
	}
	for _, name := range named {
		if !slices.ContainsFunc(c.Ports, func(p struct{ Name string }) bool { return p.Name == name }) {
			t.Errorf("the container has no port %q", name)
		}
	}
}

// mount says what is at a path of the container. A secret must be one that the first lines of the file make.
func (d *deployment) mount(t *testing.T, text string, all map[string]manifest, pod pod, name, path, sub string) {
	t.Helper()
	if slices.ContainsFunc(all["StatefulSet"].Spec.Claims, func(claim manifest) bool { return claim.Metadata.Name == name }) {
		d.folder(path)
		return
	}
	at := slices.IndexFunc(pod.Volumes, func(v volume) bool { return v.Name == name })
	if at < 0 {
		t.Errorf("there is no volume %s", name)
		return
	}
	v := pod.Volumes[at]
	config := all["ConfigMap"]
	switch {
	case v.Empty != nil:
		d.folder(path)
	case v.Secret.Name != "":
		if d.secrets = append(d.secrets, path); !strings.Contains(text, " "+v.Secret.Name+" --") {
			t.Errorf("nothing makes the secret %s", v.Secret.Name)
		}
	case v.Config.Name == config.Metadata.Name && config.Data[sub] != "":
		d.mounts[path] = config.Data[sub]
	default:
		t.Errorf("volume %s has nothing for %s", name, path)
	}
}

func (d *deployment) folder(path string) {
	if !slices.Contains(d.folders, path) {
		d.folders = append(d.folders, path)
	}
}
