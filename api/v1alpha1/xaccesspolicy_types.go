package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// XAccessPolicy says who may call what behind its targets.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=xaccesspolicies,singular=xaccesspolicy
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRefs[0].name`,description="Name of the first target."
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.action`,description="What the policy does with requests that match."
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.ancestors[*].conditions[?(@.type=="Accepted")].status`,description="Accepted on the first ancestor that reports it."
// +kubebuilder:printcolumn:name="Programmed",type=string,JSONPath=`.status.ancestors[*].conditions[?(@.type=="Programmed")].status`,description="Programmed on the first ancestor that reports it."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type XAccessPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the policy's author wants.
	// +required
	Spec AccessPolicySpec `json:"spec"`

	// status is what controllers report back, one entry per ancestor and
	// controller.
	// +optional
	Status AccessPolicyStatus `json:"status,omitzero"`
}

// XAccessPolicyList is a list of XAccessPolicy.
//
// +kubebuilder:object:root=true
type XAccessPolicyList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the policies.
	Items []XAccessPolicy `json:"items"`
}

// AccessPolicySpec is what the policy's author wants.
//
// +kubebuilder:validation:XValidation:rule="self.action == 'ExternalAuth' ? has(self.externalAuth) : true",message="externalAuth must be specified when action is set to 'ExternalAuth'"
type AccessPolicySpec struct {
	// targetRefs are the objects whose traffic the policy governs, all of one
	// kind and in the policy's own namespace. A Gateway may be narrowed to one
	// listener by sectionName. Kinds other than Gateway are
	// implementation-specific.
	//
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	// +kubebuilder:validation:XValidation:rule="self.all(ref, ref.kind == self[0].kind)",message="All targetRefs must have the same Kind"
	TargetRefs []LocalPolicyTargetReferenceWithSectionName `json:"targetRefs"`

	// action is what happens to a request that matches a rule: it is allowed,
	// or an external service is asked.
	//
	// +required
	Action AccessPolicyActionType `json:"action"`

	// externalAuth names the service to ask. It is needed, and has a meaning,
	// only with action ExternalAuth.
	//
	// +optional
	ExternalAuth *HTTPExternalAuthFilter `json:"externalAuth,omitempty"`

	// rules select requests; a request that matches one of them is selected.
	//
	// Left out, the policy selects all traffic of its targets. An explicit
	// empty list selects none. In Go the first is nil and the second a non-nil
	// slice of length 0: omitzero keeps them apart also when a value that was
	// read is written again.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	// +kubebuilder:validation:XValidation:rule="self.all(r, self.filter(x, x.name == r.name).size() == 1)",message="AccessRule names must be unique"
	Rules []AccessRule `json:"rules,omitzero"`
}

// AccessPolicyActionType is what a policy does with the requests it selects.
//
// +kubebuilder:validation:Enum=Allow;ExternalAuth
type AccessPolicyActionType string

const (
	// ActionTypeAllow lets the selected requests through.
	ActionTypeAllow AccessPolicyActionType = "Allow"

	// ActionTypeExternalAuth delegates the selected requests to the service in
	// externalAuth, before any Allow policy is looked at.
	ActionTypeExternalAuth AccessPolicyActionType = "ExternalAuth"
)

// AccessRule selects the requests of one source with one kind of authorization.
type AccessRule struct {
	// name is unique within the policy.
	//
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// source is who calls. Left out (nil), any caller matches, with or without
	// credentials.
	//
	// +optional
	Source *AccessRuleSource `json:"source,omitempty"`

	// authorization is what the source may call. Left out (nil), everything.
	//
	// +optional
	Authorization *AuthorizationRule `json:"authorization,omitempty"`
}

// AccessRuleSource is one caller identity. The schema does not tie the type to
// its member, so a type without its member, or a member without its type,
// arrives here and has to be read as no caller.
type AccessRuleSource struct {
	// type says which of the members below holds the identity.
	//
	// +unionDiscriminator
	// +optional
	Type AuthorizationSourceType `json:"type,omitempty"`

	// spiffe is a SPIFFE ID, compared whole:
	// spiffe://<trust domain>/<workload identifier>.
	//
	// +optional
	SPIFFE *AuthorizationSourceSPIFFE `json:"spiffe,omitempty"`

	// serviceAccount is a Kubernetes ServiceAccount.
	//
	// +optional
	ServiceAccount *AuthorizationSourceServiceAccount `json:"serviceAccount,omitempty"`
}

// AuthorizationSourceType is a kind of caller identity.
//
// +kubebuilder:validation:Enum=ServiceAccount;SPIFFE
type AuthorizationSourceType string

const (
	// AuthorizationSourceTypeServiceAccount goes with the member serviceAccount.
	AuthorizationSourceTypeServiceAccount AuthorizationSourceType = "ServiceAccount"

	// AuthorizationSourceTypeSPIFFE goes with the member spiffe.
	AuthorizationSourceTypeSPIFFE AuthorizationSourceType = "SPIFFE"
)

// AuthorizationSourceSPIFFE is a SPIFFE ID. The pattern leaves no room for
// wildcards.
//
// +kubebuilder:validation:Pattern=`^spiffe://[a-z0-9._-]+(?:/[A-Za-z0-9._-]+)*$`
type AuthorizationSourceSPIFFE string

// AuthorizationSourceServiceAccount names a ServiceAccount. The schema checks
// neither name nor namespace against the rules for Kubernetes names.
type AuthorizationSourceServiceAccount struct {
	// namespace of the ServiceAccount. Left out or empty, it is the policy's.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name of the ServiceAccount.
	//
	// +required
	Name string `json:"name"`
}

// AuthorizationRule is what a source may call. Its conditions hold together:
// a request has to meet every one that is present.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'CEL' ? has(self.cel) : true",message="cel must be specified when type is set to 'CEL'"
// +kubebuilder:validation:XValidation:rule="self.type == 'Inline' ? !has(self.cel) : true",message="cel must not be specified when type is set to 'Inline'"
type AuthorizationRule struct {
	// type says whether the rule is written as fields (Inline) or as an
	// expression (CEL). With CEL the schema still accepts the inline fields.
	//
	// +unionDiscriminator
	// +required
	Type AuthorizationRuleType `json:"type"`

	// methods are HTTP methods, one of which the request has to use. Empty or
	// left out, any.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=9
	Methods []HTTPMethod `json:"methods,omitempty"`

	// paths are path conditions, one of which the request has to meet. Empty or
	// left out, any path.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Paths []HTTPPathMatch `json:"paths,omitempty"`

	// headers are header conditions, all of which the request has to meet.
	// Empty or left out, no header is looked at.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Headers []HTTPHeaderMatch `json:"headers,omitempty"`

	// hosts are host names, one of which the request has to address. Empty or
	// left out, any host.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	Hosts []Hostname `json:"hosts,omitempty"`

	// ports are destination ports, one of which the request has to address.
	// Empty or left out, any port.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	Ports []PortNumber `json:"ports,omitempty"`

	// mcp are conditions on the MCP message in the request. Left out (nil), the
	// message is not looked at. Present but empty, the API server sets the base
	// protocol option to its default.
	//
	// +optional
	MCP *MCPAttributes `json:"mcp,omitempty"`

	// cel is the expression of a rule of type CEL.
	//
	// +optional
	CEL *AccessPolicyCELRule `json:"cel,omitempty"`
}

// AuthorizationRuleType is the form in which a rule is written.
//
// +kubebuilder:validation:Enum=Inline;CEL
type AuthorizationRuleType string

const (
	// AuthorizationRuleTypeInline is a rule written as fields.
	AuthorizationRuleTypeInline AuthorizationRuleType = "Inline"

	// AuthorizationRuleTypeCEL is a rule written as an expression.
	AuthorizationRuleTypeCEL AuthorizationRuleType = "CEL"
)

// AccessPolicyCELRule is a condition written in the Common Expression Language.
type AccessPolicyCELRule struct {
	// expression has to evaluate to true. Upstream leaves its variables to each
	// implementation, and the schema sets no limit on its length.
	//
	// +required
	Expression string `json:"expression"`
}
