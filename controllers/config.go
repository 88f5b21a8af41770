package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
	"accesspolicy-operator/translator"
)

// ControllerName is who our entries in status.ancestors are by.
const ControllerName gwv1.GatewayController = "accesspolicy-operator/gateway-controller"

// DefaultGatewayControllers are the GatewayClass controllers whose Gateways are looked after where none is configured:
// Istio's and Envoy Gateway's, the two that Kuadrant knows.
var DefaultGatewayControllers = []string{"istio.io/gateway-controller", egv1a1.Controller}

// DefaultEnvoyGatewayControllers is the name that Envoy Gateway has unless its configuration gives it another
// (EnvoyGateway spec.gateway.controllerName).
var DefaultEnvoyGatewayControllers = []string{egv1a1.Controller}

// Config is the configuration of the controllers.
type Config struct {
	// GatewayControllers are the controllerNames of the GatewayClasses whose Gateways are looked after.
	GatewayControllers []string
	// EnvoyGatewayControllers are those that are Envoy Gateways. They are looked after as well.
	EnvoyGatewayControllers []string
	// Enforcer is what enforces policies on Gateways without translator.AnnotationEnforcer.
	Enforcer string
	// Translation is what the translator needs.
	Translation translator.Options
	// Concurrency is the number of Gateways worked on at a time.
	Concurrency int
	// KeysRefresh is the time between two reads of the keys that ServiceAccount tokens are signed with.
	KeysRefresh time.Duration
}

// Validate returns an error that names the setting which cannot be used.
func (c Config) Validate() error {
	switch {
	case len(c.GatewayControllers) == 0:
		return errors.New("gateway controllers: none is configured, so no Gateway would be looked after")
	case slices.Contains(slices.Concat(c.GatewayControllers, c.EnvoyGatewayControllers), ""):
		return errors.New("gateway controllers: one of the names is empty")
	case !slices.Contains(translator.EnforcerNames(), c.Enforcer):
		return fmt.Errorf("enforcer %q: use one of %s", c.Enforcer, strings.Join(translator.EnforcerNames(), ", "))
	case c.KeysRefresh < minKeysRefresh:
		return fmt.Errorf("refresh of the issuer's keys %s: at least %s is needed", c.KeysRefresh, minKeysRefresh)
	case c.Concurrency < 1:
		return fmt.Errorf("concurrency %d: at least 1 is needed", c.Concurrency)
	}
	if c.Enforcer != translator.EnforcerKuadrant {
		if err := c.Translation.EnvoyGateway.Validate(); err != nil {
			return fmt.Errorf("%w, or choose the enforcer %s", err, translator.EnforcerKuadrant)
		}
	}
	return c.Translation.Validate()
}

// minKeysRefresh keeps replicas from burdening the API server.
const minKeysRefresh = 10 * time.Second
