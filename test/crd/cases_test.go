package crd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// tripsHeader begins the comment in which an invalid manifest says what it
// trips: the id of a marker, or unknownField and a path.
const (
	tripsHeader  = "# trips: "
	unknownField = "unknown field "

	controllerNamePath = "status.ancestors[].controllerName"
)

// manifest is one object to show to an API server.
type manifest struct {
	name   string
	object map[string]any

	// trips is empty for a manifest that has to be accepted.
	trips string
}

// readManifests reads a folder of testdata, one object per file.
func readManifests(t *testing.T, folder string) []manifest {
	t.Helper()

	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests in %s (%v)", folder, err)
	}

	manifests := make([]manifest, 0, len(files))

	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		m := manifest{name: strings.TrimSuffix(filepath.ToSlash(file), ".yaml"), trips: declared(data)}
		if err := yaml.Unmarshal(data, &m.object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}

		manifests = append(manifests, m)
	}

	return manifests
}

// declared returns what the header of a manifest says that it trips.
func declared(data []byte) string {
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if trips, ok := strings.CutPrefix(lines.Text(), tripsHeader); ok {
			return trips
		}
	}

	return ""
}

// generator makes manifests that go to both sides of one marker, by changing one
// value in a manifest that has every field.
type generator struct {
	t     *testing.T
	bases []map[string]any
	enums map[string][]any // by path
	lists map[string]bool  // list types set and map, by path
}

func newGenerator(t *testing.T, all []facet, bases ...map[string]any) *generator {
	t.Helper()

	g := &generator{t: t, bases: bases, enums: map[string][]any{}, lists: map[string]bool{}}

	for _, f := range all {
		switch f.keyword {
		case "enum":
			var values []any
			if err := json.Unmarshal([]byte(f.value), &values); err != nil {
				t.Fatal(err)
			}

			g.enums[f.path] = values
		case keyListType:
			g.lists[f.path] = f.value != `"atomic"`
		}
	}

	return g
}

// generate returns the manifests for one marker. A CEL rule yields none: what
// breaks it cannot be derived, so it needs a file in testdata/invalid.
func (g *generator) generate(f facet) []manifest {
	switch f.keyword {
	case "minLength":
		sides := g.sides(f, f.limit(g.t), -1, func(n int) any { return text(f.path, n) })
		if f.path == controllerNamePath {
			// Its pattern asks for more than its minimum length does.
			sides = sides[1:]
		}

		return sides
	case "maxLength":
		return g.sides(f, f.limit(g.t), 1, func(n int) any { return text(f.path, n) })
	case "minItems":
		return g.sides(f, f.limit(g.t), -1, func(n int) any { return g.list(f.path, n) })
	case "maxItems":
		return g.sides(f, f.limit(g.t), 1, func(n int) any { return g.list(f.path, n) })
	case "minimum":
		return g.sides(f, f.limit(g.t), -1, func(n int) any { return int64(n) })
	case "maximum":
		return g.sides(f, f.limit(g.t), 1, func(n int) any { return int64(n) })
	case "pattern":
		return []manifest{g.broken(f, func(any) any { return "a b" })}
	case "format":
		return []manifest{g.broken(f, func(any) any { return "yesterday" })}
	case "enum":
		return g.enum(f)
	case keyRequired:
		return []manifest{g.broken(f, func(v any) any {
			delete(asMap(v), f.detail)

			return v
		})}
	case keyType:
		return []manifest{g.broken(f, func(any) any { return wrongType(f.value) })}
	case keyListType:
		return []manifest{g.broken(f, func(v any) any {
			return append(asList(v), clone(asList(v)[0]))
		})}
	}

	return nil
}

// sides returns the manifest at a limit and the one a step beyond it.
func (g *generator) sides(f facet, limit, step int, value func(int) any) []manifest {
	at := g.changed(f, "at the limit", func(any) any { return value(limit) })
	beyond := g.broken(f, func(any) any { return value(limit + step) })

	return []manifest{at, beyond}
}

// enum returns a manifest for each value and one with a value that does not
// exist.
func (g *generator) enum(f facet) []manifest {
	manifests := []manifest{g.broken(f, func(any) any { return "Bogus" })}

	for _, value := range g.enums[f.path] {
		if g.onlyInFiles(f.path, value) {
			continue
		}

		manifests = append(manifests, g.changed(f, fmt.Sprint(value), func(any) any { return value }))
	}

	return manifests
}

// onlyInFiles is true for the values that need other fields to change with
// them. testdata/valid has each of them, which TestEveryEnumValue checks.
func (g *generator) onlyInFiles(path string, value any) bool {
	switch path {
	case "spec.externalAuth.protocol", "spec.rules[].authorization.type":
		return true
	case "spec.rules[].authorization.mcp.methods[].name":
		return !slices.Contains([]any{
			"prompts/get", "tools/call", "resources/subscribe", "resources/unsubscribe", "resources/read",
		}, value)
	}

	return false
}

func (g *generator) broken(f facet, change func(any) any) manifest {
	m := g.changed(f, "broken", change)
	m.trips = f.id()

	return m
}

// changed takes the first base that has the path and changes the value there.
func (g *generator) changed(f facet, what string, change func(any) any) manifest {
	g.t.Helper()

	for _, base := range g.bases {
		object, ok := edit(clone(base), steps(f.path), change)
		if ok {
			return manifest{name: "generated/" + f.id() + ": " + what, object: asMap(object)}
		}
	}

	g.t.Errorf("no manifest in testdata/valid has %s, so nothing can be generated for it", f.path)

	return manifest{name: "generated/" + f.id() + ": " + what, object: clone(g.bases[0])}
}

// list returns n items that differ where the schema wants them to differ.
func (g *generator) list(path string, n int) any {
	var first any

	for _, base := range g.bases {
		_, ok := edit(clone(base), steps(path), func(v any) any {
			first = asList(v)[0]

			return v
		})
		if ok {
			break
		}
	}

	items := make([]any, 0, n)
	for i := range n {
		items = append(items, g.distinct(path+listMark, clone(first), i))
	}

	return items
}

// distinct makes the i-th copy of a list item different from the others.
func (g *generator) distinct(path string, item any, i int) any {
	switch item := item.(type) {
	case string:
		// The list of all HTTP methods is as long as its limit: one more can
		// only be a repetition.
		if values := g.enums[path]; len(values) > 0 {
			return values[i%len(values)]
		}

		return fmt.Sprintf("%s%d", item, i)
	case float64:
		return int64(i + 1)
	case map[string]any:
		switch path {
		case "spec.rules[]":
			item["name"] = fmt.Sprintf("rule-%d", i)
		case "spec.rules[].authorization.mcp.methods[]":
			item["name"] = g.enums[path+".name"][i]
			delete(item, "params")
		case "status.ancestors[].conditions[]":
			item["type"] = fmt.Sprintf("Type%d", i)
		}
	}

	return item
}

// text returns n characters that satisfy the pattern at the path.
func text(path string, n int) string {
	if path == controllerNamePath && n > 1 {
		return "a/" + strings.Repeat("a", n-2)
	}

	return strings.Repeat("a", n)
}

func wrongType(schemaType string) any {
	if schemaType == `"string"` {
		return int64(1)
	}

	return "text"
}

// steps splits spec.rules[].name into spec, rules, [], name.
func steps(path string) []string {
	return strings.FieldsFunc(strings.ReplaceAll(path, listMark, "."+listMark), func(r rune) bool { return r == '.' })
}

// edit changes the value at a path, taking the first item of each list, and says
// whether there was one.
func edit(v any, path []string, change func(any) any) (any, bool) {
	if len(path) == 0 {
		return change(v), true
	}

	if path[0] == listMark {
		items := asList(v)
		if len(items) == 0 {
			return v, false
		}

		item, ok := edit(items[0], path[1:], change)
		items[0] = item

		return items, ok
	}

	object := asMap(v)

	child, ok := object[path[0]]
	if !ok {
		return v, false
	}

	object[path[0]], ok = edit(child, path[1:], change)

	return object, ok
}

// clone copies a value that came from JSON or YAML.
func clone[T any](v T) T {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // it came from JSON or YAML
	}

	var out T
	if err := json.Unmarshal(data, &out); err != nil {
		panic(err)
	}

	return out
}
