package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator"
)

// Kinds of the policy's group that are taken for policies. The second is the proof of concept's name for the first.
const (
	kindPolicy         = "XAccessPolicy"
	kindProofOfConcept = "AccessPolicy"
)

// rawJSON is a part of the text that is read later, or not at all.
type rawJSON = json.RawMessage

// strictPolicy is XAccessPolicy with the parts that other people own left as they are: strictness ends there.
type strictPolicy struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        rawJSON                   `json:"metadata"`
	Spec            v1alpha1.AccessPolicySpec `json:"spec"`
	Status          rawJSON                   `json:"status"`
}

// DecodePolicy reads an XAccessPolicy from JSON, strictly: an unknown field, a key that stands twice, a wrong type and a
// null below spec are problems of the policy. Whatever can be read is in the object all the same; its targets above all,
// because a refused policy still closes them.
func DecodePolicy(raw []byte) translator.Policy {
	if err := checkText(raw); err != nil {
		return refused(v1alpha1.PolicyReasonInvalid, "", "%s", err)
	}
	h, err := readHeader(raw)
	if err != nil {
		return refused(v1alpha1.PolicyReasonInvalid, "", "%s", err)
	}
	return decodePolicy(h, raw)
}

func decodePolicy(h header, raw []byte) translator.Policy {
	var p translator.Policy
	p.Object.APIVersion, p.Object.Kind = h.APIVersion, h.Kind
	var strict strictPolicy
	faults, err := kjson.UnmarshalStrict(raw, &strict)
	p.Object.Spec = strict.Spec
	readMetadata(&p, h, strict.Metadata)
	// The status is ours and other controllers'; one that cannot be read is no fault of the policy.
	_ = kjson.UnmarshalCaseSensitivePreserveInts(strict.Status, &p.Object.Status)
	if field, message := unknownVersion(h); field != "" {
		// What the fields of another version mean is not known, so none of them is judged.
		add(&p, v1alpha1.PolicyReasonUnsupportedField, field, message)
		return p
	}
	if err != nil {
		wrong := locate(raw, err)
		add(&p, v1alpha1.PolicyReasonInvalid, wrong.path, wrong.message)
	}
	for _, fault := range faults {
		strictFault(&p, fault)
	}
	for _, path := range nulls(raw) {
		add(&p, v1alpha1.PolicyReasonInvalid, path, "null is no value here: an API server drops the field, which can mean more than is meant; give it a value, or remove it")
	}
	return p
}

func add(p *translator.Policy, reason, field, message string) {
	p.Problems = append(p.Problems, translator.Problem{Reason: reason, Field: field, Message: message})
}

func refused(reason, field, format string, args ...any) translator.Policy {
	var p translator.Policy
	add(&p, reason, field, fmt.Sprintf(format, args...))
	return p
}

// readMetadata is lenient, but for the name and the namespace, without which a policy is nobody's.
func readMetadata(p *translator.Policy, h header, raw rawJSON) {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &p.Object.ObjectMeta); err != nil && len(raw) > 0 {
		wrong := locate(raw, err)
		p.Object.ObjectMeta = metav1.ObjectMeta{}
		if h.Metadata != nil {
			p.Object.Name, p.Object.Namespace = h.Metadata.Name, h.Metadata.Namespace
		}
		add(p, v1alpha1.PolicyReasonInvalid, strings.TrimSuffix("metadata."+wrong.path, "."), wrong.message)
	}
	if p.Object.Name == "" {
		add(p, v1alpha1.PolicyReasonInvalid, "metadata.name", "the name is missing; give the policy one")
	}
	if p.Object.Namespace == "" {
		p.Object.Namespace = DefaultNamespace
	}
}

// unknownVersion returns the field and what to write there when the policy is not of the version that is read.
func unknownVersion(h header) (field, message string) {
	switch {
	case h.Kind != kindPolicy:
		return "kind", fmt.Sprintf("%s is not read, only %s; write kind: %s, apiVersion: %s, and check its fields against that kind", h.Kind, kindPolicy, kindPolicy, v1alpha1.GroupVersion)
	case h.APIVersion != v1alpha1.GroupVersion.String():
		return "apiVersion", fmt.Sprintf("the version %s is not known; write apiVersion: %s, and check the fields against that version", h.APIVersion, v1alpha1.GroupVersion)
	}
	return "", ""
}

// strictFault turns what the strict decoder found into a problem.
func strictFault(p *translator.Policy, fault error) {
	path := ""
	var at kjson.FieldError
	if errors.As(fault, &at) {
		path = at.FieldPath()
	}
	if strings.HasPrefix(fault.Error(), "duplicate field") {
		add(p, v1alpha1.PolicyReasonInvalid, path, "the field stands twice; keep one")
		return
	}
	add(p, v1alpha1.PolicyReasonUnsupportedField, path, "the field is not known; it may be misspelt, or of a newer version of the API. Correct or remove it")
}
