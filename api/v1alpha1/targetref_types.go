package v1alpha1

import (
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// LocalPolicyTargetReference names an object in the policy's own namespace.
//
// Gateway API has this type and the next one in v1 from release 1.3 on. The
// release this project can import has them in v1alpha2 only, as type aliases,
// whose validation markers controller-gen cannot read.
type LocalPolicyTargetReference struct {
	// group of the target.
	//
	// +required
	Group gwv1.Group `json:"group"`

	// kind of the target.
	//
	// +required
	Kind gwv1.Kind `json:"kind"`

	// name of the target.
	//
	// +required
	Name gwv1.ObjectName `json:"name"`
}

// LocalPolicyTargetReferenceWithSectionName names an object in the policy's own
// namespace, or a section of it.
type LocalPolicyTargetReferenceWithSectionName struct {
	LocalPolicyTargetReference `json:",inline"`

	// sectionName is a part of the target; of a Gateway, a listener. Left out
	// (nil), the whole target.
	//
	// +optional
	SectionName *gwv1.SectionName `json:"sectionName,omitempty"`
}
