// Package kubernetes checks the manifests of this repository against the types of Kubernetes, as its API server reads them.
package kubernetes

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	plain "sigs.k8s.io/yaml"
)

const repository = "../../.."

// newDecoder knows the kinds of the groups that a deployment of bowline needs, and refuses what they do not have, as an API server does with strict validation.
func newDecoder(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{core.AddToScheme, apps.AddToScheme, networking.AddToScheme, policy.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
}

// check returns what is wrong with the documents of a file, and how many there are.
func check(decoder runtime.Decoder, text []byte) (documents int, err error) {
	for reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; documents++ {
		document, end := reader.Read()
		if errors.Is(end, io.EOF) {
			return documents, err
		}
		if end != nil {
			return documents, errors.Join(err, end)
		}
		object, kind, wrong := decoder.Decode(document, nil, nil)
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("document %d: %w", documents+1, wrong))
			continue
		}
		var given any
		if wrong := plain.Unmarshal(document, &given); wrong != nil {
			err = errors.Join(err, wrong)
			continue
		}
		for _, path := range missing(reflect.TypeOf(object).Elem(), given, kind.Kind) {
			err = errors.Join(err, fmt.Errorf("document %d: %s is required", documents+1, path))
		}
	}
}

// missing returns the paths of required fields that a value lacks. To a decoder they are empty. The types of Kubernetes have omitempty at an optional field, and
// not at a required one.
func missing(of reflect.Type, given any, path string) (paths []string) {
	switch of.Kind() {
	case reflect.Pointer:
		return missing(of.Elem(), given, path)
	case reflect.Slice:
		list, _ := given.([]any)
		for i, element := range list {
			paths = append(paths, missing(of.Elem(), element, fmt.Sprintf("%s[%d]", path, i))...)
		}
	case reflect.Struct:
		members, isObject := given.(map[string]any)
		if !isObject { // a quantity, a time or the like, which its own decoder has checked
			return nil
		}
		for i := range of.NumField() {
			field := of.Field(i)
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",") // a tag that is empty or ",inline" is that of an embedded type
			value, present := members[name]
			switch {
			case name == "-":
			case name == "":
				paths = append(paths, missing(field.Type, given, path)...)
			case present:
				paths = append(paths, missing(field.Type, value, path+"."+name)...)
			case options == "":
				paths = append(paths, path+"."+name)
			}
		}
	}
	return paths
}

// TestKubernetesTakesTheManifests reads every manifest of the repository as an API server of Kubernetes does.
func TestKubernetesTakesTheManifests(t *testing.T) {
	decoder, all := newDecoder(t), map[string]int{"deploy/kubernetes.yaml": 4, "deploy/kubernetes-cluster.yaml": 5, "docs/guide/nodes/kubernetes.yaml": 3}
	err := fs.WalkDir(os.DirFS(repository), ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == "testdata" || entry.Name() == ".git"):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(file) != ".yaml" && path.Ext(file) != ".yml":
			return nil
		}
		text, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(file)))
		if err != nil || !bytes.HasPrefix(text, []byte("apiVersion:")) && !bytes.Contains(text, []byte("\napiVersion:")) {
			return err
		}
		documents, known := all[file]
		if n, err := check(decoder, text); err != nil || n != documents || !known {
			t.Errorf("%s has %d documents, want %d: %v", file, n, documents, err)
		}
		delete(all, file)
		return nil
	})
	if err != nil || len(all) > 0 {
		t.Errorf("there is no %v: %v", all, err)
	}
}

// TestKubernetesSeesMistakes breaks a manifest in each way that the check is for.
func TestKubernetesSeesMistakes(t *testing.T) {
	decoder := newDecoder(t)
	text, err := os.ReadFile(filepath.Join(repository, "deploy", "kubernetes-cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, mistake := range map[string]struct{ old, new, says string }{
		"a misspelt field":            {"readinessProbe:", "readynessProbe:", `unknown field "spec.template.spec.containers[0].readynessProbe"`},
		"a field in the wrong place":  {"  podManagementPolicy: Parallel\n", "  automountServiceAccountToken: false\n", `unknown field "spec.automountServiceAccountToken"`},
		"a wrong type":                {"replicas: 3", "replicas: three", "replicas of type int32"},
		"a wrong quantity":            {"memory: 2Gi", "memory: 2 gigabytes", "quantities must match"},
		"an unknown kind":             {"kind: PodDisruptionBudget", "kind: PodDisruptionBudgets", `no kind "PodDisruptionBudgets"`},
		"a version that is gone":      {"apiVersion: policy/v1", "apiVersion: policy/v1beta1", `no kind "PodDisruptionBudget" is registered for version "policy/v1beta1"`},
		"a field that is there twice": {"  replicas: 3\n", "  replicas: 3\n  replicas: 3\n", `"replicas" already set`},
		"no selector":                 {"  podSelector: {matchLabels: {app: bowline}}\n  policyTypes", "  policyTypes", "NetworkPolicy.spec.podSelector is required"},
		"a probe without a port":      {"{path: /readyz, port: probes}", "{path: /readyz}", "StatefulSet.spec.template.spec.containers[0].readinessProbe.httpGet.port is required"},
		"a mount without a path":      {"{name: run, mountPath: /run/bowline}", "{name: run}", "StatefulSet.spec.template.spec.containers[0].volumeMounts[2].mountPath is required"},
	} {
		t.Run(name, func(t *testing.T) {
			broken := bytes.Replace(text, []byte(mistake.old), []byte(mistake.new), 1)
			if bytes.Equal(broken, text) {
				t.Fatalf("the manifest has no %q", mistake.old)
			}
			if _, err := check(decoder, broken); err == nil || !strings.Contains(err.Error(), mistake.says) {
				t.Errorf("check said %v, want %q", err, mistake.says)
			}
		})
	}
}
