package crd

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const (
	casesVariable = "ACCESSPOLICY_CASES"

	upstreamModule  = "sigs.k8s.io/kube-agentic-networking"
	upstreamRelease = "v0.1.0"
	upstreamSum     = "h1:qA1gk5POHdJOhKW/ITQ+NlBiW1xdrCpq5kumBfxhXzA="
	upstreamCommit  = "c7e4194"
	upstreamFile    = "k8s/crds/agentic.networking.x-k8s.io_xaccesspolicies.yaml"
)

// releaseCRD returns upstream's CRD as it was released. The module is only read:
// as a requirement it would pull in a Gateway API that this project cannot use.
func releaseCRD(t *testing.T) crdDocument {
	t.Helper()

	// Outside any module, so that no go.mod or go.sum is touched.
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", upstreamModule+"@"+upstreamRelease)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")

	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}

	var module struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}

	if module.Sum != upstreamSum {
		t.Fatalf("%s@%s has checksum %s, want %s", upstreamModule, upstreamRelease, module.Sum, upstreamSum)
	}

	return readCRD(t, filepath.Join(module.Dir, upstreamFile))
}

// casesFolder returns the folder of cases, or skips the test and says why.
func casesFolder(t *testing.T) string {
	t.Helper()

	folder := os.Getenv(casesVariable)
	if folder == "" {
		t.Skipf("%s is not set: it has to name a folder with xaccesspolicy/upstream-crd-%s.yaml, "+
			"which no released module has", casesVariable, upstreamCommit)
	}

	return filepath.Join(folder, "xaccesspolicy")
}

// commitCRD returns upstream's CRD at the commit that the Go types mirror, or
// skips the test and says why.
func commitCRD(t *testing.T) crdDocument {
	t.Helper()

	return readCRD(t, filepath.Join(casesFolder(t), "upstream-crd-"+upstreamCommit+".yaml"))
}
