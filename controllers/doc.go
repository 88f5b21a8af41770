// Package controllers makes a cluster be what the translator says. The work on one Gateway is four steps, each in a file of
// its own: gather what concerns it, translate, apply, report. Everything that decides about access is in package
// translator; here are reads, writes and their order.
package controllers

// What the operator may do, and nothing else. Policies, Gateways and routes can be in any namespace, so reading them and
// writing what enforces them and events is cluster-wide; the lease is in the operator's own namespace.
//
// +kubebuilder:rbac:groups=agentic.networking.x-k8s.io,resources=xaccesspolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentic.networking.x-k8s.io,resources=xaccesspolicies/status,verbs=patch
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=gateways;gatewayclasses;listenersets;referencegrants;httproutes;grpcroutes;tcproutes;tlsroutes;udproutes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=kuadrant.io,resources=authpolicies,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=authorino.kuadrant.io,resources=authconfigs,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=gateway.envoyproxy.io,resources=securitypolicies,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=gateway.envoyproxy.io,resources=clienttrafficpolicies;envoyextensionpolicies;envoypatchpolicies;envoyproxies,verbs=get;list;watch
// +kubebuilder:rbac:urls=/.well-known/openid-configuration;/openid/v1/jwks,verbs=get
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=authpolicies.kuadrant.io;authconfigs.authorino.kuadrant.io;securitypolicies.gateway.envoyproxy.io;envoyextensionpolicies.gateway.envoyproxy.io;envoypatchpolicies.gateway.envoyproxy.io;envoyproxies.gateway.envoyproxy.io;listenersets.gateway.networking.k8s.io;referencegrants.gateway.networking.k8s.io;grpcroutes.gateway.networking.k8s.io;tcproutes.gateway.networking.k8s.io;tlsroutes.gateway.networking.k8s.io;udproutes.gateway.networking.k8s.io;xaccesspolicies.agentic.networking.x-k8s.io,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,namespace=accesspolicy-system,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=accesspolicy-system,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=accesspolicy-operator,namespace=accesspolicy-system,verbs=get;update
