package crd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	oursFile    = "../../config/crd/bases/agentic.networking.x-k8s.io_xaccesspolicies.yaml"
	apiVersion  = "v1alpha1"
	listMark    = "[]"
	keyType     = "type"
	keyRule     = "x-kubernetes-validations"
	keyListType = "x-kubernetes-list-type"
	keyRequired = "required"
)

// facet is one keyword of one node of an OpenAPI schema. A list of required
// properties is one facet for each, and so are CEL rules, each with its message
// as the detail.
type facet struct {
	path    string // spec.rules[].name
	keyword string // maxLength
	detail  string // the property that is required, or the message of a rule
	value   string // JSON
}

// id is what a manifest declares and a report prints.
func (f facet) id() string {
	id := f.path + " " + f.keyword
	if f.detail != "" {
		id += " " + f.detail
	}

	return id
}

// limit reads the value of a facet that is a number.
func (f facet) limit(t *testing.T) int {
	t.Helper()

	n, err := strconv.Atoi(f.value)
	if err != nil {
		t.Fatalf("%s: %v", f.id(), err)
	}

	return n
}

// crdDocument is the part of a CRD that the comparison looks at.
type crdDocument map[string]any

func readCRD(t *testing.T, file string) crdDocument {
	t.Helper()

	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	var doc crdDocument
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatalf("%s: %v", file, err)
	}

	return doc
}

// version returns one entry of spec.versions.
func (d crdDocument) version(t *testing.T, name string) map[string]any {
	t.Helper()

	spec, _ := d["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)

	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["name"] == name {
			return v
		}
	}

	t.Fatalf("the CRD has no version %s", name)

	return nil
}

// schema returns the facets of the schema of v1alpha1, sorted.
func (d crdDocument) schema(t *testing.T) []facet {
	t.Helper()

	schema, _ := d.version(t, apiVersion)["schema"].(map[string]any)
	root, ok := schema["openAPIV3Schema"].(map[string]any)

	if !ok {
		t.Fatal("the CRD has no schema")
	}

	facets := flatten("", root)
	slices.SortFunc(facets, func(a, b facet) int { return cmp.Compare(a.id(), b.id()) })

	return facets
}

// flatten lists the facets of a node and of everything below it. Descriptions
// are left out: they are written anew on purpose.
func flatten(path string, node map[string]any) []facet {
	var facets []facet

	for keyword, value := range node {
		switch keyword {
		case "description":
		case "properties":
			for name, child := range asMap(value) {
				facets = append(facets, flatten(join(path, name), asMap(child))...)
			}
		case "items":
			facets = append(facets, flatten(path+listMark, asMap(value))...)
		case keyRequired:
			for _, name := range asList(value) {
				facets = append(facets, facet{path: path, keyword: keyword, detail: fmt.Sprint(name), value: "true"})
			}
		case keyRule:
			for _, rule := range asList(value) {
				message := fmt.Sprint(asMap(rule)["message"])
				facets = append(facets, facet{path: path, keyword: keyword, detail: message, value: asJSON(rule)})
			}
		default:
			facets = append(facets, facet{path: path, keyword: keyword, value: asJSON(value)})
		}
	}

	return facets
}

func join(path, name string) string {
	if path == "" {
		return name
	}

	return path + "." + name
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)

	return m
}

func asList(v any) []any {
	l, _ := v.([]any)

	return l
}

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // what came out of a YAML document goes into JSON
	}

	return string(data)
}

// markers are the facets that can make the API server refuse an object. An
// unknown keyword fails the test, so that a new kind of marker cannot go
// unnoticed.
func markers(t *testing.T, facets []facet) []facet {
	t.Helper()

	var out []facet

	for _, f := range facets {
		switch f.keyword {
		case "pattern", "enum", "minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum",
			keyRequired, keyRule, keyType:
			out = append(out, f)
		case keyListType:
			if f.value != `"atomic"` {
				out = append(out, f)
			}
		case "format":
			// The API server does not check int32 and int64 beyond what minimum
			// and maximum say.
			if !strings.HasPrefix(f.value, `"int`) {
				out = append(out, f)
			}
		case "default", "x-kubernetes-list-map-keys":
			// A default changes no verdict; map keys belong to the list type.
		default:
			t.Errorf("keyword %s at %q: say here whether it can refuse an object", f.keyword, f.path)
		}
	}

	return slices.DeleteFunc(out, func(f facet) bool {
		// The API server itself reads these three before any schema.
		return f.path == "" || f.path == "apiVersion" || f.path == "kind" || f.path == "metadata"
	})
}
