package envoygateway

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"accesspolicy-operator/api/v1alpha1"
	"accesspolicy-operator/translator/plan"
)

// Forms of the SecurityPolicy.
const (
	// FormNative has Envoy itself verify tokens and check rules.
	FormNative = "native"
	// FormExtAuth has Envoy ask Authorino, which gets an AuthConfig beside the SecurityPolicy.
	FormExtAuth = "ext-auth"
)

// Forms are the values of AnnotationForm.
func Forms() []string { return []string{FormNative, FormExtAuth} }

// AnnotationForm on a Gateway chooses the form.
const AnnotationForm = "accesspolicy-operator/envoy-gateway-form"

// ReasonNoAuthorino is the finding that the form that asks Authorino cannot be had.
const ReasonNoAuthorino = "NoAuthorino"

// Service is where Authorino's gRPC port is. The zero value is none.
type Service struct {
	Namespace, Name string
	Port            int32
}

// ParseService reads NAMESPACE/NAME:PORT; "" is none.
func ParseService(text string) (Service, error) {
	if text == "" {
		return Service{}, nil
	}
	namespace, rest, _ := strings.Cut(text, "/")
	name, digits, _ := strings.Cut(rest, ":")
	port, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || len(validation.IsDNS1123Label(namespace))+len(validation.IsDNS1035Label(name))+len(validation.IsValidPortNum(int(port))) > 0 {
		return Service{}, fmt.Errorf("Authorino's service: %.80q is not of the form NAMESPACE/NAME:PORT", text)
	}
	return Service{Namespace: namespace, Name: name, Port: int32(port)}, nil
}

func (s Service) String() string {
	if s == (Service{}) {
		return ""
	}
	return fmt.Sprintf("%s/%s:%d", s.Namespace, s.Name, s.Port)
}

// form decides in which form the Gateway is enforced. A wish that cannot be had is a finding; none of the forms grants more than
// another, so it may be any.
func (e *emission) form() string {
	wish := e.opts.Form
	if value, set := e.Gateway.Annotations[AnnotationForm]; set {
		if slices.Contains(Forms(), value) {
			wish = value
		} else {
			e.finding(plan.Warning, "", v1alpha1.PolicyReasonInvalidAnnotation, fmt.Sprintf("the annotation %s has the value %.60q, and %s are known; the form is %s",
				AnnotationForm, value, strings.Join(Forms(), " and "), e.opts.form()))
		}
	}
	if wish != FormExtAuth {
		return FormNative
	}
	why := ""
	switch {
	case e.opts.Authorino == (Service{}):
		why = "the operator has not been told where Authorino is (--authorino-service)"
	case e.NoAuthConfigs:
		why = "Authorino's AuthConfig is not installed, or may not be listed"
	default:
		return FormExtAuth
	}
	e.finding(plan.Warning, "", ReasonNoAuthorino, fmt.Sprintf("Envoy Gateway cannot ask Authorino, because %s; the form is %s", why, FormNative))
	return FormNative
}
