package crd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	validFolder   = "testdata/valid"
	invalidFolder = "testdata/invalid"
)

// manifests returns the files in testdata and what is generated for each marker.
func manifests(t *testing.T) []manifest {
	t.Helper()

	valid := readManifests(t, validFolder)
	all := slices.Concat(valid, readManifests(t, invalidFolder))

	var bases []map[string]any

	for _, name := range []string{"every-field", "external-auth-http"} {
		i := slices.IndexFunc(valid, func(m manifest) bool { return m.name == validFolder+"/"+name })
		bases = append(bases, valid[i].object)
	}

	facets := readCRD(t, oursFile).schema(t)
	g := newGenerator(t, facets, bases...)

	for _, f := range markers(t, facets) {
		all = append(all, g.generate(f)...)
	}

	return all
}

// TestEveryMarkerIsTripped needs no API server: it counts what the manifests
// declare. That a manifest trips what it declares is for TestVerdicts.
func TestEveryMarkerIsTripped(t *testing.T) {
	tripped := map[string]bool{}
	for _, m := range manifests(t) {
		tripped[m.trips] = true
	}

	all := markers(t, readCRD(t, oursFile).schema(t))
	known := map[string]bool{"": true}

	for _, f := range all {
		known[f.id()] = true

		if !tripped[f.id()] {
			t.Errorf("no manifest trips %q; add one to %s with the line %q", f.id(), invalidFolder, tripsHeader+f.id())
		}
	}

	for id := range tripped {
		if !known[id] && !strings.HasPrefix(id, unknownField) {
			t.Errorf("a manifest says that it trips %q, and there is no such marker", id)
		}
	}

	t.Logf("%d markers", len(all))
}

// TestEveryEnumValue checks that each value of each enum is in some manifest
// that has to be accepted.
func TestEveryEnumValue(t *testing.T) {
	used := map[string]bool{}

	for _, m := range manifests(t) {
		if m.trips == "" {
			collect("", m.object, used)
		}
	}

	facets := readCRD(t, oursFile).schema(t)
	for path, values := range newGenerator(t, facets).enums {
		for _, value := range values {
			if !used[path+"="+value.(string)] {
				t.Errorf("no accepted manifest has %s at %s", value, path)
			}
		}
	}
}

// collect notes every string in a value as path=string.
func collect(path string, v any, used map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for name, child := range v {
			collect(join(path, name), child, used)
		}
	case []any:
		for _, child := range v {
			collect(path+listMark, child, used)
		}
	case string:
		used[path+"="+v] = true
	}
}

func TestVerdicts(t *testing.T) {
	all := manifests(t)
	old := withoutMatchers(all)

	var ours, oursOld, oursCases map[string]verdict

	cases, hasCases := crdCases(t)

	// One API server at a time: two would need twice the memory and no less time
	// on a small machine.
	t.Run("ours", func(t *testing.T) {
		s := startServer(t, readCRD(t, oursFile))
		ours, oursOld, oursCases = s.askAll(t, all), s.askAll(t, old), s.askAll(t, cases)

		for _, m := range all {
			t.Run(m.name, func(t *testing.T) { checkDeclared(t, m, ours[m.name]) })
		}

		t.Run("printer columns", func(t *testing.T) { checkColumns(t, s) })
	})

	if t.Failed() || ours == nil {
		return // a comparison with upstream would repeat the same failures
	}

	t.Run(upstreamRelease, func(t *testing.T) {
		s := startServer(t, releaseCRD(t))
		compareVerdicts(t, oursOld, s.askAll(t, old))
	})

	t.Run(upstreamCommit, func(t *testing.T) {
		s := startServer(t, commitCRD(t))
		compareVerdicts(t, ours, s.askAll(t, all))

		if !hasCases {
			t.Fatalf("%s has no crd-*.yaml", casesFolder(t))
		}

		checkCases(t, oursCases, s.askAll(t, cases))
	})
}

func (s *server) askAll(t *testing.T, manifests []manifest) map[string]verdict {
	t.Helper()

	verdicts := make(map[string]verdict, len(manifests))
	for _, m := range manifests {
		verdicts[m.name] = s.ask(t.Context(), t, m.object)
	}

	return verdicts
}

// checkDeclared holds a verdict against what the manifest says of itself.
func checkDeclared(t *testing.T, m manifest, v verdict) {
	t.Helper()

	switch {
	case m.trips == "" && !v.accepted():
		t.Errorf("has to be accepted, was refused:\n%v", v)
	case strings.HasPrefix(m.trips, unknownField) && v.other != m.trips:
		t.Errorf("has to be refused for %q, got:\n%v", m.trips, v)
	case m.trips == "" || strings.HasPrefix(m.trips, unknownField):
	case !slices.ContainsFunc(v.causes, func(c cause) bool { return c.isFor(m.trips) }):
		t.Errorf("has to be refused for %q, got:\n%v", m.trips, v)
	}
}

func compareVerdicts(t *testing.T, ours, theirs map[string]verdict) {
	t.Helper()

	for name, v := range theirs {
		if ours[name].key() != v.key() {
			t.Errorf("%s\nours: %v\nupstream: %v", name, ours[name], v)
		}
	}

	t.Logf("%d manifests compared", len(theirs))
}

// withoutMatchers returns the manifests as v0.1.0 can read them: without the
// HTTP matchers, and only those whose rules have a source with a type. What is
// taken away is what sinceRelease lists.
func withoutMatchers(all []manifest) []manifest {
	var old []manifest

	for _, m := range all {
		m.object = clone(m.object)
		readable := true

		for _, r := range asList(asMap(m.object["spec"])["rules"]) {
			rule := asMap(r)
			if rule == nil {
				continue
			}

			for _, matcher := range []string{"methods", "paths", "headers", "hosts", "ports"} {
				delete(asMap(rule["authorization"]), matcher)
			}

			source, isObject := rule["source"].(map[string]any)
			_, hasType := source["type"]
			readable = readable && (isObject && hasType)
		}

		if readable {
			old = append(old, m)
		}
	}

	return old
}

// crdCases returns the objects in crd-*.yaml of the folder of cases.
func crdCases(t *testing.T) ([]manifest, bool) {
	t.Helper()

	folder := os.Getenv(casesVariable)
	if folder == "" {
		return nil, false
	}

	files, err := filepath.Glob(filepath.Join(folder, "xaccesspolicy", "crd-*.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	var cases []manifest

	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		m := manifest{name: filepath.Base(file)}
		if err := yaml.UnmarshalStrict(data, &m.object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}

		cases = append(cases, m)
	}

	return cases, len(cases) > 0
}

// checkCases compares the verdicts on the cases, whose names say what upstream's
// own tests expect.
func checkCases(t *testing.T, ours, theirs map[string]verdict) {
	t.Helper()
	compareVerdicts(t, ours, theirs)

	for name, v := range theirs {
		if expected := strings.HasPrefix(name, "crd-valid"); v.accepted() != expected {
			t.Errorf("%s: the name says accepted=%v, upstream says %v", name, expected, v)
		}
	}
}
