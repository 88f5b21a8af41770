package stack

const (
	// kuadrantNamespace is where kuadrant-operator keeps the AuthConfigs.
	kuadrantNamespace = "kuadrant-system"

	pluginImage = "wasm-shim:stub"
)

// StartKuadrant starts kuadrant-operator with a Kuadrant object, and a registry
// that serves an empty plugin in place of Kuadrant's, and returns when the
// operator is ready. Start Envoy Gateway before: the operator looks once, at its
// start, which gateways there are. It ends with the test.
//
// Neither Authorino nor Limitador is deployed by it; see fakeInfrastructure.
func (c *Cluster) StartKuadrant(t T) *Program {
	t.Helper()
	c.InstallCRDs(t, CRDsKuadrant, CRDsAuthorino, CRDsAuthorinoOperator, CRDsLimitadorOperator, CRDsDNSOperator)
	c.Apply(t, Namespace(kuadrantNamespace), Object("kuadrant.io/v1beta1", "Kuadrant", kuadrantNamespace, "kuadrant", map[string]any{}))

	health := FreeAddress(t)
	program := c.Program(t, Component(t, "kuadrant-operator"), "http://"+health+"/readyz",
		[]string{"--metrics-bind-address=0", "--health-probe-bind-address=" + health},
		"KUBECONFIG="+c.kubeconfig,
		"OPERATOR_NAMESPACE="+kuadrantNamespace,
		"WITH_EXTENSIONS=false",
		"LOG_LEVEL=info",
		"LOG_MODE=production",
		"RELATED_IMAGE_WASMSHIM=oci://"+c.startRegistry(t)+"/"+pluginImage,
		"WASM_SERVER_PORT="+portOf(FreeAddress(t)))
	program.Start(t)
	c.fakeInfrastructure(t)

	return program
}

// startRegistry starts the stub registry and returns its host and port.
func (c *Cluster) startRegistry(t T) string {
	t.Helper()

	served := FreeAddress(t)
	c.Program(t, Component(t, "stubregistry"), "http://"+served+"/v2/wasm-shim/manifests/stub", []string{"-listen", served}).Start(t)

	// By this name its clients speak plain HTTP.
	return "localhost:" + portOf(served)
}
