// Package v1alpha1 holds the part of gateway.envoyproxy.io/v1alpha1 (Envoy Gateway v1.9) that this project writes and reads.
//
// It is a mirror of parts and not an import: Envoy Gateway's own types need a newer Gateway API than Kuadrant's types
// compile with. What is written is applied to Envoy Gateway's own CRD in test/envoy, which refuses unknown fields. When other
// people's objects are read, fields that are not here are ignored; nothing that is read here is ever written back.
//
// +kubebuilder:object:generate=true
package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "gateway.envoyproxy.io", Version: "v1alpha1"}
