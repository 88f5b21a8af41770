package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of XAccessPolicy.
const GroupName = "agentic.networking.x-k8s.io"

var (
	// GroupVersion is the group and version of the types in this package.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	// SchemeBuilder collects what AddToScheme registers.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers XAccessPolicy and XAccessPolicyList with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Resource returns the group resource of a plural name in this group, for
// example Resource("xaccesspolicies").
func Resource(resource string) schema.GroupResource {
	return GroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &XAccessPolicy{}, &XAccessPolicyList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)

	return nil
}
