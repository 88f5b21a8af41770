package controllers

import (
	"encoding/json"
	"slices"

	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	kjson "sigs.k8s.io/json"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/manifest"
	"accesspolicy-operator/translator/owned"
)

// Policy is an XAccessPolicy as the cache keeps it: read strictly once, when it arrives. Through the plain Go type a field
// that this version does not know would be gone without a trace, and the rule wider than written.
type Policy struct {
	v1alpha1.XAccessPolicy
	Problems []translator.Problem
}

// UnmarshalJSON never fails for what a user wrote: one policy that cannot be read must not keep the others from being
// listed. Its faults are Problems.
func (p *Policy) UnmarshalJSON(data []byte) error {
	read := manifest.DecodePolicy(data)
	p.XAccessPolicy, p.Problems = read.Object, read.Problems
	p.ManagedFields, p.Labels = nil, nil // nobody reads them, and they are most of the size
	p.Annotations = marksOfTheWatch(p.Annotations)
	return nil
}

// marksOfTheWatch keeps the one annotation that is read: by it the API server marks the event that ends a watch's first list.
func marksOfTheWatch(annotations map[string]string) map[string]string {
	if value, ok := annotations[metav1.InitialEventsAnnotationKey]; ok {
		return map[string]string{metav1.InitialEventsAnnotationKey: value}
	}
	return nil
}

// DeepCopyObject is for the cache.
func (p *Policy) DeepCopyObject() runtime.Object {
	return &Policy{XAccessPolicy: *p.DeepCopy(), Problems: slices.Clone(p.Problems)}
}

// PolicyList is a list of Policy.
type PolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Policy `json:"items"`
}

// DeepCopyObject is for the cache.
func (l *PolicyList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]Policy, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Policy)
	}
	return &out
}

// AuthPolicy is an AuthPolicy as the cache keeps it: of other people's only what says where it is attached and how strong
// it is, of ours also the spec as it was read, to tell whether it is still what we wrote.
type AuthPolicy struct {
	kuadrantv1.AuthPolicy
	// Live is the spec of one of ours, as JSON values; nil for others.
	Live map[string]any
}

// liveAuthPolicy is what is read of an AuthPolicy. Rules are left as they are: their types differ between versions of
// Kuadrant, and one object that cannot be read would keep all from being listed.
type liveAuthPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            json.RawMessage `json:"status"`
}

type authPolicyHead struct {
	TargetRef json.RawMessage `json:"targetRef"`
	Overrides json.RawMessage `json:"overrides"`
	Defaults  json.RawMessage `json:"defaults"`
}

// UnmarshalJSON reads an AuthPolicy. A spec or a status that cannot be read is left empty.
func (a *AuthPolicy) UnmarshalJSON(data []byte) error {
	var live liveAuthPolicy
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &live); err != nil {
		return err
	}
	*a = AuthPolicy{}
	a.TypeMeta, a.ObjectMeta = live.TypeMeta, live.ObjectMeta
	a.Annotations = marksOfTheWatch(a.Annotations)
	_ = kjson.UnmarshalCaseSensitivePreserveInts(live.Status, &a.Status)
	var head authPolicyHead
	if kjson.UnmarshalCaseSensitivePreserveInts(live.Spec, &head) == nil {
		_ = kjson.UnmarshalCaseSensitivePreserveInts(head.TargetRef, &a.Spec.TargetRef)
		if len(head.Overrides) > 0 {
			a.Spec.Overrides = &kuadrantv1.MergeableAuthPolicySpec{}
		}
		if len(head.Defaults) > 0 {
			a.Spec.Defaults = &kuadrantv1.MergeableAuthPolicySpec{}
		}
	}
	if slices.ContainsFunc(a.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == owned.ManagedBy }) ||
		a.Labels[owned.LabelManagedBy] == owned.ManagedBy {
		_ = kjson.UnmarshalCaseSensitivePreserveInts(live.Spec, &a.Live)
		return nil
	}
	for i := range a.ManagedFields {
		a.ManagedFields[i].FieldsV1 = nil
	}
	return nil
}

// authPolicyKind is the kind of what we write.
var authPolicyKind = kuadrantv1.GroupVersion.WithKind("AuthPolicy")

// DeepCopyObject is for the cache.
func (a *AuthPolicy) DeepCopyObject() runtime.Object {
	return &AuthPolicy{AuthPolicy: *a.DeepCopy(), Live: runtime.DeepCopyJSON(a.Live)}
}

// AuthPolicyList is a list of AuthPolicy.
type AuthPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AuthPolicy `json:"items"`
}

// DeepCopyObject is for the cache.
func (l *AuthPolicyList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]AuthPolicy, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*AuthPolicy)
	}
	return &out
}

// NewScheme returns the scheme of the operator's client and cache.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	utilruntime.Must(gwv1.Install(scheme))
	scheme.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind("XAccessPolicy"), &Policy{})
	scheme.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind("XAccessPolicyList"), &PolicyList{})
	metav1.AddToGroupVersion(scheme, v1alpha1.GroupVersion)
	scheme.AddKnownTypeWithName(authPolicyKind, &AuthPolicy{})
	scheme.AddKnownTypeWithName(kuadrantv1.GroupVersion.WithKind("AuthPolicyList"), &AuthPolicyList{})
	metav1.AddToGroupVersion(scheme, kuadrantv1.GroupVersion)
	return scheme
}
