package crd

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// difference is one place where our CRD and upstream's are meant to differ.
type difference struct {
	// where is the beginning of an id: that of a facet, or of a line that
	// describe returns.
	where  string
	reason string
}

// always are the differences from every upstream CRD.
var always = []difference{
	{
		"annotation agentic.networking.x-k8s.io/bundle-version",
		"names a release of upstream's bundle, which ours is not",
	},
	{
		"annotation controller-gen.kubebuilder.io/version",
		"our generator leaves its mark",
	},
	{
		"version v0alpha0",
		"the operator does not implement v0alpha0; a cluster that needs it keeps upstream's CRD, for installing ours is optional",
	},
	{
		"printer column ",
		"kubectl get shows the first target, the action, Accepted and Programmed; columns change nothing that is stored",
	},
}

// sinceRelease are the differences from v0.1.0 that c7e4194 does not have.
var sinceRelease = []difference{
	{"spec.rules[].authorization.methods", "HTTP matchers came after v0.1.0 (upstream pull request 309)"},
	{"spec.rules[].authorization.paths", "HTTP matchers came after v0.1.0 (upstream pull request 309)"},
	{"spec.rules[].authorization.headers", "HTTP matchers came after v0.1.0 (upstream pull request 309)"},
	{"spec.rules[].authorization.hosts", "HTTP matchers came after v0.1.0 (upstream pull request 309)"},
	{"spec.rules[].authorization.ports", "HTTP matchers came after v0.1.0 (upstream pull request 309)"},
	{"spec.rules[] required source", "source is optional since upstream pull request 309"},
	{"spec.rules[].source required type", "source.type is optional since upstream pull request 309"},
}

func TestSchemaDiffersOnlyAsListed(t *testing.T) {
	ours := readCRD(t, oursFile)

	t.Run(upstreamRelease, func(t *testing.T) {
		checkDifferences(t, ours, releaseCRD(t), slices.Concat(always, sinceRelease))
	})
	t.Run(upstreamCommit, func(t *testing.T) {
		checkDifferences(t, ours, commitCRD(t), always)
	})
}

func checkDifferences(t *testing.T, ours, theirs crdDocument, listed []difference) {
	t.Helper()

	found := compare(describe(t, ours), describe(t, theirs))
	used := make([]bool, len(listed))

	for _, id := range slices.Sorted(maps.Keys(found)) {
		i := slices.IndexFunc(listed, func(d difference) bool { return strings.HasPrefix(id, d.where) })
		if i < 0 {
			t.Errorf("not a listed difference: %s\n%s", id, found[id])

			continue
		}

		used[i] = true
	}

	for i, d := range listed {
		if !used[i] {
			t.Errorf("listed, but no longer a difference: %s (%s)", d.where, d.reason)
		}
	}
}

// describe returns everything about a CRD that is compared, by id.
func describe(t *testing.T, crd crdDocument) map[string]string {
	t.Helper()

	lines := map[string]string{}
	for _, f := range crd.schema(t) {
		lines[f.id()] = f.value
	}

	spec := asMap(crd["spec"])
	for key, value := range spec {
		if key != "versions" {
			lines["spec of the CRD, "+key] = asJSON(value)
		}
	}

	for key, value := range asMap(asMap(crd["metadata"])["annotations"]) {
		lines["annotation "+key] = asJSON(value)
	}

	for _, v := range asList(spec["versions"]) {
		version := asMap(v)
		name := fmt.Sprint(version["name"])
		lines["version "+name] = fmt.Sprintf("served %v, stored %v, subresources %s",
			version["served"], version["storage"], asJSON(version["subresources"]))
	}

	for _, c := range asList(crd.version(t, apiVersion)["additionalPrinterColumns"]) {
		lines["printer column "+fmt.Sprint(asMap(c)["name"])] = asJSON(c)
	}

	return lines
}

// compare returns what differs, by id.
func compare(ours, theirs map[string]string) map[string]string {
	found := map[string]string{}

	for id, value := range ours {
		if theirs[id] != value {
			found[id] = fmt.Sprintf("  ours:     %s\n  upstream: %s", value, theirs[id])
		}
	}

	for id, value := range theirs {
		if _, ok := ours[id]; !ok {
			found[id] = fmt.Sprintf("  ours:     absent\n  upstream: %s", value)
		}
	}

	return found
}
