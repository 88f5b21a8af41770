package controllers

import (
	"errors"
	"fmt"
	"slices"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"accesspolicy-operator/translator"
)

// ControllerName is who our entries in status.ancestors are by.
const ControllerName gwv1.GatewayController = "accesspolicy-operator/gateway-controller"

// DefaultGatewayControllers are the GatewayClass controllers whose Gateways are looked after where none is configured:
// Istio's and Envoy Gateway's, the two that Kuadrant knows.
var DefaultGatewayControllers = []string{"istio.io/gateway-controller", "gateway.envoyproxy.io/gatewayclass-controller"}

// Config is the configuration of the controllers.
type Config struct {
	// GatewayControllers are the controllerNames of the GatewayClasses whose Gateways are looked after.
	GatewayControllers []string
	// Enforcer is what enforces policies on Gateways without translator.AnnotationEnforcer.
	Enforcer string
	// Translation is what the translator needs.
	Translation translator.Options
	// Concurrency is the number of Gateways worked on at a time.
	Concurrency int
}

// Validate returns an error that names the setting which cannot be used.
func (c Config) Validate() error {
	switch {
	case len(c.GatewayControllers) == 0:
		return errors.New("gateway controllers: none is configured, so no Gateway would be looked after")
	case slices.Contains(c.GatewayControllers, ""):
		return errors.New("gateway controllers: one of the names is empty")
	case !knownEnforcer(c.Enforcer):
		return fmt.Errorf("enforcer %q: use %s or %s", c.Enforcer, translator.EnforcerAuto, translator.EnforcerKuadrant)
	case c.Concurrency < 1:
		return fmt.Errorf("concurrency %d: at least 1 is needed", c.Concurrency)
	}
	return c.Translation.Validate()
}

func knownEnforcer(value string) bool {
	return value == translator.EnforcerAuto || value == translator.EnforcerKuadrant
}
