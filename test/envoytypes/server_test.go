package envoytypes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	envoygateway "github.com/envoyproxy/gateway"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	mirror "accesspolicy-operator/api/envoygateway/v1alpha1"
)

const assetsVariable = "KUBEBUILDER_ASSETS"

// TestServerTakesGoldenPolicies has a real API server with Envoy Gateway's CRD, its rules in CEL among them, say what it thinks
// of every golden SecurityPolicy under strict validation, and of some that it must not take.
func TestServerTakesGoldenPolicies(t *testing.T) {
	server := startServer(t)
	policies := 0
	require.NoError(t, filepath.WalkDir(goldenFiles, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "envoygateway.yaml" {
			return err
		}
		for _, document := range securityPolicies(t, path) {
			policies++
			assert.NoError(t, server.create(t, document), path)
		}
		return nil
	}))
	require.NotZero(t, policies)

	const policy = `{"apiVersion":"gateway.envoyproxy.io/v1alpha1","kind":"SecurityPolicy","metadata":{"name":"a","namespace":"b"},"spec":{
		"targetRefs":[{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"g"}],%s}}`
	for spec, says := range map[string]string{
		`"authorization":{"rules":[{"action":"Allow","cel":"true","celNope":""}]}`:                                                     "unknown field",
		`"authorization":{"rules":[{"action":"Allow"}]}`:                                                                               "at least one of principal or cel must be specified",
		`"authorization":{"rules":[{"action":"Allow","principal":{"jwt":{"provider":"a","claims":[{"name":"sub","values":["b"]}]}}}]}`: "jwt must be defined",
		`"mergeType":"StrategicMerge"`: "mergeType can only be used with xRoute targets",
	} {
		err := server.create(t, fmt.Appendf(nil, policy, spec))
		assert.True(t, apierrors.IsInvalid(err) || apierrors.IsBadRequest(err), "%s: %v", spec, err)
		assert.ErrorContains(t, err, says, spec)
	}
}

type server struct{ client dynamic.Interface }

// startServer starts an API server that has the CRD of SecurityPolicy, and stops it when the test ends.
func startServer(t *testing.T) server {
	t.Helper()
	if os.Getenv(assetsVariable) == "" {
		t.Fatalf("%s is not set, so there is no API server to ask; run `make test`, which builds one and sets it", assetsVariable)
	}
	env := &envtest.Environment{CRDs: []*apiextensionsv1.CustomResourceDefinition{securityPolicyCRD(t)}}
	// Without these two the API server looks for a default route, and there is none in a network namespace that has only loopback.
	env.ControlPlane.GetAPIServer().Configure().Append("advertise-address", "127.0.0.1").Append("endpoint-reconciler-type", "none")
	config, err := env.Start()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, env.Stop()) })
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return server{client}
}

// securityPolicyCRD is the one that Envoy Gateway is installed with.
func securityPolicyCRD(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	for _, document := range bytes.Split(envoygateway.GatewayCRDs, []byte("\n---\n")) {
		var crd apiextensionsv1.CustomResourceDefinition
		require.NoError(t, yaml.Unmarshal(document, &crd))
		if crd.Spec.Names.Kind == mirror.KindSecurityPolicy {
			// The API server writes its own status.
			crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
			return &crd
		}
	}
	require.Fail(t, "Envoy Gateway has no CRD of SecurityPolicy")
	return nil
}

// create asks what would become of a document; nothing is stored.
func (s server) create(t *testing.T, document []byte) error {
	t.Helper()
	var object unstructured.Unstructured
	require.NoError(t, json.Unmarshal(document, &object))
	// The one namespace that is there without further ado.
	object.SetNamespace(metav1.NamespaceDefault)
	_, err := s.client.Resource(mirror.GroupVersion.WithResource("securitypolicies")).Namespace(metav1.NamespaceDefault).
		Create(context.Background(), &object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	return err
}
