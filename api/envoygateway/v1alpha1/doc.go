// Package v1alpha1 holds the part of gateway.envoyproxy.io/v1alpha1 (Envoy Gateway v1.9) that this project writes and
// reads, and ListenerSet of gateway.networking.k8s.io/v1, which Envoy Gateway serves.
//
// It is a mirror of parts and not an import: Envoy Gateway's own types need a newer Gateway API than Kuadrant's types
// compile with. test/envoytypes decodes what is written with Envoy Gateway's types. When other people's objects are read,
// fields that are not here are ignored; nothing that is read here is ever written back.
//
// +kubebuilder:object:generate=true
package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupVersion is the group and version of the types in this package, ListenerSet excepted.
var GroupVersion = schema.GroupVersion{Group: "gateway.envoyproxy.io", Version: "v1alpha1"}

// Controller is how Envoy Gateway names itself in GatewayClasses and in the status of its policies.
const Controller = "gateway.envoyproxy.io/gatewayclass-controller"
