package translator_test

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/envoygateway"
	"accesspolicy-operator/translator/kuadrant"
	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

var update = flag.Bool("update", false, "rewrite the generated files of the golden cases")

// goldenCase is a folder of testdata, as a reader sees it.
type goldenCase struct {
	dir string
	*requests.Case
}

// goldenFolders lists the cases.
func goldenFolders(t testing.TB) []string {
	t.Helper()
	var dirs []string
	require.NoError(t, filepath.WalkDir("testdata", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "in.yaml" {
			dirs = append(dirs, filepath.Dir(path))
		}
		return err
	}))
	require.NotEmpty(t, dirs, "no golden case below testdata")
	return dirs
}

func loadCase(t testing.TB, dir string) goldenCase {
	t.Helper()
	c, err := requests.LoadCase(os.DirFS(dir))
	require.NoError(t, err)
	return goldenCase{dir: dir, Case: c}
}

// TestGolden translates every case, compares what comes out with the files beside it, and runs its requests against the
// plan and against what the Kuadrant emission expresses. The judge runs them in the real Authorino (test/differential).
func TestGolden(t *testing.T) {
	for _, dir := range goldenFolders(t) {
		t.Run(strings.TrimPrefix(dir, "testdata/"), func(t *testing.T) {
			c := loadCase(t, dir)
			require.FileExists(t, filepath.Join(dir, "README.md"), "a case without words is no documentation")
			result, err := translator.Translate(c.Set.Input(), c.Options)
			require.NoError(t, err)
			c.golden(t, "plan.txt", plans(result))
			c.golden(t, "kuadrant.yaml", objects(t, result))
			onEnvoyGateway := c.onEnvoyGateway(t)
			c.golden(t, "envoygateway.yaml", securityPolicies(t, onEnvoyGateway))
			c.golden(t, "status.yaml", status(t, result, onEnvoyGateway))
			for _, against := range []requests.Against{requests.AgainstPlan, requests.AgainstKuadrant, requests.AgainstEnvoyGateway} {
				of := result
				if against == requests.AgainstEnvoyGateway {
					of = onEnvoyGateway
				}
				outcomes, err := requests.Run(c.File, of, c.Options, against)
				require.NoError(t, err)
				for _, o := range outcomes {
					if o.Failure != "" {
						t.Errorf("%s (%s): %s", o.Request.Name, against, o.Failure)
					}
				}
			}
		})
	}
}

func (c goldenCase) golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join(c.dir, name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "make golden writes it")
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (make golden rewrites it):\n%s", path, diff)
	}
}

// onEnvoyGateway translates the case for Envoy Gateway, with an issuer whose key is a test's.
func (c goldenCase) onEnvoyGateway(t testing.TB) *translator.Result {
	t.Helper()
	opts := c.Options
	opts.Enforcers = translator.Enforcers{EnvoyGateway: true}
	opts.EnvoyGateway.Issuer, opts.EnvoyGateway.JWKS = "https://kubernetes.default.svc.cluster.local", testKeys
	result, err := translator.Translate(c.Set.Input(), opts)
	require.NoError(t, err)
	return result
}

// testKeys is the public half of a key that signs nothing.
const testKeys = `{"keys":[{"kty":"EC","use":"sig","kid":"test","alg":"ES256","crv":"P-256","x":"Ew50oZ3ULaLSjo8g4KDjLwjwpZH2sW6G4OXSC8NXKxM","y":"vbd42KlbXF1UY93fgVS6g5i0dl0s-Ifrsa0cUnyf2N4"}]}`

func securityPolicies(t *testing.T, r *translator.Result) []byte {
	var docs [][]byte
	for _, gw := range r.Gateways {
		all, err := gw.EnvoyGateway.Manifests()
		require.NoError(t, err)
		for _, u := range all {
			text, err := yaml.Marshal(u.Object)
			require.NoError(t, err)
			docs = append(docs, text)
		}
	}
	return bytes.Join(docs, []byte("---\n"))
}

func plans(r *translator.Result) []byte {
	var b bytes.Buffer
	for _, gw := range r.Gateways {
		for i := range gw.Plans {
			b.WriteString(gw.Plans[i].String())
		}
	}
	return b.Bytes()
}

func objects(t *testing.T, r *translator.Result) []byte {
	var docs [][]byte
	for _, gw := range r.Gateways {
		for _, ap := range gw.Kuadrant.Objects {
			u, err := kuadrant.Unstructured(ap)
			require.NoError(t, err)
			text, err := yaml.Marshal(u.Object)
			require.NoError(t, err)
			docs = append(docs, text)
		}
	}
	return bytes.Join(docs, []byte("---\n"))
}

// statusView is the part of status and findings that a user gets to read.
type statusView struct {
	Policies []policyStatus `json:"policies,omitempty"`
	Findings []string       `json:"findings,omitempty"`
	// EnvoyGateway has what is found where that is the enforcer instead of Kuadrant.
	EnvoyGateway []string `json:"envoyGateway,omitempty"`
}

type policyStatus struct {
	Policy     string   `json:"policy"`
	Ancestor   string   `json:"ancestor"`
	Conditions []string `json:"conditions"`
}

func status(t *testing.T, r, envoyGateway *translator.Result) []byte {
	var view statusView
	for _, v := range r.Verdicts {
		s := policyStatus{Policy: v.Policy.String(), Ancestor: "Gateway " + v.Gateway.String()}
		if v.Section != "" {
			s.Ancestor += " listener " + v.Section
		}
		for _, c := range v.Conditions() {
			s.Conditions = append(s.Conditions, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
		view.Policies = append(view.Policies, s)
	}
	for _, f := range r.Findings {
		view.Findings = append(view.Findings, finding(f))
	}
	for _, f := range envoyGateway.Findings {
		if f.Enforcer == envoygateway.Enforcer && f.Reason != envoygateway.ReasonHeadersNotStripped { // that one would stand in every case
			view.EnvoyGateway = append(view.EnvoyGateway, finding(f))
		}
	}
	text, err := yaml.Marshal(view)
	require.NoError(t, err)
	return text
}

func finding(f plan.Finding) string {
	where := f.Origin.String()
	if f.Origin.Policy.Name == "" {
		where = "Gateway " + f.Gateway.String()
	}
	if f.Origin.Field != "" {
		where += " " + f.Origin.Field
	}
	return fmt.Sprintf("%s %s: %s: %s", f.Severity, f.Reason, where, f.Message)
}
