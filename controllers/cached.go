package controllers

import (
	"encoding/json"
	"slices"

	authorinov1beta3 "github.com/kuadrant/authorino/api/v1beta3"
	kuadrantv1 "github.com/kuadrant/kuadrant-operator/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	kjson "sigs.k8s.io/json"

	egv1a1 "accesspolicy-operator/api/envoygateway/v1alpha1"
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

// AuthPolicy is an AuthPolicy as the cache keeps it: of ours also the spec as it was read, to tell whether it is still what
// we wrote. Of one whose rules this version cannot read there is only where it is attached and how strong it is.
type AuthPolicy struct {
	kuadrantv1.AuthPolicy
	// Live is the spec of one of ours, as JSON values; nil for others.
	Live map[string]any
}

// rawObject is an object whose spec and status are left as they are: their types differ between versions of those whose
// they are, and one object that cannot be read would keep all from being listed.
type rawObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            json.RawMessage `json:"status"`
}

// readRaw reads an object and drops the annotations that nobody reads.
func readRaw(data []byte) (rawObject, error) {
	var raw rawObject
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &raw); err != nil {
		return raw, err
	}
	raw.Annotations = marksOfTheWatch(raw.Annotations)
	return raw, nil
}

// live returns the spec of an object that looks like one of ours, as JSON values. Of others it returns nothing, and takes
// away which fields belong to whom, which is most of their size.
func (r *rawObject) live() map[string]any {
	if slices.ContainsFunc(r.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == owned.ManagedBy }) ||
		r.Labels[owned.LabelManagedBy] == owned.ManagedBy {
		var spec map[string]any
		_ = kjson.UnmarshalCaseSensitivePreserveInts(r.Spec, &spec)
		return spec
	}
	for i := range r.ManagedFields {
		r.ManagedFields[i].FieldsV1 = nil
	}
	return nil
}

type authPolicyHead struct {
	TargetRef json.RawMessage `json:"targetRef"`
	Overrides json.RawMessage `json:"overrides"`
	Defaults  json.RawMessage `json:"defaults"`
}

// UnmarshalJSON reads an AuthPolicy. A spec or a status that cannot be read is left empty.
func (a *AuthPolicy) UnmarshalJSON(data []byte) error {
	raw, err := readRaw(data)
	if err != nil {
		return err
	}
	*a = AuthPolicy{Live: raw.live()}
	a.TypeMeta, a.ObjectMeta = raw.TypeMeta, raw.ObjectMeta
	_ = kjson.UnmarshalCaseSensitivePreserveInts(raw.Status, &a.Status)
	if kjson.UnmarshalCaseSensitivePreserveInts(raw.Spec, &a.Spec) == nil {
		return nil
	}
	a.Spec = kuadrantv1.AuthPolicySpec{}
	var head authPolicyHead
	if kjson.UnmarshalCaseSensitivePreserveInts(raw.Spec, &head) == nil {
		_ = kjson.UnmarshalCaseSensitivePreserveInts(head.TargetRef, &a.Spec.TargetRef)
		if len(head.Overrides) > 0 {
			a.Spec.Overrides = &kuadrantv1.MergeableAuthPolicySpec{}
		}
		if len(head.Defaults) > 0 {
			a.Spec.Defaults = &kuadrantv1.MergeableAuthPolicySpec{}
		}
	}
	return nil
}

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

// AuthConfig is an AuthConfig as the cache keeps it: of ours the spec as it was read and what Authorino reports, of others
// little more than the name.
type AuthConfig struct {
	authorinov1beta3.AuthConfig
	// Live is the spec of one of ours, as JSON values; nil for others.
	Live map[string]any
}

// UnmarshalJSON reads an AuthConfig. A status that cannot be read is left empty.
func (a *AuthConfig) UnmarshalJSON(data []byte) error {
	raw, err := readRaw(data)
	if err != nil {
		return err
	}
	*a = AuthConfig{Live: raw.live()}
	a.TypeMeta, a.ObjectMeta = raw.TypeMeta, raw.ObjectMeta
	if a.Live != nil {
		_ = kjson.UnmarshalCaseSensitivePreserveInts(raw.Status, &a.Status)
	}
	return nil
}

// DeepCopyObject is for the cache.
func (a *AuthConfig) DeepCopyObject() runtime.Object {
	return &AuthConfig{AuthConfig: *a.DeepCopy(), Live: runtime.DeepCopyJSON(a.Live)}
}

// AuthConfigList is a list of AuthConfig.
type AuthConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AuthConfig `json:"items"`
}

// DeepCopyObject is for the cache.
func (l *AuthConfigList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]AuthConfig, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*AuthConfig)
	}
	return &out
}

// SecurityPolicy is a SecurityPolicy as the cache keeps it: of ours also the spec as it was read and what Envoy Gateway
// reports. One of which this version cannot read more than its targets is taken for one that replaces ours there.
type SecurityPolicy struct {
	egv1a1.SecurityPolicy
	// Live is the spec of one of ours, as JSON values; nil for others.
	Live map[string]any
}

// UnmarshalJSON reads a SecurityPolicy. A spec or a status that cannot be read is left empty.
func (s *SecurityPolicy) UnmarshalJSON(data []byte) error {
	raw, err := readRaw(data)
	if err != nil {
		return err
	}
	*s = SecurityPolicy{Live: raw.live()}
	s.TypeMeta, s.ObjectMeta = raw.TypeMeta, raw.ObjectMeta
	if kjson.UnmarshalCaseSensitivePreserveInts(raw.Spec, &s.Spec) != nil {
		s.Spec = egv1a1.SecurityPolicySpec{}
		_ = kjson.UnmarshalCaseSensitivePreserveInts(raw.Spec, &s.Spec.PolicyTargetReferences)
	}
	if s.Live != nil {
		_ = kjson.UnmarshalCaseSensitivePreserveInts(raw.Status, &s.Status)
	}
	return nil
}

// DeepCopyObject is for the cache.
func (s *SecurityPolicy) DeepCopyObject() runtime.Object {
	return &SecurityPolicy{SecurityPolicy: *s.DeepCopy(), Live: runtime.DeepCopyJSON(s.Live)}
}

// SecurityPolicyList is a list of SecurityPolicy.
type SecurityPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SecurityPolicy `json:"items"`
}

// DeepCopyObject is for the cache.
func (l *SecurityPolicyList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]SecurityPolicy, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*SecurityPolicy)
	}
	return &out
}

// ClientTrafficPolicy is a ClientTrafficPolicy as the cache keeps it: what says whether client certificates are verified and
// headers removed.
type ClientTrafficPolicy struct{ egv1a1.ClientTrafficPolicy }

// UnmarshalJSON reads a ClientTrafficPolicy. One whose spec cannot be read is taken for one that holds on every Gateway of
// its namespace and takes any certificate: by what it really says, certificates may be proof of nothing.
func (c *ClientTrafficPolicy) UnmarshalJSON(data []byte) error {
	raw, err := readRaw(data)
	if err != nil {
		return err
	}
	*c = ClientTrafficPolicy{}
	c.TypeMeta, c.ObjectMeta = raw.TypeMeta, raw.ObjectMeta
	c.Labels, c.ManagedFields = nil, nil
	if kjson.UnmarshalCaseSensitivePreserveInts(raw.Spec, &c.Spec) != nil {
		unknown := "not known to this version"
		c.Spec = egv1a1.ClientTrafficPolicySpec{TLS: &egv1a1.ClientTLSSettings{ClientValidation: &egv1a1.ClientValidation{Mode: &unknown}}}
		c.Spec.TargetSelectors = []egv1a1.TargetSelector{{Kind: kindGateway}}
	}
	return nil
}

// DeepCopyObject is for the cache.
func (c *ClientTrafficPolicy) DeepCopyObject() runtime.Object {
	return &ClientTrafficPolicy{*c.DeepCopy()}
}

// ClientTrafficPolicyList is a list of ClientTrafficPolicy.
type ClientTrafficPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClientTrafficPolicy `json:"items"`
}

// DeepCopyObject is for the cache.
func (l *ClientTrafficPolicyList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]ClientTrafficPolicy, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*ClientTrafficPolicy)
	}
	return &out
}

// NewScheme returns the scheme of the operator's client and cache.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	utilruntime.Must(gwv1.Install(scheme))
	for _, known := range []struct {
		kind       schema.GroupVersionKind
		item, list runtime.Object
	}{
		{v1alpha1.GroupVersion.WithKind("XAccessPolicy"), &Policy{}, &PolicyList{}},
		{authPolicies.gvk, &AuthPolicy{}, &AuthPolicyList{}},
		{securityPolicies.gvk, &SecurityPolicy{}, &SecurityPolicyList{}},
		{authConfigs.gvk, &AuthConfig{}, &AuthConfigList{}},
		{clientTrafficKind, &ClientTrafficPolicy{}, &ClientTrafficPolicyList{}},
	} {
		scheme.AddKnownTypeWithName(known.kind, known.item)
		scheme.AddKnownTypeWithName(known.kind.GroupVersion().WithKind(known.kind.Kind+"List"), known.list)
		metav1.AddToGroupVersion(scheme, known.kind.GroupVersion())
	}
	return scheme
}
