package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// AccessPolicyStatus is what controllers report about a policy.
type AccessPolicyStatus struct {
	// ancestors has one entry for each enforcement point and controller
	// (GEP-713). A controller changes only entries with its own controllerName.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Ancestors []PolicyAncestorStatus `json:"ancestors"`
}

// PolicyAncestorStatus is what one controller reports about a policy on one
// enforcement point. Gateway API has the same type; it is repeated here because
// the version this project can import does not require conditions, and newer
// ones, which upstream uses, do.
type PolicyAncestorStatus struct {
	// ancestorRef is the enforcement point, for example a Gateway or, with
	// sectionName, one of its listeners.
	//
	// +required
	AncestorRef gwv1.ParentReference `json:"ancestorRef"`

	// controllerName is who wrote the entry, as a domain and a path.
	//
	// +required
	ControllerName gwv1.GatewayController `json:"controllerName"`

	// conditions of the policy on this ancestor.
	//
	// +required
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
