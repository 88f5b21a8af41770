package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// PolicyTargetReferences say what a policy is attached to. Selectors choose whole objects, never sections.
type PolicyTargetReferences struct {
	// TargetRef is deprecated in favour of TargetRefs, and still in use.
	TargetRef       *TargetRef       `json:"targetRef,omitempty"`
	TargetRefs      []TargetRef      `json:"targetRefs,omitempty"`
	TargetSelectors []TargetSelector `json:"targetSelectors,omitempty"`
}

// TargetRef names an object in the policy's namespace; SectionName a listener of a Gateway or ListenerSet, or a rule of a
// route.
type TargetRef struct {
	Group       gwv1.Group        `json:"group"`
	Kind        gwv1.Kind         `json:"kind"`
	Name        gwv1.ObjectName   `json:"name"`
	SectionName *gwv1.SectionName `json:"sectionName,omitempty"`
}

// TargetSelector chooses objects by their labels.
type TargetSelector struct {
	// Group left out is gateway.networking.k8s.io.
	Group            *gwv1.Group                       `json:"group,omitempty"`
	Kind             gwv1.Kind                         `json:"kind"`
	Namespaces       *TargetSelectorNamespaces         `json:"namespaces,omitempty"`
	MatchLabels      map[string]string                 `json:"matchLabels,omitempty"`
	MatchExpressions []metav1.LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// TargetSelectorNamespaces say where a selector looks: Same, All or Selector.
type TargetSelectorNamespaces struct {
	From     string                `json:"from"`
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}
